#include "cli/report/plan_report.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>

#include "cli/shell/quantity.h"
#include "cli/shell/text.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/model/record_words.h"
#include "formats/spec/config_writers.h"

namespace regroup {
namespace {

// "4k", "1000".
std::string tokens(std::uint64_t count) {
  return count % 1024 == 0 ? fmt::format("{}k", count / 1024) : std::to_string(count);
}

// One row per cost: its kv heads, the values of `facts` under the headings `first`, and one `cell`
// per context.
Table table_of(const ServingPlan& plan, const std::vector<std::string>& first,
               const std::function<std::vector<std::string>(const ServingCost&)>& facts,
               const std::function<std::string(const ServingCost&, std::uint64_t)>& cell) {
  Table table;
  table.add_numbers({"kv heads"});
  table.add_numbers(first);
  table.add_numbers(mapped(plan.contexts, tokens));
  for (const ServingCost& cost : plan.costs) {
    std::vector<std::string> row{heads_text(cost)};
    append(row, facts(cost));
    append(row, mapped(plan.contexts, [&](std::uint64_t context) { return cell(cost, context); }));
    table.add_row(std::move(row));
  }
  return table;
}

std::string heading(const ServingPlan& plan) {
  const ModelSpec& spec = plan.costs.front().spec;
  std::string text = fmt::format("{} ({}): {} layers, {} query heads, head dimension {}",
                                 printable(plan.path, 0), printable(spec.architecture),
                                 spec.layer_count(), spec.query_heads, spec.head_dim);
  if (spec.max_positions) {
    text += fmt::format("\nmade for {}", text_of_positions(plan));
  }
  if (spec.sliding_window) {
    text += fmt::format("{}a sliding window of {} tokens{}, which limits the cache",
                        spec.max_positions ? ", " : "\n", with_thousands(*spec.sliding_window),
                        spec.windows_differ() ? " in some layers" : "");
  }
  return text;
}

PlanTable cache_table(const ServingPlan& plan) {
  const bool cross = plan.costs.front().spec.has_encoder();
  std::vector<std::string> first{"weights", "per token"};
  if (cross) {
    first.emplace_back("cross");
  }
  return {fmt::format("KV cache of {} in {}, by tokens each{}", text_of_sequences(plan.batch),
                      name_of(plan.cache_dtype), cross ? " of the text and of the source" : ""),
          table_of(
              plan, first,
              [&](const ServingCost& cost) {
                std::vector<std::string> row{text_of_bytes(cost.weight_bytes),
                                             text_of_bytes(cost.cache.per_token())};
                if (cross) {
                  row.push_back(text_of_bytes(cost.cache.cross_per_token()));
                }
                return row;
              },
              [&](const ServingCost& cost, std::uint64_t context) {
                return text_of_bytes(plan.batch * cost.cache.at(context));
              })};
}

PlanTable batch_table(const ServingPlan& plan) {
  return {fmt::format("Sequences that fit in {} together with the weights, by tokens each",
                      text_of_bytes(*plan.vram)),
          table_of(
              plan, {fmt::format("most tokens for {}", with_thousands(plan.batch))},
              [&](const ServingCost& cost) {
                const auto fits = cost.largest_context(*plan.vram, plan.batch);
                const auto& made = cost.spec.max_positions;
                const auto most = made ? std::optional<std::uint64_t>(*made) : std::nullopt;
                const auto longest = fits && most ? std::min(*fits, *most) : fits ? fits : most;
                return std::vector{longest ? with_thousands(*longest) : std::string("any")};
              },
              [&](const ServingCost& cost, std::uint64_t context) {
                return with_thousands(cost.largest_batch(*plan.vram, context));
              })};
}

double step_seconds(const ServingPlan& plan, const ServingCost& cost, std::uint64_t context) {
  return static_cast<double>(cost.bytes_per_step(context, plan.batch)) /
         static_cast<double>(*plan.bandwidth);
}

PlanTable step_table(const ServingPlan& plan) {
  return {fmt::format("Milliseconds to read weights and cache once at {}, {}",
                      text_of_bandwidth(*plan.bandwidth), text_of_sequences(plan.batch)),
          table_of(
              plan, {"weights"},
              [&](const ServingCost& cost) {
                return std::vector{fmt::format("{:.3g}", 1e3 * step_seconds(plan, cost, 0))};
              },
              [&](const ServingCost& cost, std::uint64_t context) {
                return fmt::format("{:.3g}", 1e3 * step_seconds(plan, cost, context));
              })};
}

// A name for the result: "Llama-2-7b-gqa8" or, for a GGUF file, "x-mqa.gguf", next to the source.
// For a model from the hub it is in the current directory.
std::string destination_of(const std::string& source, std::int64_t kv_heads) {
  namespace fs = std::filesystem;
  const std::string suffix = kv_heads == 1 ? "-mqa" : fmt::format("-gqa{}", kv_heads);
  std::error_code fault;
  const bool local = fs::exists(source, fault);
  fs::path path =
      local ? fs::path(source) : fs::path(source.substr(0, source.find('@'))).filename();
  if (!path.has_filename()) {
    path = path.parent_path();
  }
  const bool gguf = local && fs::is_regular_file(path, fault) && names_gguf_file(path);
  const std::string extension = gguf ? path.extension().string() : "";
  return path.replace_extension(gguf ? fs::path() : path.extension()).string() + suffix + extension;
}

// Whether `convert --text` can use a text for this model.
bool takes_text(const ServingPlan& plan) {
  const ModelSpec& spec = plan.costs.front().spec;
  return spec.not_computable.empty() && !spec.attention_only();
}

std::string command_for(const ServingPlan& plan, std::int64_t kv_heads) {
  return printable(fmt::format("regroup convert {} {} --kv-heads {}{}", shell_quoted(plan.source),
                               shell_quoted(destination_of(plan.source, kv_heads)), kv_heads,
                               takes_text(plan) ? " --text TEXT" : ""),
                   0);
}

// The largest --kv-budget, in percent, whose cache fits beside the source's weights. None if it is
// less than a fifth larger than the chosen kv heads' cache, or if the cache has windows or
// cross-attention, for which bytes per token do not tell its size.
std::optional<std::uint64_t> larger_budget(const ServingPlan& plan) {
  const ServingCost &now = plan.costs.front(), &chosen = plan.costs[*plan.chosen];
  if (!chosen.kv_heads || !takes_text(plan) || now.cache.window || !now.cache.cross.empty() ||
      now.weight_bytes >= *plan.vram) {
    return std::nullopt;
  }
  const std::uint64_t whole = plan.batch * now.cache.at(plan.contexts.front());
  const std::uint64_t least = plan.batch * chosen.cache.at(plan.contexts.front());
  const auto share = static_cast<std::uint64_t>(
      100.0 * static_cast<double>(*plan.vram - now.weight_bytes) / static_cast<double>(whole));
  const bool more = static_cast<double>(share) / 100.0 * static_cast<double>(whole) >=
                    1.2 * static_cast<double>(least);
  return more && share < 100 ? std::optional(share) : std::nullopt;
}

std::string needs_of(const ServingPlan& plan, const ServingCost& cost) {
  const std::uint64_t context = plan.contexts.front();
  return fmt::format("{} of weights + {} of cache = {}", text_of_bytes(cost.weight_bytes),
                     text_of_bytes(plan.batch * cost.cache.at(context)),
                     text_of_bytes(cost.memory(context, plan.batch)));
}

Json cost_json(const ServingPlan& plan, const ServingCost& cost) {
  Json report = {{"kv_heads", Json::parse(kv_heads_json(cost.spec))},
                 {"convert_to", or_null(cost.kv_heads)},
                 {"weight_bytes", cost.weight_bytes},
                 {"weight_bytes_per_step", cost.step_weight_bytes},
                 {"kv_bytes_per_token", cost.cache.per_token()},
                 {"cross_kv_bytes_per_token", cost.cache.cross_per_token()}};
  if (plan.vram) {
    report["largest_context"] = or_null(cost.largest_context(*plan.vram, plan.batch));
  }
  report["contexts"] = json_list(plan.contexts, [&](std::uint64_t context) {
    Json at = {{"context", context}, {"cache_bytes", plan.batch * cost.cache.at(context)}};
    if (plan.vram) {
      at["largest_batch"] = cost.largest_batch(*plan.vram, context);
    }
    if (plan.bandwidth) {
      const double seconds = step_seconds(plan, cost, context);
      at["seconds_per_step"] = seconds;
      at["tokens_per_second"] = static_cast<double>(plan.batch) / seconds;
    }
    return at;
  });
  return report;
}

Json plan_json(const ServingPlan& plan) {
  const ModelSpec& spec = plan.costs.front().spec;
  Json report = {{"model", plan.path},
                 {"architecture", spec.architecture},
                 {"layers", spec.layer_count()},
                 {"query_heads", spec.query_heads},
                 {"head_dim", spec.head_dim},
                 {"max_positions", or_null(spec.max_positions)},
                 {"sliding_window", or_null(spec.sliding_window)},
                 {"cache_dtype", name_of(plan.cache_dtype)},
                 {"batch", plan.batch},
                 {"vram", or_null(plan.vram)},
                 {"bandwidth", or_null(plan.bandwidth)},
                 {"costs", json_list(plan.costs, [&](const ServingCost& cost) {
                    return cost_json(plan, cost);
                  })}};
  if (plan.chosen) {
    const ServingCost& cost = plan.costs[*plan.chosen];
    report["choice"] = {
        {"convert_to", or_null(cost.kv_heads)},
        {"memory", cost.memory(plan.contexts.front(), plan.batch)},
        {"command", cost.kv_heads ? Json(command_for(plan, *cost.kv_heads)) : Json(nullptr)},
        {"kv_budget_percent", or_null(larger_budget(plan))}};
  }
  return report;
}

}  // namespace

std::string text_of_positions(const ServingPlan& plan) {
  const auto& made = plan.costs.front().spec.max_positions;
  if (!made) {
    return "";
  }
  const bool beyond = std::ranges::max(plan.contexts) > static_cast<std::uint64_t>(*made);
  return fmt::format("{} positions{}", with_thousands(*made),
                     beyond ? "; longer contexts are beyond them" : "");
}

std::string heads_text(const ServingCost& cost) {
  return cost.kv_heads ? std::to_string(*cost.kv_heads)
                       : fmt::format("{} (now)", range_of_heads(cost.spec.kv_heads));
}

std::vector<PlanTable> plan_tables(const ServingPlan& plan) {
  std::vector<PlanTable> tables{cache_table(plan)};
  if (plan.vram) {
    tables.push_back(batch_table(plan));
  }
  if (plan.bandwidth) {
    tables.push_back(step_table(plan));
  }
  return tables;
}

PlanChoice choice_of(const ServingPlan& plan) {
  const ServingCost& cost = plan.costs[*plan.chosen];
  const std::optional<std::uint64_t> budget = larger_budget(plan);
  const std::string what = !cost.kv_heads        ? std::string("The model fits as it is")
                           : *cost.kv_heads == 1 ? std::string("1 kv head fits")
                                                 : fmt::format("{} kv heads fit", *cost.kv_heads);
  return {fmt::format("{} in {} ({})", what, text_of_bytes(*plan.vram), needs_of(plan, cost)),
          cost.kv_heads ? command_for(plan, *cost.kv_heads) : "",
          fmt::format("{}{}{}",
                      takes_text(plan)
                          ? "TEXT is a file of a few megabytes of what the model will read."
                          : "The result is the mean of heads, to be uptrained before use.",
                      budget ? fmt::format(" --kv-budget {}% in place of --kv-heads keeps more: "
                                           "layers differ in heads, which fewer programs load.",
                                           *budget)
                             : "",
                      plan.weights ? "" : " Put the weights beside config.json first.")};
}

std::string text_of_bandwidth(std::uint64_t bytes) {
  constexpr std::array kUnits{"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
  auto number = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; number >= 1000 && unit + 1 < kUnits.size(); ++unit) {
    number /= 1000;
  }
  return fmt::format("{:.3g} {}", number, kUnits[unit]);
}

std::string text_of_sequences(std::uint64_t count) {
  return count == 1 ? "1 sequence" : fmt::format("{} sequences", with_thousands(count));
}

std::string text_of_shortage(const ServingPlan& plan) {
  const ServingCost& fewest = plan.costs.back();
  return fmt::format("{} of {} tokens do not fit in {} even with {}: {}",
                     text_of_sequences(plan.batch), with_thousands(plan.contexts.front()),
                     text_of_bytes(*plan.vram), text_of_heads(fewest.spec.kv_heads, "kv head"),
                     needs_of(plan, fewest));
}

void print_plan(const ServingPlan& plan, bool json, const Console& console) {
  if (json) {
    console.print(text_of_json(plan_json(plan)));
    return;
  }
  std::string text = heading(plan);
  for (const PlanTable& table : plan_tables(plan)) {
    text += fmt::format("\n\n{}\n{}", table.caption, table.table.text(console));
  }
  if (plan.chosen) {
    const PlanChoice choice = choice_of(plan);
    console.print_facts(
        text + "\n\n" + choice.text + (choice.command.empty() ? ": no conversion is needed" : ":"),
        0);
    if (!choice.command.empty()) {
      console.print("  " + choice.command);  // not wrapped, so that it can be copied
      console.print_facts(choice.advice, 0);
    }
  } else {
    console.print_facts(text, 0);
    if (!plan.chooses) {
      console.note("--vram, one --context and a --batch choose kv heads and print the command");
    }
  }
  const ModelSpec& spec = plan.costs.front().spec;
  if (!spec.not_computable.empty() && !spec.loaders_compute) {
    console.note(fmt::format("note: {}: the cache may be smaller than this", spec.not_computable));
  }
}

}  // namespace regroup
