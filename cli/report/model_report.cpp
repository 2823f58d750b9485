#include "cli/report/model_report.h"

#include <algorithm>
#include <functional>
#include <span>

#include "cli/report/conversion_facts.h"
#include "formats/base/hub_cache.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/model/record_words.h"
#include "formats/spec/config_writers.h"

namespace regroup {
namespace {

Json text_or_null(const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); }

Json heads_json(const std::vector<std::int64_t>& heads) {
  return heads.empty() ? Json(nullptr) : Json::parse(per_layer_json(heads));
}

// One list if it is the same in all layers, otherwise one list per layer; null without slopes.
Json slopes_json(const std::vector<std::vector<double>>& slopes) {
  return slopes.empty() ? Json(nullptr) : all_equal(slopes) ? Json(slopes.front()) : Json(slopes);
}

// One object per role of an encoder-decoder; null for other models.
Json roles_json(const ModelSummary& summary) {
  Json roles;
  for (const AttentionSummary& role : summary.roles) {
    roles[std::string(name_of(role.role))] = {
        {"layers", role.kv_heads.size()},
        {"query_heads", or_null(summary.query_heads)},
        {"kv_heads", heads_json(role.kv_heads)},
        {"config_kv_heads", heads_json(role.config_kv_heads)},
        {"head_dim", or_null(summary.head_dim)},
        {"attention", role.attention},
        {"kv_bytes_per_token", or_null(role.kv_bytes_per_token)}};
  }
  return roles;
}

// The recorded conversion in words; null if none is recorded.
Json conversion_json(const ModelSummary& summary) {
  Json facts;
  for (const auto& [name, value] : conversion_facts(summary.record, summary.architecture)) {
    facts[name] = value;
  }
  return facts;
}

// The size of the KV cache in the model's own dtype; null without a cache.
Json cache_json(const ModelSummary& summary, const CacheLoad& load) {
  if (!summary.kv_cache) {
    return nullptr;
  }
  return {{"dtype", name_of(summary.cache_dtype)},
          {"window", or_null(summary.kv_cache->window)},
          {"context", load.context},
          {"batch", load.batch},
          {"bytes", load.batch * summary.kv_cache->at(load.context)}};
}

std::string attention_text(const ModelSummary& summary, const std::string& attention,
                           const std::vector<std::int64_t>& kv_heads) {
  if (kv_heads.empty() || !summary.query_heads) {
    return "unknown (no config.json next to the file and no regroup metadata in it)";
  }
  const std::string dimension =
      summary.head_dim ? fmt::format(", head dimension {}", *summary.head_dim) : "";
  return fmt::format("{}: {} query heads, {}{}", attention, *summary.query_heads,
                     text_of_heads(kv_heads, "kv head"), dimension);
}

std::string layers_text(const ModelSummary& summary) {
  const std::size_t encoder = summary.spec ? summary.spec->encoder_layers.size() : 0;
  return fmt::format(
      "{}{}{}{}", summary.layers,
      encoder > 0 ? fmt::format(" in the decoder, {} in the encoder", encoder) : "",
      summary.hidden_size ? fmt::format(", hidden size {}", *summary.hidden_size) : "",
      summary.vocab_size ? fmt::format(", vocabulary {}", with_thousands(*summary.vocab_size))
                         : "");
}

std::string cache_text(const ModelSummary& summary, const CacheLoad& load) {
  if (!summary.kv_cache) {
    return "";
  }
  const KvCacheCost& cache = *summary.kv_cache;
  std::string text = fmt::format("{} per token", text_of_bytes(cache.per_token()));
  if (cache.cross_per_token() > 0) {
    text +=
        fmt::format(" (cross {} per token of the source)", text_of_bytes(cache.cross_per_token()));
  }
  text += fmt::format(", {} at {} tokens", text_of_bytes(load.batch * cache.at(load.context)),
                      with_thousands(load.context));
  if (load.batch > 1) {
    text += fmt::format(" x {}", load.batch);
  }
  if (cache.window) {
    text += fmt::format(", window of {}{}", with_thousands(*cache.window),
                        cache.unlimited > 0 ? " in some layers" : "");
  }
  return fmt::format("{}, in {}", text, name_of(summary.cache_dtype));
}

// "mlp 4.33 B, attention 2.15 B, …": parameters by part, largest first.
std::string parts_text(const ModelSummary& summary) {
  auto parts = mapped(summary.parameters_by_part,
                      [](const auto& part) { return std::pair(part.second, part.first); });
  std::ranges::sort(parts, std::greater());
  return joined(parts, ", ", [](const auto& part) {
    return fmt::format("{} {}", part.second, text_of_count(part.first));
  });
}

std::string dtypes_text(const ModelSummary& summary) {
  if (summary.bytes_by_dtype.size() == 1) {
    return summary.dtype;
  }
  return joined(summary.bytes_by_dtype, ", ", [](const auto& share) {
    return fmt::format("{} {}", share.first, text_of_bytes(share.second));
  });
}

std::string slopes_text(const std::vector<double>& slopes) {
  constexpr std::size_t kShown = 6;
  const auto shown = std::span(slopes).first(std::min(slopes.size(), kShown));
  return fmt::format(
      "{:.4g}{}", fmt::join(shown, " "),
      slopes.size() > kShown ? fmt::format(" ... ({} heads; all with --json)", slopes.size()) : "");
}

// One line about the attention, or one for each role.
void add_attention(Facts& lines, const ModelSummary& summary) {
  if (summary.roles.empty()) {
    lines.emplace_back("attention", attention_text(summary, summary.attention, summary.kv_heads));
  }
  for (const AttentionSummary& role : summary.roles) {
    lines.emplace_back(name_of(role.role), attention_text(summary, role.attention, role.kv_heads));
  }
}

// The recorded conversion, on one or two lines, and what else is recorded.
void add_conversion(Facts& lines, const ModelSummary& summary) {
  const std::string text = conversion_text(summary.record);
  const std::size_t end = std::min(text.find('\n'), text.size());
  lines.emplace_back("converted", text.substr(0, end));
  if (end < text.size()) {
    lines.emplace_back("", text.substr(end + 1));
  }
  append(lines, recorded_measurements(summary.record));
}

std::string whole_model_of(const ModelSummary& summary) {
  return summary.spec ? summary.spec->whole_model : "";
}

// Of a language model inside another model, to which the other facts apply.
std::string language_model_text(const ModelSummary& summary) {
  const std::string whole = whole_model_of(summary);
  return whole.empty()
             ? ""
             : fmt::format("{}, a part of this {} model", summary.family, printable(whole));
}

std::string weights_text(const ModelSummary& summary) {
  return fmt::format("{} in {} file{}, {} tensors, {}", text_of_bytes(summary.bytes), summary.files,
                     summary.files == 1 ? "" : "s", with_thousands(summary.tensors),
                     dtypes_text(summary));
}

std::int64_t layers_with_experts(const ModelSpec& spec) {
  return std::ranges::count_if(spec.layers,
                               [](const LayerTensors& layer) { return layer.experts.present(); });
}

// "64 in each of 16 layers, 8 of them for each token".
std::string experts_text(const ModelSummary& summary) {
  if (!summary.active_parameters) {
    return "";
  }
  const ExpertRouting& routing = summary.spec->routing;
  return fmt::format("{} in each of {} layers, {} of them for each token", routing.experts,
                     layers_with_experts(*summary.spec), routing.per_token);
}

std::string parameters_text(const ModelSummary& summary) {
  const std::string active =
      summary.active_parameters
          ? fmt::format(", {} for each token", text_of_count(*summary.active_parameters))
          : "";
  return fmt::format("{} ({}){}", text_of_count(summary.parameters),
                     with_thousands(summary.parameters), active);
}

Json experts_json(const ModelSummary& summary) {
  if (!summary.active_parameters) {
    return nullptr;
  }
  const ExpertRouting& routing = summary.spec->routing;
  return {{"count", routing.experts},
          {"per_token", routing.per_token},
          {"intermediate_size", routing.intermediate_size},
          {"layers", layers_with_experts(*summary.spec)}};
}

}  // namespace

Json summary_json(const ModelSummary& summary, const CacheLoad& load) {
  return {
      {"model", summary.path.string()},
      {"family", summary.family},
      {"architecture", text_or_null(summary.architecture)},
      {"whole_model", text_or_null(whole_model_of(summary))},
      {"layers", summary.layers},
      {"hidden_size", or_null(summary.hidden_size)},
      {"query_heads", or_null(summary.query_heads)},
      {"kv_heads", heads_json(summary.kv_heads)},
      {"config_kv_heads", heads_json(summary.config_kv_heads)},
      {"head_dim", or_null(summary.head_dim)},
      {"vocab_size", or_null(summary.vocab_size)},
      {"dtype", text_or_null(summary.dtype)},
      {"bytes_by_dtype", summary.bytes_by_dtype},
      {"parameters", summary.parameters},
      {"active_parameters", or_null(summary.active_parameters)},
      {"experts", experts_json(summary)},
      {"parameters_by_part", summary.parameters_by_part},
      {"bytes", summary.bytes},
      {"tensor_count", summary.tensors},
      {"files", summary.files},
      {"kv_bytes_per_token", or_null(summary.kv_bytes_per_token)},
      {"kv_cache", cache_json(summary, load)},
      {"attention", text_or_null(summary.attention)},
      {"attention_by_role", roles_json(summary)},
      {"positions", text_or_null(summary.positions)},
      {"alibi_slopes", slopes_json(summary.alibi_slopes)},
      {"provenance", summary.record.facts().is_null() ? Json::object() : summary.record.facts()},
      {"conversion", conversion_json(summary)},
      {"disagreements", summary.disagreements}};
}

Facts summary_facts(const ModelSummary& summary, const CacheLoad& load) {
  const std::string hub_name = hub_name_of(summary.path);
  Facts lines{
      {"model",
       fmt::format("{} ({})",
                   hub_name.empty() ? printable_path(summary.path) : printable(hub_name, 0),
                   summary.architecture.empty() ? "no config" : printable(summary.architecture))},
      {"", hub_name.empty() ? "" : "in " + printable_path(summary.path)},
      {"language", language_model_text(summary)},
      {"layers", layers_text(summary)}};
  add_attention(lines, summary);
  lines.emplace_back("positions", summary.positions);
  lines.emplace_back("slopes",
                     summary.alibi_slopes.empty() ? "" : slopes_text(summary.alibi_slopes.front()));
  lines.emplace_back("KV cache", cache_text(summary, load));
  lines.emplace_back("experts", experts_text(summary));
  lines.emplace_back("parameters", parameters_text(summary));
  lines.emplace_back("", parts_text(summary));
  lines.emplace_back("weights", weights_text(summary));
  add_conversion(lines, summary);
  return lines;
}

std::vector<std::string> model_warnings(const ModelSummary& summary) {
  std::vector<std::string> warnings = summary.disagreements;
  append(warnings, warnings_in(summary.record));
  return warnings;
}

}  // namespace regroup
