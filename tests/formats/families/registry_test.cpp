// Which family a config.json belongs to, and the names of models that were given ALiBi.
#include <catch2/catch_test_macros.hpp>

#include "formats/families/family.h"
#include "formats/model/model_directory.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

constexpr std::string_view kAlibiLlama = R"("regroup_alibi_llama")";
constexpr std::string_view kAlibiLlamas = R"(["RegroupAlibiLlamaForCausalLM"])";

Json renamed(const char* config) { return Json::parse(with_alibi_names(config)); }

TEST_CASE("model_type decides if no architecture is named", "[formats]") {
  for (const char* value : {"null", "[]", "[7]", "\"GPT2LMHeadModel\"", "{}"}) {
    CAPTURE(value);
    const ModelSpec spec = spec_of(tiny_llama().set("architectures", value));
    CHECK(spec.family == "llama");
    CHECK(spec.architecture == "LlamaForCausalLM");
  }
}

TEST_CASE("names follow the table of families and unknown names have no family", "[formats]") {
  CHECK(architecture_of_model_type("mistral") == "MistralForCausalLM");
  CHECK(architecture_of_model_type("rwkv").empty());
  CHECK(family_of_architecture("MistralForCausalLM") == "llama");
  CHECK(family_of_architecture("RwkvForCausalLM") == "unknown");
}

TEST_CASE("renaming a config for ALiBi sets each name once and always sets model_type",
          "[formats]") {
  const Json both =
      renamed(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "x": 1})");
  CHECK(both == Json({{"model_type", "regroup_alibi_llama"},
                      {"architectures", {"RegroupAlibiLlamaForCausalLM"}},
                      {"x", 1}}));
  CHECK(renamed(R"({"model_type": "llama"})") == Json({{"model_type", "regroup_alibi_llama"}}));
  // Without a model_type transformers guesses one from the directory's name.
  CHECK(renamed(R"({"architectures": ["LlamaForCausalLM"]})") ==
        Json({{"architectures", Json::array({"RegroupAlibiLlamaForCausalLM"})},
              {"model_type", "regroup_alibi_llama"}}));
  CHECK(renamed(R"({"n": 1})") == Json({{"n", 1}, {"model_type", "regroup_alibi_custom"}}));
  CHECK(renamed(both.dump().c_str()) == both);
  for (const char* config : {R"({"model_type": "llama"})", R"({"model_type": 7})", "{}"}) {
    CHECK_FALSE(has_alibi_names(Json::parse(config)));
  }
  CHECK(has_alibi_names(both));
  CHECK(has_alibi_names(Json({{"architectures", both["architectures"]}})));
}

TEST_CASE("renaming a config for ALiBi removes auto_map entries", "[formats]") {
  CHECK(renamed(R"({"model_type": "mpt", "auto_map": {"AutoConfig": "c.C"}})") ==
        Json({{"model_type", "regroup_alibi_mpt"}, {"auto_map", Json::object()}}));
}

TEST_CASE("either of the ALiBi names makes a Llama an ALiBi model", "[formats]") {
  TinyModel by_type = tiny_llama().set("model_type", kAlibiLlama);
  TinyModel by_architecture = tiny_llama().set("architectures", kAlibiLlamas);
  TinyModel by_both = by_type;
  by_both.set("architectures", kAlibiLlamas);
  TinyModel alone = by_architecture;
  alone.set("model_type", "null");
  for (const TinyModel& model : {by_type, by_architecture, by_both, alone}) {
    CAPTURE(model.config);
    const ModelSpec spec = spec_of(model);
    CHECK(spec.family == "llama");
    CHECK(spec.architecture == "LlamaForCausalLM");
    CHECK((spec.positions == PositionKind::kAlibi));
    // No stock loader knows the name, so none reads the number of kv heads.
    CHECK_FALSE(spec.loaders_read_kv_heads);
  }
  CHECK((spec_of(tiny_llama()).positions == PositionKind::kRope));
}

TEST_CASE("an empty list of recorded slopes is refused", "[formats]") {
  const ModelSpec spec = spec_of(tiny_bloom().set("regroup", R"({"alibi": {"slopes": []}})"));
  CHECK_THAT(refusal_of([&] { alibi_slopes_per_layer(spec); }),
             is_bad_input("0 recorded ALiBi slopes", "12 query heads"));
}

}  // namespace
}  // namespace regroup
