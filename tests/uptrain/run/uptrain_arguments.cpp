#include "tests/uptrain/run/uptrain_arguments.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <thread>

#include <catch2/catch_test_macros.hpp>

#include "tests/file_tree.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/token_text.h"

namespace regroup {

std::vector<std::string> uptrain_arguments(const TemporaryDirectory& directory,
                                           const std::string& output) {
  const std::filesystem::path data = directory / "training.bin";
  put_file(data, bytes_of_numbers(learnable_text(3000, 64)));
  return {"uptrain",          golden("llama").string(),
          "--data",           data.string(),
          "--alpha",          "0.05",
          "--pretrain-steps", "6000",
          "--sequence",       "12",
          "--batch",          "2",
          "--output",         (directory / output).string(),
          "--save-every",     "20",
          "--threads",        "1",
          "--seed",           "5"};
}

std::vector<std::string> with(std::vector<std::string> arguments, const std::string& more) {
  arguments.push_back(more);
  return arguments;
}

std::vector<std::string> with_all(std::vector<std::string> arguments,
                                  const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

void wait_for_steps(const std::filesystem::path& run, std::ptrdiff_t steps) {
  for (int tries = 0; tries < 6000; ++tries) {
    std::ifstream metrics(run / "metrics.jsonl");
    if (std::count(std::istreambuf_iterator<char>(metrics), {}, '\n') >= steps) {
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL("the run never got to step " << steps);
}

void wait_for_path(const std::filesystem::path& path) {
  for (int tries = 0; tries < 6000; ++tries) {
    if (std::filesystem::exists(path)) {
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL(path << " never appeared");
}

}  // namespace regroup
