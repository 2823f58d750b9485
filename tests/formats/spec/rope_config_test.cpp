// How the RoPE settings of a config.json are read, and which are refused.
#include <cmath>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include "formats/spec/alibi.h"
#include "formats/spec/config_reader.h"
#include "tests/refusal.h"

namespace regroup {
namespace {

// A model of 8 dimensions per head and 64 positions.
RopeSpec rope_of(const Json& config) {
  ModelSpec spec;
  spec.head_dim = 8;
  spec.max_positions = 64;
  read_rope(spec, ConfigReader(config, "config.json"));
  return spec.rope;
}

RopeScaling yarn_with(const Json& changes) {
  Json given{{"rope_type", "yarn"}, {"factor", 4.0}};
  given.merge_patch(changes);
  return rope_of({{"rope_parameters", given}}).scaling;
}

TEST_CASE("the rotated part of a head is even and within the head", "[formats]") {
  CHECK(rope_of({{"partial_rotary_factor", 0.25}}).rotary_dim == 2);
  CHECK(rope_of({{"partial_rotary_factor", 0.0}}).rotary_dim == 0);
  const auto refusal = [](const char* key, double value) {
    return refusal_of([&] { rope_of({{key, value}}); });
  };
  CHECK_THAT(refusal("partial_rotary_factor", 0.375),
             is_bad_input("config.json", "3 of 8 dimensions", "even part"));
  CHECK_THAT(refusal("partial_rotary_factor", -0.25),
             is_bad_input("config.json", "-2 of 8 dimensions"));
  CHECK_THAT(refusal("partial_rotary_factor", 2.0),
             is_bad_input("config.json", "16 of 8 dimensions"));
  CHECK_THAT(refusal("partial_rotary_factor", 1e30),
             is_bad_input("config.json", "8e+30 of 8 dimensions"));
  CHECK_THAT(refusal("rope_theta", 0.0), is_bad_input("config.json", "theta 0"));
  CHECK_THAT(refusal("rope_theta", -1.0), is_bad_input("config.json", "theta -1"));
}

TEST_CASE("YaRN's attention factor is given or follows from two scales or from the formula",
          "[formats]") {
  const double formula = 0.1 * std::log(4.0) + 1.0;
  CHECK(yarn_with(Json::object()).attention_factor == Catch::Approx(formula));
  CHECK(yarn_with({{"attention_factor", 1.25}}).attention_factor == 1.25);
  CHECK(yarn_with({{"mscale", 2.0}, {"mscale_all_dim", 3.0}}).attention_factor ==
        Catch::Approx((0.2 * std::log(4.0) + 1.0) / (0.3 * std::log(4.0) + 1.0)));
  // One scale alone has no effect.
  CHECK(yarn_with({{"mscale", 2.0}}).attention_factor == Catch::Approx(formula));
  CHECK(yarn_with({{"mscale_all_dim", 2.0}}).attention_factor == Catch::Approx(formula));
  // Nothing is scaled if the context is not stretched.
  CHECK(yarn_with({{"factor", 0.5}}).attention_factor == 1.0);
}

TEST_CASE("YaRN's factor defaults to max positions over original positions", "[formats]") {
  CHECK(yarn_with({{"factor", nullptr}, {"original_max_position_embeddings", 16}}).factor == 4.0);
  CHECK_THAT(refusal_of([] { yarn_with({{"factor", 0.0}}); }),
             is_bad_input("config.json", "scaling factor is 0"));
}

RopeScaling longrope_with(const Json& changes, const Json& outside = Json::object()) {
  Json given{{"type", "su"},
             {"short_factor", {1.0, 2.0, 3.0, 4.0}},
             {"long_factor", {2.0, 4.0, 6.0, 8.0}},
             {"original_max_position_embeddings", 16}};
  given.merge_patch(changes);
  Json config{{"rope_scaling", given}};
  config.update(outside);
  return rope_of(config).scaling;
}

TEST_CASE("LongRoPE's factors follow from the pretraining's positions", "[formats]") {
  for (const char* type : {"su", "yarn", "longrope"}) {
    const RopeScaling scaling = longrope_with({{"type", type}});
    CHECK(scaling.kind == RopeScaling::Kind::kLongRope);
    CHECK(scaling.attention_factor ==
          Catch::Approx(std::sqrt(1.0 + std::log(4.0) / std::log(16.0))));
  }
  // The model's key takes precedence, as in transformers.
  CHECK(longrope_with(Json::object(), {{"original_max_position_embeddings", 32}})
            .original_positions == 32.0);
  CHECK(longrope_with({{"attention_factor", 1.25}}).attention_factor == 1.25);
  CHECK(longrope_with({{"factor", 0.5}}).attention_factor == 1.0);
}

TEST_CASE("the model's positions in pretraining take precedence over those of its scaling",
          "[formats]") {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    Json config{{key, {{"rope_type", "llama3"}, {"factor", 8.0}}},
                {"original_max_position_embeddings", 16}};
    CHECK(rope_of(config).scaling.original_positions == 16.0);
    config[key]["original_max_position_embeddings"] = 32;
    CHECK(rope_of(config).scaling.original_positions == 16.0);
    config[key] = {{"rope_type", "yarn"}};
    CHECK(rope_of(config).scaling.original_positions == 16.0);
    CHECK(rope_of(config).scaling.factor == 4.0);
  }
}

TEST_CASE("the RoPE of layers with another one has the positions in pretraining of its scaling",
          "[formats]") {
  ModelSpec spec;
  spec.head_dim = 8;
  spec.max_positions = 64;
  Json scaled{{"rope_type", "yarn"}, {"factor", 4.0}};
  const Json config{
      {"rope_parameters", {{"full_attention", scaled}, {"sliding_attention", scaled}}},
      {"original_max_position_embeddings", 16}};
  read_rope_of_windows(spec, ConfigReader(config, "config.json"), {}, {});
  CHECK(spec.rope.scaling.original_positions == 64.0);
}

TEST_CASE("LongRoPE uses the long factors in sequences longer than those of the pretraining",
          "[formats]") {
  RopeSpec rope = rope_of(Json::object());
  const std::vector<double> plain = rope_frequencies(rope);
  rope.scaling = longrope_with(Json::object());
  for (std::size_t i = 0; i < plain.size(); ++i) {
    CHECK(rope_frequencies(rope, 16)[i] == plain[i] / static_cast<double>(i + 1));
    CHECK(rope_frequencies(rope, 17)[i] == plain[i] / static_cast<double>(2 * (i + 1)));
  }
}

TEST_CASE("LongRoPE without a positive factor for each pair is refused", "[formats]") {
  const auto refusal = [](const Json& changes) {
    return refusal_of([&] { longrope_with(changes); });
  };
  CHECK_THAT(refusal({{"long_factor", {1.0, 2.0}}}),
             is_bad_input("config.json", "long_factor", "4"));
  CHECK_THAT(refusal({{"short_factor", {1.0, 2.0, 0.0, 1.0}}}), is_bad_input("short_factor"));
  CHECK_THAT(refusal({{"short_factor", "none"}}), is_bad_input("short_factor", "one per rotating"));
  CHECK_THAT(refusal({{"short_factor", nullptr}}), is_bad_input("short_factor"));
  CHECK_THAT(refusal({{"original_max_position_embeddings", 1}}),
             is_bad_input("original_max_position_embeddings is 1"));
}

}  // namespace
}  // namespace regroup
