// Encoders, decoders and cross-attention: which of them a conversion groups.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <fmt/format.h>

#include "formats/families/family.h"
#include "formats/spec/alibi.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/grouped_cases.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

using Heads = std::vector<std::int64_t>;
using enum AttentionRole;
const std::vector<AttentionRole> kAllRoles{kSelf, kCross, kEncoder};

Checkpoint grouped_by_hand(const char* name, std::int64_t groups) {
  return open_checkpoint(golden(name) / fmt::format("grouped_g{}.safetensors", groups));
}

bool is_encoders(const TensorInfo& tensor) { return tensor.name.starts_with("encoder."); }

TEST_CASE("keys and values of every role are pooled bit for bit and other tensors are copied",
          "[converter]") {
  const auto [name, groups] = GENERATE(from_range(kGroupedCases), from_range(kGroupedSpeechCases));
  CAPTURE(name, groups);
  const TemporaryDirectory directory;
  convert(golden(name), directory / "result", {.kv_heads = {groups}, .roles = kAllRoles});
  const Checkpoint source = open_checkpoint(golden(name));
  const Checkpoint result = open_checkpoint(directory / "result");
  const Checkpoint pooled = grouped_by_hand(name, groups);
  CHECK(result.tensors().size() == source.tensors().size());
  std::size_t changed = 0;
  for (const TensorInfo& tensor : result.tensors()) {
    const bool grouped = pooled.find(tensor.name) != nullptr;
    const Checkpoint& expected = grouped ? pooled : source;
    CHECK(tensor.shape == expected.at(tensor.name).shape);
    CHECK((bytes_of(result, tensor.name) == bytes_of(expected, tensor.name)));
    changed += grouped ? 1 : 0;
  }
  CHECK(changed == pooled.tensors().size());
}

TEST_CASE("the encoder keeps its heads by default", "[converter]") {
  const auto* name = GENERATE("t5", "t5_v1_1");
  const TemporaryDirectory directory;
  convert(golden(name), directory / "result", {.kv_heads = {4}});
  const Checkpoint source = open_checkpoint(golden(name));
  const Checkpoint result = open_checkpoint(directory / "result");
  const Checkpoint pooled = grouped_by_hand(name, 4);
  for (const TensorInfo& tensor : result.tensors()) {
    CAPTURE(name, tensor.name);
    const bool grouped = pooled.find(tensor.name) != nullptr && !is_encoders(tensor);
    CHECK((bytes_of(result, tensor.name) == bytes_of(grouped ? pooled : source, tensor.name)));
  }
  const Model model = open_model(directory / "result");
  CHECK(model.config["num_key_value_heads"] == 4);
  CHECK(model.config["cross_num_key_value_heads"] == 4);
  CHECK_FALSE(model.config.contains("encoder_num_key_value_heads"));
  CHECK(model.config["regroup"]["kv_heads"] == Json{{"encoder", 12}, {"decoder", 4}, {"cross", 4}});
  CHECK(model.config["regroup"]["source_kv_heads"] ==
        Json{{"encoder", 12}, {"decoder", 12}, {"cross", 12}});
  check_all_shapes(model.spec, model.checkpoint);
}

TEST_CASE("each role is grouped separately and recorded under its own key", "[converter]") {
  const auto role = GENERATE(kSelf, kCross, kEncoder);
  CAPTURE(name_of(role));
  const TemporaryDirectory directory;
  convert(golden("t5"), directory / "result", {.kv_heads = {3}, .roles = {role}});
  const Model model = open_model(directory / "result");
  check_all_shapes(model.spec, model.checkpoint);
  for (const AttentionRole other : model.spec.roles()) {
    const std::string key = model.spec.kv_heads_key_of(other).back();
    CHECK(model.config.contains(key) == (other == role));
    const std::size_t layers = model.spec.stack(other).size();
    CHECK(model.spec.kv_heads_of(other) == Heads(layers, other == role ? 3 : 12));
    CHECK(kv_heads_from_shapes(model.spec, model.checkpoint, other) ==
          model.spec.kv_heads_of(other));
    CHECK(model.config["regroup"]["kv_heads"][std::string(name_of(other))] ==
          (other == role ? 3 : 12));
  }
}

TEST_CASE("the only role of an encoder is grouped by default", "[converter]") {
  const TemporaryDirectory directory;
  convert(golden("bert"), directory / "result", {.kv_heads = {4}});
  const Model model = open_model(directory / "result");
  CHECK(model.config["num_key_value_heads"] == 4);
  CHECK_FALSE(model.config.contains("encoder_num_key_value_heads"));
  CHECK(model.config["regroup"]["kv_heads"] == 4);
}

TEST_CASE("a list of kv heads has one entry per layer of each stack", "[converter]") {
  const TemporaryDirectory directory;
  const Model t5 = open_model(golden("t5"));  // an encoder of 2 layers, a decoder of 3
  convert(golden("t5"), directory / "decoder", {.kv_heads = {12, 4, 3}});
  const Model decoder = open_model(directory / "decoder");
  CHECK(decoder.config["num_key_value_heads"] == Json{12, 4, 3});
  CHECK(decoder.config["cross_num_key_value_heads"] == Json{12, 4, 3});
  CHECK(decoder.spec.cross_kv_heads == Heads{12, 4, 3});
  CHECK(decoder.config["regroup"]["kv_heads"]["cross"] == Json{12, 4, 3});
  check_all_shapes(decoder.spec, decoder.checkpoint);

  convert(golden("t5"), directory / "encoder", {.kv_heads = {6, 2}, .roles = {kEncoder}});
  CHECK(open_model(directory / "encoder").spec.encoder_kv_heads == Heads{6, 2});
  CHECK_THAT(refusal_of([&] { plan_conversion(t5, {.kv_heads = {12, 4, 3}, .roles = kAllRoles}); }),
             is_wrong_usage("lists 3 layers", "the encoder has 2"));
  CHECK_THAT(refusal_of([&] { plan_conversion(t5, {.kv_heads = {6, 2}}); }),
             is_wrong_usage("lists 2 layers", "the decoder has 3"));
}

TEST_CASE("a note says if kv heads differ in the encoder only", "[converter]") {
  const TemporaryDirectory directory;
  const Model source = open_model(put_model(directory / "t5", golden_model("t5")));
  const ConversionPlan plan = plan_conversion(
      source, {.kv_heads = {6, 2}, .roles = {kEncoder}, .loader = LoaderChoice::kNone});
  REQUIRE(plan.notes.size() == 1);
  CHECK(plan.notes[0].find("differ between layers") != std::string::npos);
}

TEST_CASE("cache bytes per token are counted by role", "[converter]") {
  const auto plan_of = [](const char* name) {
    return plan_conversion(open_model(golden(name)), {.kv_heads = {4}, .roles = kAllRoles});
  };
  const ConversionPlan t5 = plan_of("t5");  // 3 layers · k and v · heads · d 3 · 4 bytes
  REQUIRE(t5.kv_bytes_per_token);
  CHECK(t5.kv_bytes_per_token->before == 3 * 2 * 12 * 3 * 4);
  CHECK(t5.kv_bytes_per_token->after == 3 * 2 * 4 * 3 * 4);
  REQUIRE(t5.cross_kv_bytes_per_token);
  CHECK(t5.cross_kv_bytes_per_token->after == 3 * 2 * 4 * 3 * 4);
  CHECK_FALSE(plan_of("bert").kv_bytes_per_token);
  CHECK_FALSE(plan_of("bert").cross_kv_bytes_per_token);
  CHECK_FALSE(plan_of("llama_bf16").cross_kv_bytes_per_token);
}

TEST_CASE("an expanded model stores each pooled head once per query head in every role",
          "[converter]") {
  const auto* name = GENERATE("t5", "bert");
  const TemporaryDirectory directory;
  convert(golden(name), directory / "at once",
          {.kv_heads = {3}, .roles = kAllRoles, .target = "expanded"});
  convert(golden(name), directory / "grouped", {.kv_heads = {3}, .roles = kAllRoles});
  convert(directory / "grouped", directory / "later", {.target = "expanded"});
  const Checkpoint at_once = open_checkpoint(directory / "at once");
  const Checkpoint later = open_checkpoint(directory / "later");
  for (const TensorInfo& tensor : at_once.tensors()) {
    CHECK((bytes_of(at_once, tensor.name) == bytes_of(later, tensor.name)));
    CHECK(tensor.shape == open_checkpoint(golden(name)).at(tensor.name).shape);
  }
  const Model expanded = open_model(directory / "at once");
  for (const AttentionRole role : expanded.spec.roles()) {
    CHECK(kv_heads_from_shapes(expanded.spec, expanded.checkpoint, role) ==
          Heads(expanded.spec.stack(role).size(), 12));
  }
  CHECK(expanded.config["regroup"].contains("stored_kv_heads"));
}

std::vector<std::string> tensors_named(const Model& model, std::string_view part) {
  std::vector<std::string> names;
  for (const TensorInfo& tensor : model.checkpoint.tensors()) {
    if (tensor.name.find(part) != std::string::npos) {
      names.push_back(tensor.name);
    }
  }
  return names;
}

TEST_CASE("replacing positions by ALiBi drops the position tensors", "[converter]") {
  const auto [name, part, family] = GENERATE(table<const char*, const char*, const char*>({
      {"t5", "relative_attention_bias", "t5"},
      {"t5_small", "relative_attention_bias", "t5"},  // with a bias that is never read
      {"mt5", "relative_attention_bias", "mt5"},
      {"umt5", "relative_attention_bias", "umt5"},
      {"bart", "embed_positions", "bart"},
      {"mbart", "embed_positions", "mbart"},
      {"marian_tables", "embed_positions", "marian"},
      {"pegasus", "embed_positions", "pegasus"},
      {"bert", "position_embeddings", "bert"},
      {"roberta", "position_embeddings", "roberta"},
  }));
  CAPTURE(name);
  const TemporaryDirectory directory;
  const auto held = tensors_named(open_model(golden(name)), part);
  CHECK_FALSE(held.empty());
  const ConversionPlan plan =
      plan_conversion(open_model(golden(name)), {.positions = PositionChange::kAlibi});
  CHECK(plan.dropped.size() == held.size());
  convert(golden(name), directory / "alibi", {.positions = PositionChange::kAlibi});
  const Model model = open_model(directory / "alibi");
  CHECK(tensors_named(model, part).empty());
  check_all_shapes(model.spec, model.checkpoint);
  CHECK(model.spec.positions == PositionKind::kAlibi);
  CHECK(model.config["model_type"] == std::string("regroup_alibi_") + family);
  CHECK(model.config["regroup"]["positions"] == "alibi");
}

TEST_CASE("Whisper's kv heads have their own keys and its positions cannot become ALiBi",
          "[converter]") {
  const TemporaryDirectory directory;
  convert(golden("whisper"), directory / "result", {.kv_heads = {2}, .roles = kAllRoles});
  const Model model = open_model(directory / "result");
  for (const char* key : {"kv_heads", "cross_kv_heads", "encoder_kv_heads"}) {
    CHECK(model.config[key] == 2);
  }
  // transformers would read this key as encoder_attention_heads.
  CHECK_FALSE(model.config.contains("num_key_value_heads"));
  CHECK(model.config["encoder_attention_heads"] == 6);
  check_all_shapes(model.spec, model.checkpoint);
  CHECK_THAT(refusal_of([&] {
               plan_conversion(open_model(golden("whisper")),
                               {.positions = PositionChange::kAlibi});
             }),
             is_wrong_usage("WhisperForConditionalGeneration", "audio"));
}

TEST_CASE("slopes are recorded for every query head of encoder and decoder", "[converter]") {
  const TemporaryDirectory directory;
  convert(golden("t5"), directory / "alibi",
          {.kv_heads = {4}, .roles = kAllRoles, .positions = PositionChange::kAlibi});
  const Model model = open_model(directory / "alibi");
  const Json alibi = model.config["regroup"]["alibi"];
  CHECK(alibi["slopes"].get<std::vector<double>>() == alibi_slopes(12));
  CHECK(alibi["encoder_slopes"].get<std::vector<double>>() == alibi_slopes(12));
  CHECK(alibi_slopes_per_layer(model.spec) == std::vector(3, alibi_slopes(12)));
  CHECK(alibi_slopes_per_layer(model.spec, kEncoder) == std::vector(2, alibi_slopes(12)));
  CHECK(Json::parse(model.checkpoint.metadata().at("regroup.alibi_encoder_slopes")) ==
        alibi["encoder_slopes"]);
  convert(golden("bert"), directory / "bert", {.positions = PositionChange::kAlibi});
  CHECK_FALSE(open_model(directory / "bert").config["regroup"]["alibi"].contains("encoder_slopes"));
}

TEST_CASE("recorded slopes of the encoder are separate and must match its heads", "[converter]") {
  const TemporaryDirectory directory;
  convert(golden("t5"), directory / "alibi", {.positions = PositionChange::kAlibi});
  const auto file = directory / "alibi" / "config.json";
  const auto spec_with = [&](const std::string& slopes) {
    put_file(file,
             with_member(bytes_of_file(file), {"regroup", "alibi", "encoder_slopes"}, slopes));
    return open_model(directory / "alibi").spec;
  };
  const std::string row = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]";
  const ModelSpec spec = spec_with(row);
  CHECK(alibi_slopes_per_layer(spec, kEncoder)[1][11] == 12);
  CHECK(alibi_slopes_per_layer(spec) == std::vector(3, alibi_slopes(12)));
  const auto slopes_of_three = [&] {
    alibi_slopes_per_layer(spec_with(fmt::format("[{}, {}, {}]", row, row, row)), kEncoder);
  };
  CHECK_THAT(refusal_of(slopes_of_three), is_bad_input("3 layers", "encoder has 2"));
  CHECK_THAT(refusal_of([&] { alibi_slopes_per_layer(spec_with("[1, 2]"), kEncoder); }),
             is_bad_input("2 recorded", "12 query heads"));
  CHECK_THAT(refusal_of([&] { spec_with("\"steep\""); }),
             is_bad_input("encoder_slopes", "no list of numbers"));
}

}  // namespace
}  // namespace regroup
