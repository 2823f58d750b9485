#include "cli/report/pages.h"

#include <algorithm>
#include <functional>

#include "cli/shell/text.h"
#include "formats/model/record_words.h"

namespace regroup {
namespace {

std::string verdict(std::uint64_t differing) {
  return differing == 0 ? "passed" : with_thousands(differing) + " differ";
}

// One row for each kind of check: what was compared, with what, and the outcome.
Table checks_table(const Verification& found) {
  Table table;
  table.add_texts({"what"});
  table.add_numbers({"how many"});
  table.add_texts({"compared with", "verdict"});
  table.add_row({"copied tensors", with_thousands(found.copied), "the source's, byte for byte",
                 verdict(found.copied_differing)});
  table.add_row({"pooled or moved tensors", with_thousands(found.computed),
                 "those computed again, byte for byte", verdict(found.computed_differing)});
  if (!found.trained.empty()) {
    table.add_row({"trained, or solved on a GPU", with_thousands(found.trained.size()),
                   "the checksums in the result's record, not the source",
                   verdict(found.trained_differing)});
  }
  const std::uint64_t unexpected = found.tensors.size() - found.copied_differing -
                                   found.computed_differing - found.trained_differing;
  if (unexpected > 0) {
    table.add_row({"tensors that do not belong there", with_thousands(unexpected), "-", "differ"});
  }
  table.add_row({"config, metadata, slopes", "-", "what the conversion writes",
                 verdict(found.settings.size())});
  return table;
}

void add_verdict(Page& page, const VerifyPage& facts) {
  const Verification& found = *facts.found;
  page.begin_section("verdict", "Verdict");
  page.add_verdict(found.passed(),
                   found.passed()
                       ? found.trained.empty()
                             ? "Passed: the result is what its recorded conversion makes of the "
                               "source."
                             : fmt::format("Passed: the result is as it was written; {} tensors "
                                           "were not computed again from the source.",
                                           with_thousands(found.trained.size()))
                       : fmt::format("Not what its recorded conversion makes of the source: {}.",
                                     text_of_counts(found.tensors, found.settings)));
  page.add_facts({{"source", facts.source},
                  {"result", facts.result},
                  {"compared", text_of_bytes(found.bytes)}});
  page.add_table(checks_table(found), "What was checked");
  for (const std::string& remark : found.remarks) {
    page.add_paragraph("Note: " + remark);
  }
}

void add_tensors(Page& page, const std::vector<TensorDifference>& tensors,
                 const std::string& caption) {
  for (const Table& table : differences_tables(tensors)) {
    page.add_table(table, caption + (table.columns().back().heading == "cosine"
                                         ? "; largest and mean are of the absolute difference"
                                         : ""));
  }
}

void add_differences(Page& page, const Verification& found) {
  if (found.passed()) {
    return;
  }
  page.begin_section("differences", "Differences");
  add_tensors(page, found.tensors, "Tensors: before, as they should be");
  if (!found.settings.empty()) {
    page.add_table(settings_table(found.settings, 0),
                   "Settings: before, as they should be; after, as they are");
  }
}

void add_logits(Page& page, const LogitsResult& logits) {
  page.begin_section("logits", "Predictions");
  page.add_paragraph(
      "Both models were run on the same tokens. Fewer kv heads change what a model predicts: these "
      "numbers say by how much and are not part of the verdict.");
  page.add_facts(logits_facts(logits));
}

// Powers of two that cover the requested contexts, so that curves have enough points.
std::vector<std::uint64_t> contexts_of(const ServingPlan& plan) {
  const auto [least, most] = std::minmax_element(plan.contexts.begin(), plan.contexts.end());
  std::vector<std::uint64_t> contexts;
  for (std::uint64_t tokens = 1024; tokens < 2 * *most; tokens *= 2) {
    contexts.push_back(tokens);
  }
  if (*least < 1024) {
    contexts.insert(contexts.begin(), *least);
  }
  return contexts;
}

// `chart` with a curve for each number of kv heads, over the tokens of a sequence.
Chart with_curves(Chart chart, const ServingPlan& plan,
                  const std::function<double(const ServingCost&, std::uint64_t)>& value) {
  chart.x = tokens_axis("tokens of each sequence");
  chart.key = Chart::Key::kEndLabels;
  chart.ordered = true;
  chart.series = mapped(plan.costs, [&](const ServingCost& cost) -> Series {
    const auto point_at = [&](std::uint64_t context) -> ChartPoint {
      return {static_cast<double>(context), value(cost, context)};
    };
    return {heads_text(cost), mapped(contexts_of(plan), point_at), Series::Mark::kLineAndDots};
  });
  return chart;
}

std::vector<Chart> charts_of(const ServingPlan& plan) {
  const std::string sequences = text_of_sequences(plan.batch);
  const auto batch = static_cast<double>(plan.batch);
  std::vector<Chart> charts{with_curves(
      {.id = "cache",
       .title = "KV cache by context",
       .description = fmt::format("Memory for keys and values of {} in {}; a line for each number "
                                  "of kv heads.",
                                  sequences, name_of(plan.cache_dtype)),
       .y = memory_axis("KV cache")},
      plan, [&](const ServingCost& cost, std::uint64_t context) {
        return static_cast<double>(plan.batch * cost.cache.at(context));
      })};
  if (plan.vram) {
    charts.push_back(with_curves(
        {.id = "memory",
         .title = "Weights and cache by context",
         .description =
             fmt::format("Weights plus the cache of {}, and the available memory.", sequences),
         .y = memory_axis("weights and cache"),
         .thresholds = {{static_cast<double>(*plan.vram), text_of_bytes(*plan.vram)}}},
        plan, [&](const ServingCost& cost, std::uint64_t context) {
          return static_cast<double>(cost.memory(context, plan.batch));
        }));
  }
  if (plan.bandwidth) {
    charts.push_back(with_curves(
        {.id = "speed",
         .title = "Tokens per second at most",
         .description = fmt::format("Of {} together, if the only limit is memory bandwidth of {}.",
                                    sequences, text_of_bandwidth(*plan.bandwidth)),
         .y = {.title = "tokens per second", .scale = Axis::Scale::kLog2}},
        plan, [&](const ServingCost& cost, std::uint64_t context) {
          return batch * static_cast<double>(*plan.bandwidth) /
                 static_cast<double>(cost.bytes_per_step(context, plan.batch));
        }));
  }
  return charts;
}

Facts facts_of(const ServingPlan& plan) {
  const ModelSpec& spec = plan.costs.front().spec;
  const auto count = [](const std::optional<std::int64_t>& number) {
    return number ? with_thousands(*number) + " tokens" : "";
  };
  return {{"model", fmt::format("{} ({})", plan.path, spec.architecture)},
          {"layers", std::to_string(spec.layer_count())},
          {"query heads", fmt::format("{}, head dimension {}", spec.query_heads, spec.head_dim)},
          {"kv heads", text_of_heads(spec.kv_heads)},
          {"made for", text_of_positions(plan)},
          {"window", count(spec.sliding_window)},
          {"memory", plan.vram ? text_of_bytes(*plan.vram) : ""},
          {"bandwidth", plan.bandwidth ? text_of_bandwidth(*plan.bandwidth) : ""}};
}

}  // namespace

std::string diff_page(const std::string& before, const std::string& after,
                      const std::vector<TensorDifference>& tensors,
                      const std::vector<JsonDifference>& settings) {
  const bool alike = title_of(before) == title_of(after);
  Page page(alike ? fmt::format("{} and {}", before, after)
                  : fmt::format("{} and {}", title_of(before), title_of(after)),
            "regroup diff");
  const bool same = tensors.empty() && settings.empty();
  page.begin_section("summary", "Summary");
  page.add_verdict(same, same ? "No difference."
                              : fmt::format("They differ: {}.", text_of_counts(tensors, settings)));
  page.add_facts({{"before", before}, {"after", after}});
  if (!tensors.empty()) {
    page.begin_section("tensors", "Tensors");
    add_tensors(page, tensors, "Tensors that differ");
  }
  if (!settings.empty()) {
    page.begin_section("settings", "Settings");
    page.add_table(settings_table(settings, 0), "Settings that differ");
  }
  return page.text();
}

std::string verify_page(const VerifyPage& facts) {
  Page page(title_of(facts.result), "regroup verify");
  if (facts.found != nullptr) {
    add_verdict(page, facts);
    page.add_warnings(model_warnings(facts.model.summary));
    add_differences(page, *facts.found);
  }
  if (facts.logits) {
    add_logits(page, *facts.logits);
  }
  add_model(page, facts.model);
  return page.text();
}

std::string plan_page(const ServingPlan& plan) {
  Page page(title_of(plan.path), "regroup plan");
  page.begin_section("summary", "Summary");
  page.add_facts(facts_of(plan));
  if (plan.chosen) {
    const PlanChoice choice = choice_of(plan);
    page.add_paragraph(choice.text + (choice.command.empty() ? ": no conversion is needed." : ":"));
    if (!choice.command.empty()) {
      page.add_command(choice.command);
      page.add_paragraph(choice.advice);
    }
  }
  page.begin_section("costs", "What fewer kv heads save, estimated");
  page.add_paragraph(
      "Computed from the shapes of the tensors, not measured. Only weights and cache are counted, "
      "not the other memory and time that an engine needs.");
  page.add_charts(charts_of(plan));
  for (const PlanTable& table : plan_tables(plan)) {
    page.add_table(table.table, table.caption);
  }
  return page.text();
}

}  // namespace regroup
