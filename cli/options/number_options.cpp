#include "cli/options/number_options.h"

#include <string_view>

namespace regroup {
namespace {

// The name of an option in messages: "--output" of "output,-o,--output".
std::string shown_name(const std::string& names) {
  const std::size_t begin = names.find("--");
  return begin == names.npos ? names.substr(0, names.find(','))
                             : names.substr(begin, names.find(',', begin) - begin);
}

// An option with one value, which is passed to `take` as typed.
Option add(Command command, const std::string& names, const std::string& text, const char* kind,
           const std::function<void(const std::string& name, const std::string& typed)>& take) {
  return command
      .add_option(
          names, [name = shown_name(names), take](const std::string& typed) { take(name, typed); },
          text)
      .value_name(kind);
}

}  // namespace

namespace number_options {

Option add_counts(Command command, const std::string& names, const std::string& text,
                  CountRange range,
                  const std::function<void(const std::vector<std::uint64_t>&)>& assign) {
  return add(command, names, text, kCounts, [=](const std::string& name, const std::string& typed) {
    assign(parse_counts(name, typed, range));
  });
}

Option add_one_count(Command command, const std::string& names, const std::string& text,
                     CountRange range, const std::function<void(std::uint64_t)>& assign) {
  return add(command, names, text, kCount, [=](const std::string& name, const std::string& typed) {
    assign(parse_count(name, typed, range));
  });
}

Option add_one_number(Command command, const std::string& names, const std::string& text,
                      NumberRange range, const std::function<void(double)>& assign) {
  return add(command, names, text, kNumber, [=](const std::string& name, const std::string& typed) {
    assign(parse_number(name, typed, range));
  });
}

}  // namespace number_options

Option add_size(Command command, const std::string& names, std::uint64_t& value,
                const std::string& text) {
  return add(command, names, text, kSize,
             [&value](const std::string& name, const std::string& typed) {
               value = parse_bytes(name, typed);
             });
}

Option add_size(Command command, const std::string& names, std::optional<std::uint64_t>& value,
                const std::string& text) {
  return add(command, names, text, kSize,
             [&value](const std::string& name, const std::string& typed) {
               value = parse_bytes(name, typed);
             });
}

Option add_threads_option(Command command, int& threads, const std::string& text) {
  return add_count(command, "--threads", threads, text, {1, kMostThreads}).default_text("");
}

}  // namespace regroup
