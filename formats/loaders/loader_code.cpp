#include "formats/loaders/loader_code.h"

#include <algorithm>

#include <fmt/format.h>

#include "formats/families/family.h"
#include "formats/loaders/loader_table.h"

namespace regroup {
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
      ((own_names || spec.positions == PositionKind::kAlibi) && !row->alibi)) {
    return std::nullopt;
  }
  const std::string module = module_of(*row);
  const std::string family =
      fmt::format("{}{}{}", kClassPrefix, own_names ? "Alibi" : "", row->family);
  LoaderCode code{Json::object(), {file_named(kSharedLoaderFile), file_named(module + ".py")}};
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
