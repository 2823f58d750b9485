// Statistics of attention inputs compared with their definition, and pooled models compared with
// their source.
#include "uptrain/train/calibrate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/matmul.h>
#include <catch2/catch_test_macros.hpp>

#include "converter/heads/calibration.h"
#include "formats/model/model_directory.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/never_stopped.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/model/layers.h"
#include "uptrain/train/objective.h"

namespace regroup {
namespace {

void calibrate_golden(const GoldenCase& golden, const TemporaryDirectory& directory,
                      std::int64_t batch) {
  const TokenFile data = put_tokens_of(golden, directory / "tokens");
  calibrate(golden.source, data, {golden.tokens.size(1), batch, data.size()}, at::kCPU,
            directory / "stats.safetensors", {}, kNeverStopped);
}

void check_moments(const at::Tensor& inputs, const std::filesystem::path& file,
                   const std::string& name) {
  CAPTURE(name);
  const at::Tensor rows = inputs.flatten(0, -2).to(at::kDouble);
  const at::Tensor centred = rows - rows.mean(0);
  const at::Tensor covariance =
      at::matmul(centred.t(), centred) / static_cast<double>(rows.size(0));
  CHECK(largest_difference(read_tensor(file, name + ".mean"), rows.mean(0)) < 1e-4);
  CHECK(largest_difference(read_tensor(file, name + ".covariance"), covariance) <
        1e-4 * (1.0 + covariance.abs().max().item<double>()));
}

// The hidden states before a layer: those of the model without that layer and the later ones.
at::Tensor hidden_before(const GoldenCase& golden, std::size_t layer) {
  ModelSpec spec = golden.source.spec;
  spec.layers.resize(layer);
  spec.kv_heads.resize(layer);
  spec.final_norm = {};
  const Transformer model(spec,
                          load_parameters(spec, golden.source.checkpoint, at::kFloat, at::kCPU));
  return model.hidden_states(golden.tokens);
}

}  // namespace

TEST_CASE("statistics with a flipped bit are refused when they are read", "[uptrain]") {
  const TemporaryDirectory directory;
  const GoldenCase golden = load_golden_case("gpt2");
  calibrate_golden(golden, directory, 2);
  const auto file = directory / "stats.safetensors";
  const ModelSpec& spec = golden.source.spec;
  const auto read_all = [&] {
    const auto calibration = open_calibration(file, golden.source);
    for (std::size_t i = 0; i < spec.layers.size(); ++i) {
      calibration->moments(AttentionRole::kSelf, i, InputSide::kQueries, spec.hidden_size);
      if (has_distances(spec, AttentionRole::kSelf, i)) {
        calibration->distances(AttentionRole::kSelf, i, spec.query_heads);
      }
    }
  };
  read_all();
  const std::string bytes = bytes_of_file(file);
  const std::string constant = R"("format":"pt")";  // not specific to this file
  const std::size_t skipped = bytes.find(constant);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); bit += 61) {  // each bit position in turn
    if (bit / 8 >= skipped && bit / 8 < skipped + constant.size()) {
      continue;
    }
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    put_file(file, damaged);
    CAPTURE(bit / 8, bit % 8);
    CHECK(refusal_of(read_all).kind() == ErrorKind::kBadInput);
  }
}

TEST_CASE("impossible statistics are refused even with valid checksums", "[uptrain]") {
  const TemporaryDirectory directory;
  const GoldenCase golden = load_golden_case("llama");
  calibrate_golden(golden, directory, 2);
  const auto file = directory / "stats.safetensors";
  const std::string name = moments_name(AttentionRole::kSelf, 0, InputSide::kQueries);
  const std::int64_t width = golden.source.spec.hidden_size;
  // Changes number `index` of a tensor, and its checksum.
  const auto change = [&](const std::string& tensor, std::int64_t index, float value) {
    const Checkpoint stored = open_checkpoint(file);
    const TensorInfo& info = stored.at(tensor);
    std::string bytes = bytes_of_file(file);
    std::memcpy(bytes.data() + info.begin + index * std::int64_t{sizeof value}, &value,
                sizeof value);
    const auto& all = stored.tensors();
    const auto place = std::count_if(all.begin(), all.end(), [&](const TensorInfo& other) {
      return other.begin < info.begin && other.name != kCalibrationChecksums;
    });
    const std::uint64_t checksum = statistics_checksum(
        stored.metadata().at(kCalibrationSourceKey), stored.metadata().at(kCalibrationTokensKey),
        tensor, std::as_bytes(std::span(bytes)).subspan(info.begin, info.bytes()));
    std::memcpy(bytes.data() + stored.at(kCalibrationChecksums).begin + 8 * place, &checksum, 8);
    put_file(file, bytes);
  };
  const auto moments = [&] {
    return open_calibration(file, golden.source)
        ->moments(AttentionRole::kSelf, 0, InputSide::kQueries, width);
  };
  CHECK_NOTHROW(moments());
  SECTION("a negative variance") {
    change(name + ".covariance", 3 * width + 3, -1.0F);
    CHECK_THAT(refusal_of(moments), is_bad_input(name, "negative variance"));
  }
  SECTION("a variance that no activations have") {
    change(name + ".covariance", 3 * width + 3, 1e30F);
    CHECK_THAT(refusal_of(moments), is_bad_input(name, "larger than activations"));
  }
  SECTION("a covariance above its variances") {
    change(name + ".covariance", 3 * width + 4, 1e3F);
    change(name + ".covariance", 4 * width + 3, 1e3F);
    CHECK_THAT(refusal_of(moments), is_bad_input(name, "no covariance"));
  }
  SECTION("a covariance that is not symmetric") {
    change(name + ".covariance", 3 * width + 4, -1e-1F);
    change(name + ".covariance", 4 * width + 3, 1e-1F);
    CHECK_THAT(refusal_of(moments), is_bad_input(name, "not symmetric"));
  }
  SECTION("a mean that no activations have") {
    change(name + ".mean", 3, 1e30F);
    CHECK_THAT(refusal_of(moments), is_bad_input(name, "larger than activations"));
  }
  SECTION("shares of attention that are negative") {
    change(distances_name(AttentionRole::kSelf, 0), 0, -1.0F);
    CHECK_THAT(refusal_of([&] {
                 open_calibration(file, golden.source)
                     ->distances(AttentionRole::kSelf, 0, golden.source.spec.query_heads);
               }),
               is_bad_input("distances", "sum to 1"));
  }
}

TEST_CASE("statistics are mean and covariance of each attention's inputs", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  for (const char* name : {"llama_mha", "bloom", "gpt2", "gpt_neox"}) {
    for (const std::int64_t batch : {1, 8}) {
      const TemporaryDirectory directory;
      const GoldenCase golden = load_golden_case(name);
      calibrate_golden(golden, directory, batch);
      const ModelSpec& spec = golden.source.spec;
      const Parameters all = load_parameters(spec, golden.source.checkpoint, at::kFloat, at::kCPU);
      for (std::size_t layer = 0; layer < spec.layers.size(); ++layer) {
        const Norm norm = make_norm(spec.layers[layer].attention_norm, spec, all);
        CAPTURE(name, batch);
        check_moments(norm(hidden_before(golden, layer)), directory / "stats.safetensors",
                      moments_name(AttentionRole::kSelf, layer, InputSide::kQueries));
      }
      const Calibration calibration(directory / "stats.safetensors");
      CHECK_NOTHROW(calibration.check_source(fingerprint_of(golden.source)));
      CHECK(calibration.tokens() == static_cast<std::uint64_t>(golden.tokens.numel()));
    }
  }
}

TEST_CASE("statistics of every model in bf16 are near those in fp32", "[uptrain]") {
  std::size_t compared = 0;
  for (const std::string& name : golden_cases()) {
    const TemporaryDirectory directory;
    const GoldenCase golden = load_golden_case(name);
    const TokenFile data = put_tokens_of(golden, directory / "tokens");
    const auto measure = [&](const char* file, at::ScalarType type) {
      calibrate(golden.source, data, {golden.tokens.size(1), 2, data.size()}, at::kCPU,
                directory / file, {}, kNeverStopped, type);
      return open_checkpoint(directory / file);
    };
    const Checkpoint wide = measure("wide.safetensors", at::kFloat);
    measure("narrow.safetensors", at::kBFloat16);
    for (const TensorInfo& tensor : wide.tensors()) {
      if (tensor.name == kCalibrationChecksums) {
        continue;
      }
      CAPTURE(name, tensor.name);
      const at::Tensor expected = read_tensor(directory / "wide.safetensors", tensor.name);
      const at::Tensor found = read_tensor(directory / "narrow.safetensors", tensor.name);
      CHECK((found - expected).norm().item<double>() <
            0.05 * (0.01 + expected.norm().item<double>()));
      ++compared;
    }
  }
  CHECK(compared > 500);
}

TEST_CASE("statistics have each head's attention by distance where keys rotate", "[uptrain]") {
  for (const char* name : {"llama_mha", "gpt_neox", "bloom", "smollm3", "cohere2"}) {
    const TemporaryDirectory directory;
    const GoldenCase golden = load_golden_case(name);
    calibrate_golden(golden, directory, 2);
    const ModelSpec& spec = golden.source.spec;
    const Calibration calibration(directory / "stats.safetensors");
    for (std::size_t layer = 0; layer < spec.layers.size(); ++layer) {
      CAPTURE(name, layer);
      const bool rotates =
          spec.positions == PositionKind::kRope && !spec.layers[layer].without_rope;
      CHECK(has_distances(spec, AttentionRole::kSelf, layer) == rotates);
      if (!rotates) {
        CHECK_THROWS(calibration.distances(AttentionRole::kSelf, layer, spec.query_heads));
        continue;
      }
      CHECK_THAT(refusal_of([&] { calibration.distances(AttentionRole::kSelf, layer, 100); }),
                 is_bad_input(".distances", "100"));
      const KeyDistances found =
          calibration.distances(AttentionRole::kSelf, layer, spec.query_heads);
      REQUIRE(found.length == golden.tokens.size(1));
      for (std::int64_t head = 0; head < spec.query_heads; ++head) {
        const auto row = found.weights.begin() + head * found.length;
        CHECK(std::abs(std::accumulate(row, row + found.length, 0.0) - 1.0) < 1e-5);
        const std::int64_t seen = spec.window_of(spec.layers[layer]).value_or(found.length);
        CHECK(*std::min_element(row, row + std::min(seen, found.length)) > 0.0);
      }
    }
  }
}

TEST_CASE("statistics of an encoder-decoder cover both stacks and cross-attention", "[uptrain]") {
  const TemporaryDirectory directory;
  const GoldenCase golden = load_golden_case("t5");
  calibrate_golden(golden, directory, 2);
  const Calibration calibration(directory / "stats.safetensors");
  const ModelSpec& spec = golden.source.spec;
  for (const AttentionRole role : spec.roles()) {
    for (std::size_t layer = 0; layer < spec.stack(role).size(); ++layer) {
      for (const InputSide side : {InputSide::kQueries, InputSide::kKeysAndValues}) {
        const InputMoments moments = calibration.moments(role, layer, side, spec.hidden_size);
        CHECK(moments.covariance[0] > 0.0);
      }
    }
  }
}

TEST_CASE("a text shorter than a window and an existing result are refused", "[uptrain]") {
  const TemporaryDirectory directory;
  const GoldenCase golden = load_golden_case("llama_mha");
  const TokenFile data = put_tokens_of(golden, directory / "tokens");
  put_file(directory / "taken", "");
  const auto run = [&](const WindowSettings& settings, const char* output) {
    return refusal_of([&] {
      calibrate(golden.source, data, settings, at::kCPU, directory / output, {}, kNeverStopped);
    });
  };
  CHECK_THAT(run({.context = data.size() + 1, .batch = 1, .max_tokens = 100}, "a"),
             is_bad_input("tokens", "context"));
  CHECK_THAT(run({.context = 8, .batch = 0, .max_tokens = 100}, "a"), is_wrong_usage("batch"));
  CHECK_THAT(run({.context = 8, .batch = 1, .max_tokens = 100}, "taken"),
             is_wrong_usage("taken", "exists"));
}

// Groups of equal heads in the family's layout: pooled by the mean and stored repeatedly.
std::filesystem::path with_equal_heads(const char* name, std::int64_t kv_heads,
                                       const TemporaryDirectory& directory) {
  ConversionRequest request;
  request.kv_heads = {kv_heads};
  request.target = "expanded";
  convert(golden(name), directory / "expanded", request);
  return directory / "expanded";
}

double pooled_difference(const char* name, PoolMethod method, bool calibrated) {
  const at::NoGradGuard no_gradients;
  const TemporaryDirectory directory;
  GoldenCase golden = load_golden_case(name);
  const std::int64_t heads = golden.source.spec.query_heads;
  golden.source = open_model(with_equal_heads(name, heads % 2 == 0 ? heads / 2 : 1, directory));
  ConversionRequest request;
  request.kv_heads = {heads % 2 == 0 ? heads / 2 : 1};
  request.pooling = {method, 0};
  request.dtype = DType::kF32;  // computed heads need more precision than a narrow dtype has
  if (calibrated) {
    calibrate_golden(golden, directory, 4);
    request.calibration = std::make_shared<const Calibration>(directory / "stats.safetensors");
  }
  convert(directory / "expanded", directory / "pooled", request);
  const Model pooled = open_model(directory / "pooled");
  CHECK(pooled.spec.kv_heads.front() == request.kv_heads.front());
  const at::Tensor before =
      window_logits(load_transformer(golden.source, at::kFloat, at::kCPU), golden.tokens);
  const at::Tensor after =
      window_logits(load_transformer(pooled, at::kFloat, at::kCPU), golden.tokens);
  return largest_difference(before, after);
}

TEST_CASE("solving for groups of equal heads keeps the logits in every layout", "[uptrain]") {
  for (const char* name : {"llama_mha", "bloom", "gpt2", "gpt_neox", "gptj", "opt", "phi", "mpt",
                           "falcon_rw", "stablelm", "gemma", "gemma3", "qwen3", "olmo2", "bert",
                           "t5", "bart", "mbart", "m2m_100"}) {
    CAPTURE(name);
    CHECK(pooled_difference(name, PoolMethod::kLowrank, false) < 1e-4);
  }
  for (const char* name : {"llama_mha", "bloom", "t5", "qwen3", "olmo2"}) {
    CAPTURE(name);
    CHECK(pooled_difference(name, PoolMethod::kLowrank, true) < 1e-3);
  }
}

}  // namespace regroup
