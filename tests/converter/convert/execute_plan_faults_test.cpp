// Conversions that are refused or interrupted leave no files and do not change the source.
#include <cstddef>
#include <limits>
#include <span>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "converter/convert/tensor_parts.h"
#include "converter/heads/heads.h"
#include "tests/checkpoint_builder.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

// A tiny model in its own directory. untouched() says whether the directory's contents are
// unchanged.
class Scene {
 public:
  explicit Scene(const TinyModel& tiny = tiny_llama())
      : source_(put_model(directory_ / "source", tiny)), before_(tree_of(directory_.path())) {}

  const fs::path& source() const { return source_; }
  fs::path path(const fs::path& name) const { return directory_ / name; }
  void remember() { before_ = tree_of(directory_.path()); }
  bool untouched() const { return tree_of(directory_.path()) == before_; }

  Error refusal(const fs::path& destination, ConversionRequest request = {.kv_heads = {4}}) const {
    return refusal_of([&] { convert(source_, destination, request); });
  }

 private:
  TemporaryDirectory directory_;
  fs::path source_;
  std::map<std::string, std::string> before_;
};

TEST_CASE("an existing destination is refused and left unchanged", "[converter]") {
  Scene scene;
  fs::create_directory(scene.path("empty"));
  put_file(scene.path("full/file"), "kept");
  put_file(scene.path("file"), "kept");
  fs::create_symlink("nowhere", scene.path("link"));
  fs::create_symlink("circle", scene.path("circle"));
  scene.remember();
  for (const char* name : {"empty", "full", "file", "link", "circle", "empty/", "empty/."}) {
    CAPTURE(name);
    CHECK_THAT(scene.refusal(scene.path(name)), is_wrong_usage("exists already"));
  }
  CHECK(scene.untouched());
}

TEST_CASE("a destination equal to or inside or above the source is refused", "[converter]") {
  Scene scene;
  fs::create_symlink("source", scene.path("alias"));
  scene.remember();
  CHECK_THAT(scene.refusal(scene.source()), is_wrong_usage());
  CHECK_THAT(scene.refusal(scene.source().parent_path()), is_wrong_usage("exists already"));
  CHECK_THAT(scene.refusal(scene.source() / "inner"), is_wrong_usage("inside the source"));
  CHECK_THAT(scene.refusal(scene.source() / "new" / "inner"), is_wrong_usage("inside the source"));
  CHECK_THAT(scene.refusal(scene.path("alias/inner")), is_wrong_usage("inside the source"));
  CHECK_THAT(scene.refusal(scene.path("elsewhere/../source/inner")),
             is_wrong_usage("inside the source"));
  CHECK_THAT(scene.refusal(""), is_wrong_usage());
  CHECK(scene.untouched());
}

TEST_CASE("a destination whose name begins with the source's name is accepted", "[converter]") {
  const Scene scene;
  const Model model = open_model(scene.source());
  const std::atomic<bool> stop{false};
  execute_conversion(plan_conversion(model, {.kv_heads = {4}}), model, scene.path("source-gqa"), {},
                     stop);
  CHECK(fs::exists(scene.path("source-gqa/config.json")));
}

TEST_CASE("NaN and infinities in pooled heads are refused with their tensor", "[converter]") {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    TinyModel tiny = tiny_llama();
    const std::string v = "model.layers.1.self_attn.v_proj.weight";
    std::vector<double> values = values_of(tiny.tensor(v));
    values.back() = bad;
    tiny.tensor(v) = tensor_of(v, DType::kF32, {24, 6}, values);
    const Scene scene(tiny);
    CHECK_THAT(scene.refusal(scene.path("deep/result")),
               is_bad_input("model.safetensors", v, "NaN"));
    CHECK(scene.untouched());

    convert(scene.source(), scene.path("result"), {.kv_heads = {4}, .allow_nonfinite = true});
    CHECK(fs::exists(scene.path("result/model.safetensors")));
  }
}

TEST_CASE("numbers that overflow a smaller dtype are refused with their tensor", "[converter]") {
  TinyModel tiny = tiny_llama();
  const std::string up = "model.layers.0.mlp.up_proj.weight";
  std::vector<double> values = values_of(tiny.tensor(up));
  values.back() = -70000.0;
  tiny.tensor(up) = tensor_of(up, DType::kF32, tiny.tensor(up).shape, values);
  const Scene scene(tiny);
  const Error refusal =
      scene.refusal(scene.path("result"), {.kv_heads = {4}, .dtype = DType::kF16});
  CHECK_THAT(refusal, is_bad_input("model.safetensors: tensor " + up, "70000", "F16", "65520"));
  CHECK(std::string(refusal.what()).find("heads") == std::string::npos);
  CHECK(scene.untouched());
  convert(scene.source(), scene.path("result"), {.kv_heads = {4}, .dtype = DType::kBF16});
}

TEST_CASE("NaN in a tensor written as Q8_0 is refused even if NaN is allowed", "[converter]") {
  const TemporaryDirectory directory;
  std::vector<double> values(64, 0.5);
  values[40] = std::numeric_limits<double>::quiet_NaN();
  put_checkpoint(directory / "w.safetensors",
                 std::vector{tensor_of("mlp.down", DType::kF64, {2, 32}, values)});
  const Checkpoint checkpoint = open_checkpoint(directory / "w.safetensors");
  const OutputTensor result{
      .name = "blk.1.ffn_down.weight", .dtype = DType::kQ8_0, .shape = {2, 32}};
  const HeadBlocks all = head_blocks({2, 32}, false, std::vector<std::int64_t>{0}, 2);
  std::vector<std::byte> blocks(2 * 34);
  CHECK_FALSE(move_heads(copy_of_heads("mlp.down", all, all), DType::kF64,
                         std::as_bytes(std::span(values)), DType::kQ8_0, blocks));
  CHECK_FALSE(may_hold_nonfinite(result, true));
  CHECK_THAT(refusal_of([&] { refuse_numbers(checkpoint, checkpoint.at("mlp.down"), result); }),
             is_bad_input("w.safetensors: tensor mlp.down", "1 NaN", "Q8_0 holds neither"));
}

TEST_CASE("a missing tensor is reported with its file", "[converter]") {
  TinyModel tiny = tiny_llama();
  tiny.remove("model.layers.1.self_attn.v_proj.weight");
  const Scene scene(tiny);
  CHECK_THAT(scene.refusal(scene.path("result")),
             is_bad_input("model.safetensors: ", "layers.1.self_attn.v_proj.weight"));
  const fs::path before = fs::current_path();
  fs::current_path(scene.source());
  const Checkpoint here = open_checkpoint("model.safetensors");
  CHECK_THAT(refusal_of([&] { here.at("none"); }),
             is_bad_input("model.safetensors: tensor none is missing"));
  fs::current_path(before);
}

TEST_CASE("NaN in the last part of a large tensor is refused", "[converter]") {
  TinyModel large = tiny_llama({.layers = 1, .head_dim = 128, .hidden_size = 1024});
  std::string& keys = large.tensor("model.layers.0.self_attn.k_proj.weight").bytes;
  keys.replace(keys.size() - 4, 4, "\xff\xff\xff\xff");
  const Scene scene(large);
  CHECK_THAT(scene.refusal(scene.path("result")),
             is_bad_input("model.safetensors", "layers.0.self_attn.k_proj.weight", "NaN"));
  CHECK(scene.untouched());
  convert(scene.source(), scene.path("result"), {.kv_heads = {4}, .allow_nonfinite = true});
  CHECK(fs::exists(scene.path("result/model.safetensors")));
}

TEST_CASE("NaN in tensors that are only copied is accepted", "[converter]") {
  TinyModel tiny = tiny_llama();
  const std::string q = "model.layers.0.self_attn.q_proj.weight";
  tiny.tensor(q).bytes.assign(tiny.tensor(q).bytes.size(), '\xff');
  const Scene scene(tiny);
  const Model model = open_model(scene.source());
  const std::atomic<bool> stop{false};
  execute_conversion(plan_conversion(model, {.kv_heads = {4}}), model, scene.path("result"), {},
                     stop);
  CHECK(fs::exists(scene.path("result")));
}

TEST_CASE("a conversion stopped at any step leaves no files", "[converter]") {
  const Scene scene;
  const Model model = open_model(scene.source());
  const ConversionPlan plan = plan_conversion(model, {.kv_heads = {4}});
  for (std::size_t last = 0; last < plan.steps.size() - 1; ++last) {
    std::atomic<bool> stop{false};
    std::size_t calls = 0;
    const Error error = refusal_of([&] {
      execute_conversion(
          plan, model, scene.path("result"), [&](auto, auto) { stop = calls++ == last; }, stop);
    });
    CHECK(error.kind() == ErrorKind::kInterrupted);
    CHECK(calls == last + 1);
    CHECK(scene.untouched());
  }
  const std::atomic<bool> stop{true};
  CHECK(refusal_of([&] {
          execute_conversion(plan, model, scene.path("result"), {}, stop);
        }).kind() == ErrorKind::kInterrupted);
  CHECK(scene.untouched());
}

TEST_CASE("a source changed during the conversion is refused", "[converter]") {
  Scene scene;
  const Model model = open_model(scene.source());
  const ConversionPlan plan = plan_conversion(model, {.kv_heads = {4}});
  const std::atomic<bool> stop{false};
  const auto refusal_when = [&](auto change) {
    return refusal_of([&] {
      execute_conversion(plan, model, scene.path("result"), [&](auto, auto) { change(); }, stop);
    });
  };
  const fs::path weights = scene.source() / "model.safetensors";
  SECTION("truncated") {
    CHECK_THAT(refusal_when([&] { fs::resize_file(weights, 2000); }),
               is_bad_input("model.safetensors", "truncated"));
  }
  SECTION("grown") {
    CHECK_THAT(refusal_when([&] { fs::resize_file(weights, 200'000); }),
               is_bad_input("model.safetensors", "changed"));
  }
  CHECK_FALSE(fs::exists(scene.path("result")));
  CHECK((tree_of(scene.path(".")).size() == 3));  // the source and its two files
}

TEST_CASE("an unreadable companion ends the conversion", "[converter]") {
  Scene scene;
  put_file(scene.source() / "tokenizer.json", "{}");
  const Model model = open_model(scene.source());
  const ConversionPlan plan = plan_conversion(model, {.kv_heads = {4}});
  fs::remove(scene.source() / "tokenizer.json");
  const std::atomic<bool> stop{false};
  CHECK_THAT(refusal_of([&] { execute_conversion(plan, model, scene.path("result"), {}, stop); }),
             is_bad_input("tokenizer.json"));
  CHECK(scene.untouched());
}

TEST_CASE("an unwritable destination is an environment failure", "[converter]") {
  const Scene scene;
  CHECK_THAT(scene.refusal("/proc/regroup-result"), is_environment_failure("/proc/regroup-result"));
  CHECK_THAT(scene.refusal(scene.source().parent_path() / "source" / "config.json" / "x"),
             is_wrong_usage("inside the source"));
  CHECK_THAT(scene.refusal(scene.path(std::string(300, 'x'))), is_environment_failure("xxx"));
  CHECK(scene.untouched());
}

}  // namespace
}  // namespace regroup
