// Whisper: logits and losses of given tokens for given spectra, compared with transformers'.
#include "uptrain/evaluate/speech.h"

#include <functional>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "formats/directory/model_directory.h"
#include "tests/checkpoint_builder.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/never_stopped.h"

namespace regroup {
namespace {

using Catch::Matchers::WithinAbs;

const std::filesystem::path kSpeech = golden("whisper");
const std::filesystem::path kFeatures = kSpeech / "features.safetensors";

Transformer speech_model(const std::filesystem::path& path = kSpeech) {
  return load_transformer(open_speech_model(path), at::kFloat, at::kCPU);
}

// The logits [2, 7, 40] that the functions write for the fixture's spectra and tokens.
at::Tensor speech_logits(const Transformer& model, std::int64_t batch = 8) {
  const TemporaryDirectory directory;
  write_speech_logits(model, SpeechFile(kFeatures, model.spec()), batch,
                      directory / "logits.safetensors", {}, kNeverStopped);
  return read_tensor(directory / "logits.safetensors", "logits");
}

// The fixture's model with a change, and its distance from transformers' logits.
double distance_after(const std::function<void(ModelSpec&, const Parameters&)>& change) {
  const at::NoGradGuard no_gradients;
  const Model source = open_speech_model(kSpeech);
  ModelSpec spec = source.spec;
  const Parameters parameters = load_parameters(spec, source.checkpoint, at::kFloat, at::kCPU);
  change(spec, parameters);
  return largest_difference(speech_logits(Transformer(spec, parameters)),
                            read_tensor(kSpeech / "expected.safetensors", "logits"));
}

std::string ids_as_bytes(const std::vector<std::int64_t>& ids) { return bytes_of_numbers(ids); }

// A file of two spectra for the fixture, with those tokens [2, T].
std::filesystem::path put_speech(const TemporaryDirectory& directory,
                                 const std::vector<std::int64_t>& ids,
                                 const Shape& features = {2, 6, 16}) {
  const auto tokens = static_cast<std::int64_t>(ids.size()) / 2;
  put_checkpoint(directory / "speech.safetensors",
                 std::vector<BuiltTensor>{varied_tensor("features", DType::kF32, features),
                                          {"tokens", DType::kI64, {2, tokens}, ids_as_bytes(ids)}});
  return directory / "speech.safetensors";
}

Error refusal_of_speech(const std::vector<std::int64_t>& ids, const Shape& features = {2, 6, 16}) {
  const TemporaryDirectory directory;
  const auto path = put_speech(directory, ids, features);
  const Transformer model = speech_model();
  return refusal_of(
      [&] { evaluate_speech(model, SpeechFile(path, model.spec()), 8, {}, kNeverStopped); });
}

TEST_CASE("Whisper's logits equal those of transformers, and grouped ones too", "[uptrain]") {
  const std::int64_t batch = GENERATE(1, 8);
  const at::Tensor expected = read_tensor(kSpeech / "expected.safetensors", "logits");
  CHECK(largest_difference(speech_logits(speech_model(), batch), expected) <= 1e-4);
  for (const std::int64_t kv_heads : {2, 3}) {
    CAPTURE(kv_heads);
    const TemporaryDirectory directory;
    convert(kSpeech, directory / "result", {.kv_heads = {kv_heads}, .roles = kAllRoles});
    const at::Tensor grouped =
        read_tensor(kSpeech / ("expected_g" + std::to_string(kv_heads) + ".safetensors"), "logits");
    const at::Tensor ours = speech_logits(speech_model(directory / "result"), batch);
    CHECK(largest_difference(ours, grouped) <= 1e-4);
    CHECK(largest_difference(ours, expected) >= 1e-2);
  }
}

TEST_CASE("each part of Whisper's encoder input changes its logits", "[uptrain]") {
  const auto zero = [](const std::string& name) {
    return distance_after([&](ModelSpec&, const Parameters& all) { all.at(name).zero_(); });
  };
  const ModelSpec spec = open_speech_model(kSpeech).spec;
  CHECK(distance_after([](ModelSpec&, const Parameters&) {}) <= 1e-4);
  CHECK(zero(spec.spectrum.first.weight) >= 1e-2);
  CHECK(zero(spec.spectrum.first.bias) >= 1e-2);
  CHECK(zero(spec.spectrum.second.bias) >= 1e-2);
  CHECK(zero(spec.encoder_position_embedding) >= 1e-2);
  CHECK(distance_after([](ModelSpec& changed, const Parameters&) {
          changed.decoder_start_token = 5;
        }) >= 1e-2);
  const auto reversed = [](ModelSpec& changed, const Parameters& all) {
    const at::Tensor weight = all.at(changed.spectrum.second.weight);
    weight.copy_(weight.flip(2).clone());
  };
  CHECK(distance_after(reversed) >= 1e-2);
}

TEST_CASE("the loss of speech is the mean over tokens that are not padding", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const std::int64_t batch = GENERATE(1, 8);
  const at::Tensor logits = read_tensor(kSpeech / "expected.safetensors", "logits");
  const at::Tensor labels = read_tensor(kFeatures, "tokens");
  const Transformer model = speech_model();
  const SpeechFile file(kFeatures, model.spec());
  const Evaluation whole = evaluate_speech(model, file, batch, {}, kNeverStopped);
  const double expected =
      at::cross_entropy_loss(logits.flatten(0, 1), labels.flatten()).item<double>();
  CHECK(whole.tokens == 14);
  CHECK_THAT(whole.loss, WithinAbs(expected, 1e-5));

  const TemporaryDirectory directory;
  at::Tensor padded = labels.clone();
  padded.select(0, 1).narrow(0, 3, 4).fill_(-100);
  const std::vector<std::int64_t> ids(padded.const_data_ptr<std::int64_t>(),
                                      padded.const_data_ptr<std::int64_t>() + 14);
  const Checkpoint fixture = open_checkpoint(kFeatures);
  put_checkpoint(
      directory / "padded.safetensors",
      std::vector<BuiltTensor>{{"features", DType::kF32, {2, 6, 16}, bytes_of(fixture, "features")},
                               {"tokens", DType::kI64, {2, 7}, ids_as_bytes(ids)}});
  const Evaluation part = evaluate_speech(
      model, SpeechFile(directory / "padded.safetensors", model.spec()), batch, {}, kNeverStopped);
  CHECK(part.tokens == 10);
  CHECK_THAT(part.loss, WithinAbs(at::cross_entropy_loss(logits.flatten(0, 1), padded.flatten(), {},
                                                         at::Reduction::Mean, -100)
                                      .item<double>(),
                                  1e-5));
}

TEST_CASE("files of speech that do not fit the model are refused", "[uptrain]") {
  CHECK_THAT(refusal_of_speech({1, 2, 3, 40}), is_bad_input("sample 1", "token 40", "of 40"));
  CHECK_THAT(refusal_of_speech({-100, 2, 3, 4}), is_bad_input("sample 0", "token 2", "padding"));
  CHECK_THAT(refusal_of_speech({-1, -1, -1, -1}), is_bad_input("all tokens are padding"));
  CHECK_THAT(refusal_of_speech({1, 2, 3, 4}, {2, 6, 15}),
             is_bad_input("features are F32 [2, 6, 15]", "[-1, 6, 16]"));
  CHECK_THAT(refusal_of_speech({1, 2, 3, 4}, {2, 5, 16}), is_bad_input("[2, 5, 16]"));
  CHECK_THAT(refusal_of_speech({1, 2, 3, 4}, {3, 6, 16}), is_bad_input("tokens are I64 [2, 2]"));
  CHECK_THAT(refusal_of_speech(std::vector<std::int64_t>(34, 1)),
             is_bad_input("17 tokens", "16 positions"));
  CHECK_THAT(refusal_of([] { SpeechFile(kSpeech / "expected.safetensors", ModelSpec()); }),
             is_bad_input("features", "missing"));
}

TEST_CASE("spectra are for Whisper, and tokens are for others", "[uptrain]") {
  CHECK_THAT(refusal_of([] { open_speech_model(golden("bart")); }),
             is_wrong_usage("reads tokens, not spectra", "--data"));
  CHECK_THAT(refusal_of([] { open_predicting_model(kSpeech); }),
             is_bad_input("cannot be computed", "eval --features"));
  const Transformer model = speech_model();
  const at::Tensor ids = at::zeros({1, 4}, at::kLong);
  CHECK_THAT(refusal_of([&] { model.hidden_states(ids, ids); }),
             is_wrong_usage("spectra of 6 bands and 16 frames"));
}

}  // namespace
}  // namespace regroup
