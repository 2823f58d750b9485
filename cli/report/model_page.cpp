#include <algorithm>

#include "cli/report/conversion_report.h"
#include "cli/report/pages.h"
#include "cli/shell/text.h"
#include "formats/base/ranges.h"
#include "formats/model/record_words.h"
#include "formats/model/serving_cost.h"

namespace regroup {
namespace {

Axis layer_axis() { return {.title = "layer", .whole = true}; }

// The cache of the model with a kv head per query head, or with its source's kv heads if the record
// has them; none if that is not larger.
std::optional<KvCacheCost> larger_cache(const ModelSummary& summary,
                                        const std::optional<KvHeads>& of_source) {
  if (!summary.spec || !summary.kv_cache) {
    return std::nullopt;
  }
  ModelSpec spec = *summary.spec;
  for (const AttentionRole role : spec.roles()) {
    const auto recorded = heads_of(of_source, spec, role);  // one for all layers, or one for each
    const auto all = static_cast<std::uint64_t>(spec.query_heads);
    auto& stored = spec.kv_heads_of(role);
    for (std::size_t i = 0; i < stored.size(); ++i) {
      const std::uint64_t heads = i < recorded.size()    ? recorded[i]
                                  : recorded.size() == 1 ? recorded.front()
                                                         : all;
      stored[i] = stored[i] == 0 ? 0 : static_cast<std::int64_t>(std::min(heads, all));
    }
  }
  auto cache = kv_cache_cost(spec, summary.cache_dtype);
  return cache && cache->at(1) > summary.kv_cache->at(1) ? cache : std::nullopt;
}

// Up to the positions that the model is made for, or 128k.
Series cache_series(const std::string& name, const KvCacheCost& cache, const ModelSpec* spec) {
  Series series{name, {}, Series::Mark::kLineAndDots};
  constexpr std::uint64_t kLeast = 4 * 1024, kMost = 128 * 1024;
  const std::uint64_t made = spec == nullptr || !spec->max_positions
                                 ? kMost
                                 : static_cast<std::uint64_t>(*spec->max_positions);
  for (std::uint64_t tokens = 1024; tokens <= std::clamp(made, kLeast, kMost); tokens *= 2) {
    series.points.push_back({static_cast<double>(tokens), static_cast<double>(cache.at(tokens))});
  }
  return series;
}

Chart head_chart(const std::string& role, const std::vector<LayerSummary>& layers, bool only_role) {
  Series query{"query heads", {}, Series::Mark::kFaintLine, Series::kReference},
      kv{"kv heads", {}, Series::Mark::kBars};
  for (const LayerSummary& layer : layers) {
    if (name_of(layer.role) == role && layer.query_heads > 0) {
      const auto number = static_cast<double>(layer.layer);
      query.points.push_back({number, static_cast<double>(layer.query_heads)});
      kv.points.push_back({number, static_cast<double>(layer.kv_heads)});
    }
  }
  return {.id = "heads-" + role,
          .title = only_role ? "Heads by layer" : fmt::format("Heads by layer, {}", role),
          .description = "Kv heads that each layer stores, and its query heads.",
          .x = layer_axis(),
          .y = {.title = "heads", .low = 0.0, .whole = true},
          .series = {std::move(kv), std::move(query)}};
}

using Number = std::optional<double> RecordedLayer::*;

struct LayerNumbers {
  std::string name;
  Number number;
  std::size_t colour;
};

// Whether lines between points would pass over layers without one.
bool has_gaps(const Series& series) {
  return series.points.back().x - series.points.front().x + 1 !=
         static_cast<double>(series.points.size());
}

// `chart` with a series for each of `numbers` that was recorded for this attention.
Chart layer_chart(const RecordedMeasurements& record, const std::string& attention, Chart chart,
                  const std::vector<LayerNumbers>& numbers) {
  for (const auto& [name, number, colour] : numbers) {
    Series series{name, {}, Series::Mark::kLineAndDots, colour};
    for (const RecordedLayer& layer : record.layers) {
      if (layer.attention.value_or("") == attention && layer.*number) {
        series.points.push_back({static_cast<double>(*layer.layer), *(layer.*number)});
      }
    }
    if (!series.points.empty()) {
      series.mark = has_gaps(series) ? Series::Mark::kDots : series.mark;
      chart.series.push_back(std::move(series));
    }
  }
  return chart;
}

// The different ones of `names`, in order.
std::vector<std::string> distinct(const std::vector<std::string>& names) {
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (!contains(found, name)) {
      found.push_back(name);
    }
  }
  return found;
}

// Kv heads and query heads by layer, one chart for each attention role whose layers differ.
std::vector<Chart> head_charts(const std::vector<LayerSummary>& layers) {
  const auto roles = distinct(
      mapped(layers, [](const LayerSummary& layer) { return std::string(name_of(layer.role)); }));
  std::vector<Chart> charts = mapped(
      roles, [&](const std::string& role) { return head_chart(role, layers, roles.size() == 1); });
  std::erase_if(charts, [](const Chart& chart) {
    return std::ranges::all_of(chart.series, [](const Series& series) {
      return std::ranges::all_of(series.points, [&](const ChartPoint& point) {
        return point.y == series.points.front().y;
      });
    });
  });
  return charts;
}

// The cache of one sequence by its length, compared with a larger one. Empty for models without a
// cache.
std::vector<Chart> cache_charts(const ModelSummary& summary) {
  if (!summary.kv_cache || summary.kv_cache->at(1) == 0) {
    return {};
  }
  const ModelSpec* spec = summary.spec ? &*summary.spec : nullptr;
  Chart chart{.id = "cache",
              .title = "KV cache by context",
              .description = fmt::format("Memory for keys and values of one sequence in {}.",
                                         name_of(summary.cache_dtype)),
              .x = tokens_axis("tokens"),
              .y = memory_axis("KV cache"),
              .series = {cache_series("as it is", *summary.kv_cache, spec)}};
  const auto& of_source = summary.record.source_kv_heads.value;
  if (const auto larger = larger_cache(summary, of_source)) {
    chart.series.push_back(
        cache_series(of_source ? "of its source" : "with a kv head per query head", *larger, spec));
    chart.series.back().colour = Series::kReference;
  }
  return {std::move(chart)};
}

// ALiBi slopes by head. Empty for other models.
std::vector<Chart> slope_charts(const ModelSummary& summary) {
  if (summary.alibi_slopes.empty()) {
    return {};
  }
  const auto& layers = summary.alibi_slopes;
  const bool alike = all_equal(layers);
  Chart chart{
      .id = "slopes",
      .title = "ALiBi slopes",
      .description =
          alike
              ? "How fast the attention of each head decays with distance: the same in all layers."
              : "How fast the attention of each head decays with distance, layer by layer.",
      .x = {.title = "query head", .whole = true},
      .y = {.title = "slope", .scale = Axis::Scale::kLog2},
      .series = {},
      .key = alike ? Chart::Key::kLegend : Chart::Key::kEndLabels,
      .ordered = !alike};
  for (std::size_t layer = 0; layer < (alike ? 1 : layers.size()); ++layer) {
    Series series{alike ? "slope" : fmt::format("layer {}", layer),
                  {},
                  alike ? Series::Mark::kDots : Series::Mark::kLine};
    for (std::size_t head = 0; head < layers[layer].size(); ++head) {
      series.points.push_back({static_cast<double>(head), layers[layer][head]});
    }
    chart.series.push_back(std::move(series));
  }
  return {std::move(chart)};
}

// Energy kept by pooling and errors after refitting, by layer: charts for each attention role that
// was measured.
std::vector<Chart> conversion_charts(const RecordedMeasurements& record) {
  std::vector<Chart> charts;
  const auto roles = distinct(mapped(
      record.layers, [](const RecordedLayer& layer) { return layer.attention.value_or(""); }));
  for (std::size_t i = 0; i < roles.size(); ++i) {
    const std::string of_role = roles.size() == 1 ? "" : ", " + roles[i];
    charts.push_back(layer_chart(
        record, roles[i],
        {.id = fmt::format("energy-{}", i + 1),
         .title = "Energy kept" + of_role,
         .description = "How much of its keys and values each layer with fewer heads keeps, before "
                        "any training.",
         .x = layer_axis(),
         .y = {.title = "energy kept", .high = 1.0, .numbers = Axis::Numbers::kPercent}},
        {{"keys", &RecordedLayer::key_energy, 0}, {"values", &RecordedLayer::value_energy, 1}}));
    charts.push_back(layer_chart(
        record, roles[i],
        {.id = fmt::format("refit-{}", i + 1),
         .title = "Error of the attention's output" + of_role,
         .description =
             "Against the source's attention, before and after refitting each layer by itself.",
         .x = layer_axis(),
         .y = {.title = "relative error", .low = 0.0, .numbers = Axis::Numbers::kPercent}},
        {{"before refitting", &RecordedLayer::error_before, Series::kReference},
         {"after refitting", &RecordedLayer::error_after, 0}}));
  }
  std::erase_if(charts, [](const Chart& chart) { return chart.series.empty(); });
  return charts;
}

void add_heads(Page& page, const ModelSummary& summary, const std::vector<LayerSummary>& layers) {
  std::vector<Chart> charts = head_charts(layers);
  for (const auto& more : {cache_charts(summary), slope_charts(summary)}) {
    append(charts, more);
  }
  if (layers.empty()) {
    return;
  }
  page.begin_section("heads", "Heads and caches");
  page.add_charts(charts);
  if (summary.spec) {
    page.add_table(layers_table(layers, summary.spec->head_dim), "Layers", true);
  }
}

void add_provenance(Page& page, const ModelSummary& summary,
                    const std::optional<RecordedMeasurements>& conversion) {
  Facts lines = conversion_facts(summary.record, summary.architecture);
  if (lines.empty()) {
    return;
  }
  page.begin_section("provenance", summary.record.converted() ? "Conversion" : "Record");
  if (conversion && !conversion->source.empty()) {
    lines.insert(lines.begin(), {"converted from", conversion->source});
  }
  page.add_facts(lines);
}

void add_conversion(Page& page, const RecordedMeasurements& record) {
  const auto charts = conversion_charts(record);
  page.begin_section("kept", "What pooling kept");
  if (charts.empty()) {
    page.add_paragraph(
        "This conversion measured no layers. Run convert with --measure --json to measure them.");
  } else {
    page.add_charts(charts);
  }
}

void add_answers(Page& page, const std::vector<HeldOutAnswer>& answers, const std::string& when) {
  if (!answers.empty()) {
    page.add_paragraph(fmt::format("How source and result go on after the same words{}:", when));
  }
  for (const HeldOutAnswer& answer : answers) {
    page.add_facts({{"after", text_of_answer(answer.prompt)},
                    {"source", text_of_answer(answer.source)},
                    {"result", text_of_answer(answer.result)}});
  }
}

void add_summary(Page& page, const ModelPage& facts) {
  page.begin_section("summary", "Summary");
  page.add_warnings(model_warnings(facts.summary));
  const ConversionRecord pooling = with_pooling(facts.summary.record);
  const auto held_out = shown_held_out(pooling);
  const std::string when = pooling.trained() ? ", before its training" : "";
  if (held_out) {
    page.add_table(held_out_rows(*held_out),
                   fmt::format("Compared on {} tokens that the conversion did not use{}",
                               with_thousands(held_out->tokens.value_or(0)), when));
    const auto models = held_out->models.value_or(std::vector<HeldOutModel>());
    page.add_paragraph(fmt::format(
        "{}Cosine: of the final hidden states. mean: the plain mean of the heads.",
        models.empty() || !models.front().loss
            ? ""
            : fmt::format("Loss in nats per token. Divergence: how far predictions are from the "
                          "source's (KL, nats per token), on the given text{}. ",
                          held_out->own_tokens ? " and on text that the source wrote" : "")));
  }
  Facts lines;
  for (auto& [name, value] : summary_facts(facts.summary, facts.load)) {
    if (name == "converted") {
      break;  // the conversion has its own section
    }
    if (name != "slopes") {  // slopes have a chart
      lines.emplace_back(name.empty() ? "by part" : name, value);
    }
  }
  page.add_facts(lines);
  if (held_out) {
    add_answers(page, held_out->answers.value_or(std::vector<HeldOutAnswer>()), when);
  }
}

// Only training after a conversion is called uptraining.
void add_training(Page& page, const TrainingCurve& curve, bool converted) {
  page.begin_section("training", converted ? "Uptraining" : "Training");
  const auto last = [](const StepValues& values) {
    return values.empty() ? "" : fmt::format("{:.4g}", values.back().y);
  };
  const auto first = [](const StepValues& values) {
    return values.size() < 2 ? "" : fmt::format("{:.4g} -> ", values.front().y);
  };
  const auto count = [](double number) { return number > 0 ? text_of_count(number) : ""; };
  page.add_facts({{"steps", with_thousands(curve.loss.size())},
                  {"tokens", count(curve.tokens)},
                  {"time in steps", curve.seconds > 0 ? text_of_duration(curve.seconds) : ""},
                  {"training loss", first(curve.loss) + last(curve.loss)},
                  {"held-out loss", first(curve.evaluation) + last(curve.evaluation)},
                  {"skipped steps", curve.skipped > 0 ? with_thousands(curve.skipped) : ""}});
  page.add_charts(training_charts({{"", curve}}));
  if (!curve.recipe.empty()) {
    Table recipe;
    recipe.add_texts({"setting", "value"});
    for (const auto& [name, value] : curve.recipe) {
      recipe.add_row({name, value});
    }
    page.add_table(recipe, "Recipe");
  }
}

}  // namespace

Axis memory_axis(const std::string& title) {
  return {.title = title, .scale = Axis::Scale::kLog2, .numbers = Axis::Numbers::kBytes};
}

Axis tokens_axis(const std::string& title) {
  return {.title = title, .scale = Axis::Scale::kLog2, .numbers = Axis::Numbers::kTokens};
}

void add_model(Page& page, const ModelPage& facts) {
  add_heads(page, facts.summary, facts.layers);
  add_provenance(page, facts.summary, facts.conversion);
  if (facts.conversion) {
    add_conversion(page, *facts.conversion);
  }
}

std::string model_page(const ModelPage& facts) {
  const std::string path = facts.summary.path.string();
  Page page(title_of(path), "regroup inspect");
  add_summary(page, facts);
  add_model(page, facts);
  if (facts.training) {
    add_training(page, *facts.training, facts.summary.record.converted());
  }
  if (facts.tensors) {
    page.begin_section("tensors", "Tensors");
    page.add_table(*facts.tensors, "Tensors");
  }
  if (facts.statistics) {
    page.begin_section("statistics", "Numbers");
    page.add_table(*facts.statistics, "Numbers of each tensor");
  }
  return page.text();
}

}  // namespace regroup
