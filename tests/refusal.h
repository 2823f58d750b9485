// Errors in tests: catching one, and matching its kind and message.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_templated.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/base/error.h"

namespace regroup {

/// Runs `action` and returns the Error it throws.
template <typename Action>
Error refusal_of(Action&& action) {
  try {
    std::forward<Action>(action)();
  } catch (const Error& error) {
    return error;
  }
  return {ErrorKind::kDifference, "nothing was refused"};  // no matcher below accepts this kind
}

/// Matches an Error of this kind with a message of one printable line that contains all of `words`.
class RefusalMatcher : public Catch::Matchers::MatcherGenericBase {
 public:
  RefusalMatcher(ErrorKind kind, std::string kind_name, std::vector<std::string> words)
      : kind_(kind), kind_name_(std::move(kind_name)), words_(std::move(words)) {}

  bool match(const Error& error) const {
    const std::string message = error.what();
    const auto is_control = [](char byte) {
      return static_cast<unsigned char>(byte) < 0x20 || byte == 0x7f;
    };
    return error.kind() == kind_ && !message.empty() &&
           std::none_of(message.begin(), message.end(), is_control) &&
           std::all_of(words_.begin(), words_.end(), [&](const std::string& word) {
             return message.find(word) != std::string::npos;
           });
  }

  std::string describe() const override {
    return fmt::format("is {} and names, in one line: {}", kind_name_, fmt::join(words_, " | "));
  }

 private:
  ErrorKind kind_;
  std::string kind_name_;
  std::vector<std::string> words_;
};

template <typename... Words>
RefusalMatcher is_bad_input(const Words&... words) {
  return {ErrorKind::kBadInput, "bad input", {std::string(words)...}};
}

template <typename... Words>
RefusalMatcher is_wrong_usage(const Words&... words) {
  return {ErrorKind::kUsage, "wrong usage", {std::string(words)...}};
}

template <typename... Words>
RefusalMatcher is_environment_failure(const Words&... words) {
  return {ErrorKind::kEnvironment, "a failure of the environment", {std::string(words)...}};
}

}  // namespace regroup

template <>
struct Catch::StringMaker<regroup::Error> {
  static std::string convert(const regroup::Error& error) {
    return "error of kind " + std::to_string(static_cast<int>(error.kind())) + ": " + error.what();
  }
};
