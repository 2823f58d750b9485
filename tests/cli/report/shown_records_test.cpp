// What inspect says of every kind of record. tests/golden/records/shown.txt has it for the records
// in written.txt.
#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include "cli/report/conversion_facts.h"
#include "tests/file_tree.h"

namespace regroup {
namespace {

std::string shown(const std::string& name, const Json& config) {
  const ConversionRecord record = ConversionRecord::in_config(config);
  std::string text = fmt::format("==== {}\n{}\n", name, conversion_text(record));
  for (const auto& [key, value] : conversion_facts(record, "TheArchitecture")) {
    text += fmt::format("{}: {}\n", key, value);
  }
  return text;
}

// What only the commands that compute write.
constexpr const char* kComputed = R"({"regroup": {
    "version": "0.1.0", "source_kv_heads": 12, "kv_heads": 4, "pool": "mean", "grouping": "contiguous",
    "distill": {"tokens":65536,"context":256,"batch":4,"steps":32},
    "distilled": {"learning_rate":0.01,"relative_learning_rate":0.03,"attention_weight":0.5,
                  "measure":"kl_divergence","before":0.9,"after":0.3,"kept":true},
    "held_out": {"tokens":8192,"context":256,"models":[{"model":"source","loss":3.05,"cosine":1.0},
                 {"model":"mean","loss":10.5,"cosine":0.25},{"model":"result","loss":3.6,"cosine":0.9}]},
    "history": [{"left_out": 2}, {"uptrain": {"version": "0.1.0", "steps": 7, "tokens": 70}},
                {"version": "0.1.0", "source_kv_heads": 12, "kv_heads": 4, "pool": "mean",
                 "grouping": "similar", "refit": {"steps": 2}, "distilled": {"kept": true}}],
    "later": {"x": 1},
    "uptrain": {"version": "0.1.0", "steps": 3, "tokens": 192, "skipped_steps": 0,
                "sequence_length": 32, "eval_loss_before": 6.25, "eval_loss": 6.125, "eval_tokens": 5984}}})";

std::string all_shown() {
  const std::string written = bytes_of_file(golden("records/written.txt"));
  std::string text;
  const std::string mark = "==== ";
  for (std::size_t at = 0; (at = written.find(mark, at)) != written.npos;) {
    const std::size_t name = at + mark.size(), line = written.find('\n', name);
    const std::size_t end = std::min(written.find(mark, line), written.size());
    const std::string_view section = std::string_view(written).substr(line + 1, end - line - 1);
    at = end;
    if (section.starts_with("  \"regroup\"")) {
      const std::string block = "{" + std::string(section.substr(0, section.find("\n}\n") + 3));
      text += shown(written.substr(name, line - name), Json::parse(block));
    }
  }
  return text + shown("computed", Json::parse(kComputed));
}

}  // namespace

TEST_CASE("inspect says of every kind of record what it always said", "[cli]") {
  const std::string text = all_shown();
  CHECK(text == bytes_of_file(golden("records/shown.txt")));
}

}  // namespace regroup
