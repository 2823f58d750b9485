// The record of a conversion as text.
#include "cli/report/conversion_facts.h"

#include <algorithm>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "formats/model/record_words.h"

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;
std::string fact(const ConversionRecord& record, const std::string& name) {
  const auto facts = conversion_facts(record, "LlamaForCausalLM");
  const auto found = std::find_if(facts.begin(), facts.end(),
                                  [&](const auto& each) { return each.first == name; });
  return found == facts.end() ? "" : found->second;
}

ConversionRecord record(const std::string& facts) { return ConversionRecord(Json::parse(facts)); }

ConversionRecord solved() {
  return record(R"({"version": "0.1.0", "source_kv_heads": 12, "kv_heads": [4,4,2],
                    "pool": "lowrank", "grouping": "similar",
                    "query_order": [[0,1,2],[2,0,1],[0,1,2]], "calibration_tokens": 8192,
                    "calibration": "4c1d", "source_fingerprint": "0f3a", "refit":
                    {"tokens":131072,"context":512,"steps":200,"tokens_per_step":1024}})");
}

TEST_CASE("a record's text names pooling and grouping and calibration and refit", "[cli]") {
  CHECK(fact(solved(), "kv heads") == "12 -> 4 in layers 0-1, 2 in layer 2");
  CHECK(fact(solved(), "pooling") == "lowrank");
  CHECK(fact(solved(), "grouping") == "similar, heads moved in 1 of 3 layers");
  CHECK(fact(solved(), "calibration") == "8,192 tokens (statistics 4c1d)");
  CHECK(fact(solved(), "refit") ==
        "200 steps of 1,024 tokens on each attention layer, on a text of 131,072 tokens");
  CHECK(fact(solved(), "source") == "fingerprint 0f3a");
  CHECK_THAT(conversion_text(solved()),
             ContainsSubstring("(lowrank, similar) by regroup 0.1.0\n") &&
                 ContainsSubstring("calibration 8,192 tokens") &&
                 ContainsSubstring("refit 200 steps"));
}

TEST_CASE("heads that differ are named by their layers or counted", "[cli]") {
  CHECK(text_of_heads({8, 8, 8}) == "8");
  CHECK(text_of_heads({8, 8}, "kv head") == "8 kv heads");
  CHECK(text_of_heads({1}, "kv head") == "1 kv head");
  CHECK(text_of_heads({8, 8, 4}, "kv head") == "8 kv heads in layers 0-1, 4 in layer 2");
  CHECK(text_of_heads({1, 3, 1, 3, 3}, "kv head") == "3 kv heads in 3 layers, 1 in 2 layers");
}

TEST_CASE("a record's text says if there was no calibration or refit", "[cli]") {
  const ConversionRecord mean = record(
      R"({"version": "0.1.0", "source_kv_heads": 12, "kv_heads": 4, "pool": "mean",
          "grouping": "contiguous", "query_order": null})");
  CHECK(fact(mean, "calibration") == "none");
  CHECK(fact(mean, "refit") == "none");
  CHECK(conversion_text(mean) ==
        "from 12 kv heads to 4 (mean, contiguous) by regroup 0.1.0\ncalibration none; refit none");
}

TEST_CASE("an expanded model is not described as pooled", "[cli]") {
  const ConversionRecord expanded = record(
      R"({"version": "0.1.0", "source_kv_heads": 4, "kv_heads": 4, "stored_kv_heads": 8,
          "pool": "mean", "grouping": "contiguous"})");
  CHECK(fact(expanded, "pooling").empty());
  CHECK(fact(expanded, "stored as") == "8 kv heads: some are stored several times");
  CHECK(conversion_text(expanded) == "4 kv heads, stored as 8, by regroup 0.1.0");
}

TEST_CASE("a malformed record is described as far as possible", "[cli]") {
  CHECK(conversion_facts({}, "").empty());
  CHECK(conversion_text(record(R"({"kv_heads": 4})")).empty());
  const ConversionRecord odd = record(
      R"({"pool": "\u001b[31m", "kv_heads": "{", "source_kv_heads": ["a"], "refit": [1],
          "calibration": "{", "query_order": {"a": 1}, "source_positions": 1, "uptrain": {},
          "history": [3, {}, {"left_out": "?"}], "layers": [1, {"key_energy_kept": "x"}],
          "held_out": {"models": [3]}, "distilled": {"before": []}})");
  CHECK(fact(odd, "earlier 1") == "written in another form, kv heads as before (not recorded)");
  CHECK_THAT(conversion_text(odd), !ContainsSubstring("\x1b"));
  CHECK(fact(odd, "refit") == "none");
  CHECK(fact(odd, "kv heads") == "not recorded -> not recorded");
}

TEST_CASE("a record's text has measurements and training and earlier steps and what is unknown",
          "[cli]") {
  const ConversionRecord all = record(R"({
      "pool": "lowrank", "source_kv_heads": 4, "kv_heads": 2, "source_architecture": "GPT2",
      "layers": [{"layer": 0, "key_energy_kept": 0.5, "value_energy_kept": 0.25},
                 {"layer": 1, "key_energy_kept": 0.7, "value_energy_kept": 0.75}],
      "held_out": {"tokens": 64, "models": [{"model": "source", "loss": 3.0},
                                            {"model": "result", "loss": 3.5}]},
      "distilled": {"measure": "kl_divergence", "before": 0.9, "after": 0.3, "kept": true},
      "checksums": {"a": "0123456789abcdef"}, "later": {"x": 1},
      "uptrain": {"steps": 3, "tokens": 192, "eval_loss_before": 4, "eval_loss": 3.25},
      "history": [{"left_out": 2}, {"uptrain": {"steps": 7, "tokens": 70}},
                  {"source_kv_heads": 8, "kv_heads": 4, "pool": "lowrank", "grouping": "similar"},
                  {"source_kv_heads": 4, "kv_heads": 2, "pool": "lowrank"}]})");
  CHECK(fact(all, "architecture") == "GPT2 -> LlamaForCausalLM");
  CHECK(fact(all, "kept") ==
        "60.0 % of the energy (sum of squares) of keys, 50.0 % of values, mean of pooled layers; "
        "layer 0 keeps least of both together: 50.0 %, 25.0 %");
  CHECK(fact(all, "held out") ==
        "source 3.0000, converted 3.5000 nats per token on 64 tokens, before the training");
  CHECK(fact(all, "distilled") ==
        "divergence from the source 0.9000 -> 0.3000 nats per token on the windows that judged it");
  CHECK(fact(all, "checksums") == "of 1 tensors");
  CHECK(fact(all, "training") ==
        "trained in 3 steps on 192 tokens, held-out loss 4.0000 to 3.2500");
  CHECK(fact(all, "earlier 1") == "2 older steps");
  CHECK(fact(all, "earlier 2") == "trained in 7 steps on 70 tokens");
  CHECK(fact(all, "earlier 3") == "converted from 8 kv heads to 4 (lowrank, similar)");
  CHECK(fact(all, "earlier 4").empty());  // the conversion of this record itself
  CHECK(fact(all, "later") == R"({"x":1})");
}

}  // namespace
}  // namespace regroup
