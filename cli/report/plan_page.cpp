#include "cli/report/plan_page.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "cli/report/model_page.h"
#include "cli/report/page.h"
#include "cli/shell/text.h"

namespace regroup {
namespace {

// Powers of two that cover the requested contexts, so that curves have enough points.
std::vector<std::uint64_t> contexts_of(const ServingPlan& plan) {
  const auto [least, most] = std::minmax_element(plan.contexts.begin(), plan.contexts.end());
  std::vector<std::uint64_t> contexts;
  for (std::uint64_t tokens = 1024; tokens < 2 * std::max<std::uint64_t>(*most, 16 * 1024);
       tokens *= 2) {
    contexts.push_back(tokens);
  }
  if (*least < 1024) {
    contexts.insert(contexts.begin(), *least);
  }
  return contexts;
}

// One curve for each number of kv heads.
std::vector<Series> curves_of(
    const ServingPlan& plan,
    const std::function<double(const ServingCost&, std::uint64_t)>& value) {
  std::vector<Series> curves;
  for (const ServingCost& cost : plan.costs) {
    Series curve{heads_text(cost), {}, Series::Mark::kLineAndDots};
    for (const std::uint64_t context : contexts_of(plan)) {
      curve.points.push_back({static_cast<double>(context), value(cost, context)});
    }
    curves.push_back(std::move(curve));
  }
  return curves;
}

Chart cache_chart(const ServingPlan& plan) {
  return {.id = "cache",
          .title = "KV cache by context",
          .description =
              fmt::format("Memory for keys and values of {} in {}; a line for each number of kv "
                          "heads.",
                          text_of_sequences(plan.batch), name_of(plan.cache_dtype)),
          .x = tokens_axis("tokens of each sequence"),
          .y = memory_axis("KV cache"),
          .series = curves_of(plan,
                              [&](const ServingCost& cost, std::uint64_t context) {
                                return static_cast<double>(plan.batch * cost.cache.at(context));
                              }),
          .key = Chart::Key::kEndLabels,
          .ordered = true};
}

Chart memory_chart(const ServingPlan& plan) {
  return {.id = "memory",
          .title = "Weights and cache by context",
          .description = fmt::format("Weights plus the cache of {}, and the available memory.",
                                     text_of_sequences(plan.batch)),
          .x = tokens_axis("tokens of each sequence"),
          .y = memory_axis("weights and cache"),
          .series = curves_of(plan,
                              [&](const ServingCost& cost, std::uint64_t context) {
                                return static_cast<double>(cost.memory(context, plan.batch));
                              }),
          .thresholds = {{static_cast<double>(*plan.vram), text_of_bytes(*plan.vram)}},
          .key = Chart::Key::kEndLabels,
          .ordered = true};
}

Chart speed_chart(const ServingPlan& plan) {
  return {
      .id = "speed",
      .title = "Tokens per second at most",
      .description = fmt::format("Of {} together, if the only limit is memory bandwidth of {}.",
                                 text_of_sequences(plan.batch), text_of_bandwidth(*plan.bandwidth)),
      .x = tokens_axis("tokens of each sequence"),
      .y = {.title = "tokens per second", .scale = Axis::Scale::kLog2},
      .series = curves_of(plan,
                          [&](const ServingCost& cost, std::uint64_t context) {
                            return static_cast<double>(plan.batch) *
                                   static_cast<double>(*plan.bandwidth) /
                                   static_cast<double>(cost.bytes_per_step(context, plan.batch));
                          }),
      .key = Chart::Key::kEndLabels,
      .ordered = true};
}

Facts facts_of(const ServingPlan& plan) {
  const ModelSpec& spec = plan.costs.front().spec;
  const auto count = [](const std::optional<std::int64_t>& number) {
    return number ? with_thousands(static_cast<std::uint64_t>(*number)) + " tokens" : "";
  };
  return {{"model", fmt::format("{} ({})", plan.path, spec.architecture)},
          {"layers", std::to_string(spec.layer_count())},
          {"query heads", fmt::format("{}, head dimension {}", spec.query_heads, spec.head_dim)},
          {"kv heads", text_of_heads(spec.kv_heads)},
          {"made for", count(spec.max_positions)},
          {"window", count(spec.sliding_window)},
          {"memory", plan.vram ? text_of_bytes(*plan.vram) : ""},
          {"bandwidth", plan.bandwidth ? text_of_bandwidth(*plan.bandwidth) : ""}};
}

}  // namespace

std::string plan_page(const ServingPlan& plan) {
  Page page(plan.path, "regroup plan");
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
  page.begin_section("costs", "What fewer kv heads cost, estimated");
  page.add_paragraph(
      "Computed from the shapes of the tensors, not measured. Only weights and cache are counted, "
      "not the other memory and time that an engine needs.");
  std::vector<Chart> charts{cache_chart(plan)};
  if (plan.vram) {
    charts.push_back(memory_chart(plan));
  }
  if (plan.bandwidth) {
    charts.push_back(speed_chart(plan));
  }
  page.add_charts(charts);
  for (const PlanTable& table : plan_tables(plan)) {
    page.add_table(table.table, table.caption);
  }
  return page.text();
}

}  // namespace regroup
