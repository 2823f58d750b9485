#include "formats/families/loader_code.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/families/family.h"
#include "formats/families/loader_table.h"
#include "formats/spec/alibi.h"

namespace regroup {

namespace {

// Loaders compute slopes in single precision. The slopes of two heads differ by more than this.
bool close(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }

// "layer 3", "layers 0, 1, 2, 3 and 28 more".
std::string text_of_layers(const std::vector<std::size_t>& layers) {
  constexpr std::size_t kShown = 4;
  const auto shown = std::span(layers).first(std::min(layers.size(), kShown));
  return fmt::format(
      "layer{} {}{}", layers.size() == 1 ? "" : "s", fmt::join(shown, ", "),
      layers.size() > kShown ? fmt::format(" and {} more", layers.size() - kShown) : "");
}

// Slopes move with their heads. Another order is therefore reported separately from other slopes.
void compare_slopes(const ModelSpec& spec, AttentionRole role, std::vector<std::string>& found) {
  const std::vector<double> formula = alibi_slopes(spec.query_heads, spec.alibi.bias_max);
  const auto layers = alibi_slopes_per_layer(spec, role);
  std::vector<std::size_t> reordered, others;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!std::equal(layers[i].begin(), layers[i].end(), formula.begin(), formula.end(), close)) {
      const bool same_slopes = std::is_permutation(layers[i].begin(), layers[i].end(),
                                                   formula.begin(), formula.end(), close);
      (same_slopes ? reordered : others).push_back(i);
    }
  }
  for (const auto& [which, what] : {std::pair{&reordered, "the formula's in another order"},
                                    std::pair{&others, "not the formula's"}}) {
    if (!which->empty()) {
      found.push_back(
          fmt::format("{} {}: the recorded ALiBi slopes are {}, which stock loaders do not read",
                      name_of(role), text_of_layers(*which), what));
    }
  }
}

}  // namespace

std::vector<std::string> derived_otherwise(const ModelSpec& spec) {
  std::vector<std::string> found;
  if (spec.positions == PositionKind::kAlibi) {
    for (const AttentionRole role : spec.roles()) {
      if (role != AttentionRole::kCross) {
        compare_slopes(spec, role, found);
      }
    }
  }
  return found;
}

std::vector<std::string> misread_by_loaders(const ModelSpec& spec, const Json& config) {
  return has_alibi_names(config) ? std::vector<std::string>() : derived_otherwise(spec);
}

namespace {

constexpr std::string_view kModulePrefix = "modeling_regroup_";
constexpr std::string_view kClassPrefix = "Regroup";

LoaderFile file_named(std::string_view name) {
  const auto files = loader_files();
  return *std::find_if(files.begin(), files.end(),
                       [&](const LoaderFile& file) { return file.name == name; });
}

const Json* auto_map_of(const Json& config) {
  const auto found = config.find("auto_map");
  return found != config.end() && found->is_object() ? &*found : nullptr;
}

// "module.Class", or "repository--module.Class".
bool names_loader_code(const Json& value) {
  if (!value.is_string()) {
    return false;
  }
  const std::string& text = value.get_ref<const std::string&>();
  const std::size_t repository = text.find("--");
  const std::size_t begin = repository == text.npos ? 0 : repository + 2;
  const std::string file = text.substr(begin, text.find('.', begin) - begin) + ".py";
  const auto files = loader_files();
  return file.starts_with(kModulePrefix) &&
         std::any_of(files.begin(), files.end(),
                     [&](const LoaderFile& each) { return each.name == file; });
}

std::string with_auto_map(const std::string& config_text, const Json& auto_map) {
  return auto_map.empty() ? without_member(config_text, "auto_map")
                          : with_member(config_text, {"auto_map"}, auto_map.dump());
}

}  // namespace

bool is_for_models(std::string_view auto_class) {
  return auto_class == "AutoConfig" || auto_class.starts_with("AutoModel");
}

std::optional<LoaderCode> loader_code_for(const Json& config, const ModelSpec& spec) {
  const std::string model_type = stock_model_type(config);
  const auto rows = loader_rows();
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const LoaderRow& candidate) {
    return candidate.model_type == model_type;
  });
  const bool own_names = has_alibi_names(config);
  if (row == rows.end() || (!spec.not_computable.empty() && !spec.loaders_compute) ||
      spec.kv_heads_key.back() != row->kv_heads_key ||
      (row->shared == kLayersFile && is_uniform(spec.kv_heads)) ||
      ((own_names || spec.positions == PositionKind::kAlibi) && !row->alibi)) {
    return std::nullopt;
  }
  const std::string module = module_of(*row);
  const std::string family =
      fmt::format("{}{}{}", kClassPrefix, own_names ? "Alibi" : "", row->family);
  LoaderCode code{Json::object(), {}};
  for (const std::string& name : {std::string(row->shared), module + ".py"}) {
    if (!name.empty()) {
      code.files.push_back(file_named(name));
    }
  }
  if (own_names) {
    code.auto_map["AutoConfig"] = fmt::format("{}.{}Config", module, family);
  }
  for (const AutoClass& entry : row->classes) {
    code.auto_map[std::string(entry.name)] = fmt::format("{}.{}{}", module, family, entry.suffix);
  }
  return code;
}

bool has_loader_code(const Json& config) {
  const Json* map = auto_map_of(config);
  return map != nullptr && std::any_of(map->begin(), map->end(), names_loader_code);
}

bool has_own_code(const Json& config) {
  const Json* map = auto_map_of(config);
  if (map == nullptr) {
    return false;
  }
  const auto entries = map->items();
  return std::any_of(entries.begin(), entries.end(), [](const auto& entry) {
    return is_for_models(entry.key()) && !names_loader_code(entry.value());
  });
}

std::string with_loader_code(const std::string& config_text, const LoaderCode& code) {
  const Json config = parse_json_object(config_text, "config.json");
  Json auto_map = code.auto_map;
  if (const Json* before = auto_map_of(config)) {
    for (const auto& [name, value] : before->items()) {
      if (!is_for_models(name)) {
        auto_map[name] = value;
      }
    }
  }
  return with_auto_map(config_text, auto_map);
}

std::string without_loader_code(const std::string& config_text) {
  const Json config = parse_json_object(config_text, "config.json");
  if (!has_loader_code(config)) {
    return config_text;
  }
  Json others = Json::object();
  for (const auto& [name, value] : auto_map_of(config)->items()) {
    if (!names_loader_code(value)) {
      others[name] = value;
    }
  }
  return with_stock_architecture(with_auto_map(config_text, others));
}

}  // namespace regroup
