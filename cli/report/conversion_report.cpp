#include "cli/report/conversion_report.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "cli/report/conversion_facts.h"
#include "cli/shell/quantity.h"
#include "cli/shell/text.h"
#include "formats/base/printable.h"
#include "formats/model/record_words.h"
#include "formats/spec/config_writers.h"

namespace regroup {
namespace {

std::size_t changed_tensors(const ConversionPlan& plan) {
  return static_cast<std::size_t>(
      std::ranges::count_if(plan.steps, std::not_fn(&TensorStep::unchanged)));
}

// Each layer as in its record, with its groups if they were measured over a text.
Json layers_json(const std::vector<LayerReport>& layers) {
  return json_list(layers, [](const LayerReport& layer) {
    Json measured = measurements_of(layer);
    if (layer.over_text) {
      measured["groups"] = json_list(layer.groups, [](const GroupReport& group) -> Json {
        return {{"key_energy_kept", group.key_energy},
                {"value_energy_kept", group.value_energy},
                {"key_norm_ratio", group.key_norm},
                {"value_norm_ratio", group.value_norm}};
      });
    }
    return measured;
  });
}

// Adds what only some conversions have.
void add_measurements(Json& report, const ConversionReport& done) {
  const ConversionPlan& plan = done.plan;
  if (plan.request.refiner) {
    report["refit"] = plan.request.refiner->recipe();
    report["refit"]["train_token_equivalents"] =
        plan.request.refiner->training_token_equivalents(plan.grouped);
  }
  if (!done.layers.empty()) {
    report["layers"] = layers_json(done.layers);
  }
  if (!done.groupings.empty() && plan.request.calibration) {
    report["groupings"] = groupings_json(done.groupings);
  }
  if (done.budget) {
    report["kv_budget"] = budget_json(*done.budget);
  }
  if (plan.cross_kv_bytes_per_token) {
    report["cross_kv_bytes_per_token_before"] = plan.cross_kv_bytes_per_token->before;
    report["cross_kv_bytes_per_token_after"] = plan.cross_kv_bytes_per_token->after;
  }
  if (done.distillation) {
    report["distill"] = *done.distillation;
  }
  if (done.held_out) {
    report["held_out"] = *done.held_out;
  }
  if (done.comparison) {
    report["largest_logit_difference"] = done.comparison->largest_difference;
    report["largest_logit"] = done.comparison->largest_output;
    if (done.comparison->without_rounding) {
      report["largest_logit_difference_without_rounding"] = *done.comparison->without_rounding;
    }
  }
}

Json report_json(const ConversionReport& done) {
  const ConversionPlan& plan = done.plan;
  const auto& cache = plan.kv_bytes_per_token;
  const bool pools = !pooled_layers(plan).empty();
  Json report = {{"source", done.options.source},
                 {"output", done.options.destination},
                 {"dry_run", done.options.dry_run},
                 {"architecture", plan.target.architecture},
                 {"source_architecture", plan.spec.architecture},
                 {"query_heads", plan.spec.query_heads},
                 {"source_kv_heads", Json::parse(kv_heads_json(plan.spec))},
                 {"kv_heads", Json::parse(kv_heads_json(plan.grouped))},
                 {"stored_kv_heads", Json::parse(kv_heads_json(plan.target))},
                 {"pool", pools ? Json(name_of(plan.request.pooling.method)) : Json(nullptr)},
                 {"grouping", plan.request.grouping},
                 {"tensors", plan.steps.size()},
                 {"changed_tensors", changed_tensors(plan)},
                 {"dropped_tensors", plan.dropped},
                 {"source_bytes", plan.source_bytes},
                 {"output_bytes", plan.output_bytes},
                 {"kv_bytes_per_token_before", cache ? Json(cache->before) : Json(nullptr)},
                 {"kv_bytes_per_token_after", cache ? Json(cache->after) : Json(nullptr)},
                 {"notes", plan.notes},
                 {"warnings", done.warnings},
                 {"seconds", done.seconds}};
  add_measurements(report, done);
  return report;
}

// "45 KiB -> 15 KiB per token", or "45 KiB in F32 -> 7.5 KiB in BF16 per token".
std::string text_of_change(const CacheChange& change) {
  const auto side = [&](std::uint64_t bytes, DType dtype) {
    return text_of_bytes(bytes) +
           (change.dtype_before == change.dtype_after ? "" : fmt::format(" in {}", name_of(dtype)));
  };
  return fmt::format("{} -> {} per token", side(change.before, change.dtype_before),
                     side(change.after, change.dtype_after));
}

// Empty for models without a KV cache.
std::string cache_text(const ConversionPlan& plan) {
  if (!plan.kv_bytes_per_token) {
    return "";
  }
  return text_of_change(*plan.kv_bytes_per_token) +
         (plan.cross_kv_bytes_per_token
              ? "; cross " + text_of_change(*plan.cross_kv_bytes_per_token) + " of the source"
              : "");
}

// "each stored 2 times", "stored 1 to 3 times".
std::string times_text(const std::vector<std::int64_t>& grouped,
                       const std::vector<std::int64_t>& stored) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max(), most = 0;
  for (std::size_t i = 0; i < grouped.size() && i < stored.size(); ++i) {
    if (grouped[i] > 0) {
      least = std::min(least, stored[i] / grouped[i]);
      most = std::max(most, stored[i] / grouped[i]);
    }
  }
  return least == most ? fmt::format("each stored {} times", most)
                       : fmt::format("stored {} to {} times", least, most);
}

// "32 -> 8 (mean)", "4 -> 8 (each stored 2 times)", "6 -> 2 (mean, each stored 3 times)", "4".
std::string change_of_heads(const ConversionPlan& plan, AttentionRole role) {
  const auto& source = plan.spec.kv_heads_of(role);
  const auto& grouped = plan.grouped.kv_heads_of(role);
  const auto& stored = plan.target.kv_heads_of(role);
  if (stored == source && grouped == source) {
    return text_of_heads(source);
  }
  const std::string times = stored == grouped ? "" : times_text(grouped, stored);
  if (grouped == source) {
    return fmt::format("{} -> {} ({})", text_of_heads(source), text_of_heads(stored), times);
  }
  return fmt::format("{} -> {} ({}{}{})", text_of_heads(source), text_of_heads(grouped),
                     name_of(plan.request.pooling.method), times.empty() ? "" : ", ", times);
}

std::string heads_text(const ConversionPlan& plan) {
  return "kv heads " + joined(plan.spec.roles(), ", ", [&](AttentionRole role) {
           return (plan.spec.has_encoder() ? fmt::format("{} ", name_of(role)) : "") +
                  change_of_heads(plan, role);
         });
}

std::string heading(const ConversionPlan& plan) {
  const std::string architecture = plan.target.architecture != plan.spec.architecture
                                       ? plan.spec.architecture + " -> " + plan.target.architecture
                                       : plan.spec.architecture;
  return fmt::format("{}: {} layers, {} query heads, {}", architecture, plan.spec.layer_count(),
                     plan.spec.query_heads, heads_text(plan));
}

// The tensors that change, with their shapes before and after.
Table steps_table(const ConversionPlan& plan, const Checkpoint& source) {
  LayerRows rows;
  for (const TensorStep& step : plan.steps) {
    if (step.unchanged()) {
      continue;
    }
    const TensorInfo* before =
        step.moves.empty() ? nullptr : source.find(step.moves.front().source);
    rows.add(step.output.name,
             {before == nullptr || before->dtype == step.output.dtype
                  ? std::string(name_of(step.output.dtype))
                  : fmt::format("{} -> {}", name_of(before->dtype), name_of(step.output.dtype)),
              before == nullptr ? "none" : text_of(before->shape), text_of(step.output.shape)});
  }
  Table table;
  table.add_texts({"tensor", "dtype"});
  table.add_numbers({"shape", "becomes"});
  for (const auto& [name, cells] : rows.rows()) {
    table.add_row({name, cells[0], cells[1], cells[2]});
  }
  return table;
}

std::string exactness_text(const OutputComparison& comparison, const ConversionPlan& plan) {
  const std::string rounding =
      comparison.without_rounding
          ? fmt::format(
                ", {:.3g} without rounding{}", *comparison.without_rounding,
                plan.request.dtype ? fmt::format(" to {}", name_of(*plan.request.dtype)) : "")
          : "";
  return fmt::format("largest logit difference {:.3g} (logits up to {:.3g}){}",
                     comparison.largest_difference, comparison.largest_output, rounding);
}

Facts report_facts(const ConversionReport& done) {
  const ConversionPlan& plan = done.plan;
  const std::vector<RecordedLayer> layers = mapped(done.layers, measurements_of);
  return {{"weights",
           fmt::format("{} -> {} ({} of {} tensors change)", text_of_bytes(plan.source_bytes),
                       text_of_bytes(plan.output_bytes), changed_tensors(plan), plan.steps.size())},
          {"KV cache", cache_text(plan)},
          {"grouping", plan.request.calibration ? grouping_text(done.groupings) : ""},
          {"kept", text_of_kept(layers)},
          {"refitted", text_of_refitted(layers)},
          {"distilled", done.distillation ? text_of_distilled(*done.distillation) : ""},
          {"exactness", done.comparison ? exactness_text(*done.comparison, plan) : ""}};
}

// The models on held-out text, and how source and result go on after the same words, under a line
// that names the text.
std::string held_out_table(const HeldOut& report, const Console& console) {
  return fmt::format(
      "on {} tokens of the text that the conversion did not use, {} at a time{}:\n{}{}",
      with_thousands(report.tokens.value()), report.context.value(),
      report.own_tokens
          ? fmt::format(",\nand on {} that the source wrote", with_thousands(*report.own_tokens))
          : "",
      held_out_rows(report).text(console),
      joined(report.answers.value_or(std::vector<HeldOutAnswer>()), "",
             [](const HeldOutAnswer& answer) {
               return fmt::format("\n\n> {}\n  source  {}\n  result  {}",
                                  text_of_answer(answer.prompt), text_of_answer(answer.source),
                                  text_of_answer(answer.result));
             }));
}

// The command that a user types next.
std::string next_step(const ConvertOptions& options) {
  std::string command = "regroup inspect " + shell_quoted(options.destination);
  if (!options.layout.empty()) {
    command += " --layout " + shell_quoted(options.layout);
  }
  return "next: " + printable(command, 0);
}

}  // namespace

void print_report(const ConversionReport& done, const Console& console) {
  constexpr std::size_t kReportIndent = 10;  // the width of the labels
  const ConversionPlan& plan = done.plan;
  if (done.options.json) {
    console.print(text_of_json(report_json(done)));
  } else {
    if (done.options.dry_run && changed_tensors(plan) > 0) {
      console.print(steps_table(plan, done.source.checkpoint).text(console) + "\n");
    }
    if (!done.layers.empty() &&
        (done.options.measure || console.verbosity() == Verbosity::kVerbose)) {
      console.print(layers_table(done.layers).text(console) + "\n");
    }
    if (done.budget) {
      console.print_facts(budget_table(*done.budget, console) + "\n", kReportIndent);
    }
    console.print_facts(heading(plan) + "\n" + text_of_facts(report_facts(done), kReportIndent),
                        kReportIndent);
    if (done.held_out) {
      console.print("\n" + held_out_table(*done.held_out, console));
    }
  }
  console.notes("note", plan.notes);
  for (const std::string& name : plan.dropped) {
    console.note("dropped: " + printable(name));
  }
  console.note(done.options.dry_run
                   ? "dry run: nothing was written"
                   : fmt::format("wrote {}", printable(done.options.destination, 0)));
  if (!done.options.dry_run && !done.options.json) {
    console.note(next_step(done.options));
  }
  console.notes("warning", done.warnings);  // last: what the result is not good for
}

}  // namespace regroup
