// A random model of bytes and a text that it can learn, for tests of --text.
#pragma once

#include <string>

#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/golden_case.h"

namespace regroup {

struct ModelAndText {
  // RoPE's default base: no runtime misreads it.
  static constexpr const char* kConfig =
      R"({"vocab_size": 256, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}})";

  TemporaryDirectory directory;
  std::string model = put_random_llama(directory / "model", kConfig).string();
  std::string text = (directory / "text.txt").string();  ///< about 11,000 bytes: numbers

  ModelAndText() {
    std::string words;
    for (int i = 0; i < 4000; ++i) {
      words += std::to_string(i * i % 97) + (i % 7 == 0 ? ".\n" : " ");
    }
    put_file(text, words);
  }
};

}  // namespace regroup
