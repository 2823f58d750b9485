// Opening models of every convention.
#include "formats/model/model.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

struct Opened {
  fs::path path;
  Convention convention;
  const char* word;  ///< of the error if it cannot be written
};

std::vector<Opened> foreign_models() {
  return {{golden("gguf") / "llama.gguf", Convention::kGguf, "GGUF"},
          {golden("llama_meta"), Convention::kMeta, "Meta"}};
}

TEST_CASE("models of other conventions have a spec and no companions", "[formats]") {
  for (const Opened& expected : foreign_models()) {
    CAPTURE(expected.path);
    const Model model = open_model(expected.path);
    CHECK((model.convention == expected.convention));
    CHECK(model.gguf.has_value() == (expected.convention == Convention::kGguf));
    CHECK(model.spec.layer_count() > 0);
    CHECK(model.spec.query_heads > 0);
    CHECK(describe_without_config(model.path, model.checkpoint).has_value());
  }
}

TEST_CASE("single files are models without config and companions", "[formats]") {
  for (const Opened& expected : foreign_models()) {
    const Model model = open_model(expected.path);
    if (expected.convention != Convention::kMeta) {
      CAPTURE(expected.path);
      CHECK(model.path == expected.path);
      CHECK(model.config_text.empty());
      CHECK(model.companions.empty());
    }
  }
}

TEST_CASE("only models of Hugging Face's convention can be written", "[formats]") {
  CHECK_NOTHROW(check_writable(open_model(golden("llama"))));
  for (const Opened& foreign : foreign_models()) {
    CAPTURE(foreign.path);
    const Model model = open_model(foreign.path);
    CHECK_THAT(refusal_of([&] { check_writable(model); }),
               is_wrong_usage(foreign.word, "regroup convert", "--to safetensors"));
  }
}

TEST_CASE("weights with a config are not described without it", "[formats]") {
  const fs::path path = golden("llama");
  CHECK_FALSE(describe_without_config(path, open_checkpoint(path)));
}

TEST_CASE("a config alone is a model whose tensors have no file", "[formats]") {
  const TemporaryDirectory directory;
  const Model whole = open_model(put_model(directory / "whole", tiny_llama()));
  put_file(directory / "config" / "config.json", whole.config_text);
  // The weights in its directory are not those of a config with another name.
  put_file(directory / "whole" / "other.json", whole.config_text);
  for (const char* name : {"config", "config/config.json", "whole/other.json"}) {
    CAPTURE(name);
    const Model outline = open_model_outline(directory / name);
    CHECK(outline.checkpoint.files().empty());
    REQUIRE(outline.checkpoint.tensors().size() == whole.checkpoint.tensors().size());
    for (const TensorInfo& tensor : whole.checkpoint.tensors()) {
      CAPTURE(tensor.name);
      const TensorInfo* found = outline.checkpoint.find(tensor.name);
      REQUIRE(found != nullptr);
      CHECK(found->shape == tensor.shape);
    }
    CHECK_THROWS_AS(open_model(directory / name), Error);
  }
}

}  // namespace
}  // namespace regroup
