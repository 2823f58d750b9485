// Signals during a conversion.
#include <chrono>
#include <csignal>
#include <thread>

#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

// A Llama whose attention has 256 MB of zeros in a sparse file. Pooling takes long enough for a
// signal to arrive.
fs::path put_large_model(const fs::path& directory) {
  constexpr int kLayers = 32, kSize = 1024;
  TinyModel model = tiny_llama({.layers = 0});
  model.set("hidden_size", "1024").set("num_attention_heads", "16").set("head_dim", "64");
  model.set("num_key_value_heads", "16").set("num_hidden_layers", std::to_string(kLayers));
  model.set("intermediate_size", "8").set("vocab_size", "8").set("tie_word_embeddings", "false");
  std::string header;
  std::uint64_t end = 0;
  const auto add = [&](const std::string& name, const std::string& shape, std::uint64_t elements) {
    const std::uint64_t begin = end;
    end += 2 * elements;
    header += fmt::format(R"({}"{}.weight":{{"dtype":"BF16","shape":[{}],"data_offsets":[{},{}]}})",
                          header.empty() ? "" : ",", name, shape, begin, end);
  };
  for (const char* name : {"model.embed_tokens", "lm_head"}) {
    add(name, "8,1024", 8 * kSize);
  }
  add("model.norm", "1024", kSize);
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string in = fmt::format("model.layers.{}.", layer);
    for (const char role : {'q', 'k', 'v', 'o'}) {
      add(in + "self_attn." + role + "_proj", "1024,1024", std::uint64_t{kSize} * kSize);
    }
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
      add(in + norm, "1024", kSize);
    }
    for (const char* map : {"mlp.gate_proj", "mlp.up_proj"}) {
      add(in + map, "8,1024", 8 * kSize);
    }
    add(in + "mlp.down_proj", "1024,8", 8 * kSize);
  }
  put_file(directory / "config.json", model.config);
  const std::string start = file_with_header("{" + header + "}");
  put_file(directory / "model.safetensors", start);
  fs::resize_file(directory / "model.safetensors", start.size() + end);
  return directory;
}

bool wait_for_partial_result(const fs::path& directory) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < deadline) {
    for (const auto& entry : fs::directory_iterator(directory)) {
      if (entry.path().filename().string().find(".partial-") != std::string::npos) {
        return true;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// `times`: how often the signal is sent, at once.
void check_interrupted_by(int signal_number, int times = 1) {
  const TemporaryDirectory directory;
  const fs::path source = put_large_model(directory / "source");
  fs::create_directory(directory / "out");
  RunningProgram program(
      {"convert", source.string(), (directory / "out" / "result").string(), "--kv-heads", "4"});
  REQUIRE(wait_for_partial_result(directory / "out"));
  for (int i = 0; i < times; ++i) {
    program.send(signal_number);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // equal signals that wait are one
  }
  const ProgramResult result = program.wait();
  CAPTURE(result.err);
  CHECK(result.exit_code == 128 + signal_number);
  CHECK(result.out.empty());
  CHECK(result.one_line_of_error());
  CHECK(fs::is_empty(directory / "out"));
}

TEST_CASE("Ctrl-C during a conversion leaves no files and exits with the usual code",
          "[end_to_end]") {
  check_interrupted_by(SIGINT);
}

TEST_CASE("SIGTERM during a conversion leaves no files and exits with the usual code",
          "[end_to_end]") {
  check_interrupted_by(SIGTERM);
}

// As `timeout` does, which sends it to the program and then to its group.
TEST_CASE("a signal sent twice at once during a conversion leaves no files", "[end_to_end]") {
  check_interrupted_by(SIGTERM, 2);
}

TEST_CASE("closing the terminal during a conversion leaves no files", "[end_to_end]") {
  check_interrupted_by(SIGHUP);
}

}  // namespace
}  // namespace regroup
