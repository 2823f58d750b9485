#include "formats/families/loader_code.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/families/family.h"
#include "formats/families/loader_files.h"
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
    if (!std::ranges::equal(layers[i], formula, close)) {
      const bool same_slopes = std::ranges::is_permutation(layers[i], formula, close);
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

constexpr std::string_view kModulePrefix = "modeling_regroup_";
constexpr std::string_view kClassPrefix = "Regroup";

LoaderFile file_named(std::string_view name) {
  return *std::ranges::find(loader_files(), name, &LoaderFile::name);
}

// An empty one if there is none.
const Json& auto_map_of(const Json& config) {
  static const Json kNone = Json::object();
  const Json& found = member_of(config, "auto_map");
  return found.is_object() ? found : kNone;
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
  return file.starts_with(kModulePrefix) && contains(files, file, &LoaderFile::name);
}

// Whether an entry of auto_map is for models or their configs: not for the tokenizer, say.
bool is_for_models(std::string_view auto_class) {
  return auto_class == "AutoConfig" || auto_class.starts_with("AutoModel");
}

std::string with_auto_map(const std::string& config_text, const Json& auto_map) {
  return auto_map.empty() ? without_member(config_text, "auto_map")
                          : with_member(config_text, {"auto_map"}, auto_map.dump());
}

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxSettingsBytes = 4U << 20;
constexpr std::array<std::string_view, 3> kCodeSuffixes{".py", ".pyc", ".so"};
// Weights are no companions, except in the folders of modules.json, where torch's are pickles.
constexpr std::array<std::string_view, 8> kPickleSuffixes{".pkl", ".pickle", ".joblib", ".dill",
                                                          ".bin", ".pt",     ".pth",    ".ckpt"};

bool has_text(const fs::path& path, std::string_view text) {
  std::error_code unusable;
  return fs::is_regular_file(path, unusable) && fs::file_size(path, unusable) == text.size() &&
         read_text(path, text.size()) == text;
}

template <std::size_t count>
bool has_suffix(const fs::path& file, const std::array<std::string_view, count>& suffixes) {
  return contains(suffixes, file.extension().string());
}

// Whether a file begins as pickles of protocol 2 and later do, or has a name of pickles. A
// safetensors file may begin with any bytes.
bool is_pickle(const fs::path& directory, const fs::path& file) {
  if (file.extension() == ".safetensors") {
    return false;
  }
  std::array<unsigned char, 2> head{};
  const File opened = File::open(directory / file);
  if (opened.size() >= head.size()) {
    opened.read_at(0, std::as_writable_bytes(std::span(head)));
  }
  return has_suffix(file, kPickleSuffixes) || (head[0] == 0x80 && head[1] >= 2 && head[1] <= 5);
}

bool is_settings_file(const fs::path& file) {
  const std::string name = file.filename().string();
  return name == "modules.json" ||
         (name.ends_with(".json") && name.find("config") != std::string::npos);
}

// Whether a value of auto_map, "module.Class", is a class in `carried`.
bool is_carried(const Json& value, std::span<const LoaderFile> carried) {
  const std::string reference = value.is_string() ? value.get<std::string>() : "";
  const std::size_t dot = std::min(reference.find('.'), reference.size());
  const std::string module = reference.substr(0, dot) + ".py";
  const std::string name = reference.substr(std::min(dot + 1, reference.size()));
  const auto has = [&](std::string_view file_name, std::string_view text) {
    return std::ranges::any_of(carried, [&](const LoaderFile& file) {
      return file.name == file_name && file.text.find(text) != file.text.npos;
    });
  };
  const auto rows = loader_rows();
  const auto row = std::ranges::find(rows, reference.substr(0, dot), module_of);
  return row != rows.end() &&
         has(module, made_class(*row, name) != nullptr ? "" : fmt::format("\nclass {}(", name)) &&
         (row->shared.empty() || has(row->shared, ""));
}

// Collects what the keys of settings name as code.
struct Settings {
  std::string file;
  std::span<const LoaderFile> carried;
  std::vector<ForeignCode>& found;

  void search(const Json& value, const std::string& path = "") {
    if (value.is_object()) {
      for (const auto& [key, member] : value.items()) {
        search_member(key, member, path.empty() ? key : path + "." + key);
      }
    } else if (value.is_array()) {
      for (const Json& item : value) {
        search(item, path);
      }
    }
  }

  void search_member(const std::string& key, const Json& value, const std::string& path) {
    const bool kernel =
        key.ends_with("attn_implementation") || key.ends_with("experts_implementation");
    if (key == "auto_map") {
      add_strings(value, path, [&](const Json& text) { return !is_carried(text, carried); });
    } else if (key == "impl") {  // of custom_pipelines
      add_strings(value, path, [](const Json&) { return true; });
    } else if (kernel) {
      add_strings(value, path, [](const std::string& text) { return text.find('/') != text.npos; });
    } else if (key == "type" && file == "modules.json") {
      add_strings(value, path, [](const std::string& text) {
        return !text.starts_with("sentence_transformers.");
      });
    } else if (key == "trust_remote_code" && value != false && !value.is_null()) {
      found.push_back({place(path), value.dump()});
    } else {
      search(value, path);
    }
  }

  template <typename Wanted>
  void add_strings(const Json& value, const std::string& path, const Wanted& wanted) {
    if (value.is_string() && wanted(value)) {
      found.push_back({place(path), value.get<std::string>()});
    } else if (value.is_array()) {
      std::ranges::for_each(value, [&](const Json& item) { add_strings(item, path, wanted); });
    } else if (value.is_object()) {
      for (const auto& [key, member] : value.items()) {
        add_strings(member, path + "." + key, wanted);
      }
    }
  }

  std::string place(const std::string& path) const { return file + ": " + path; }
};

void search_file(const fs::path& directory, const fs::path& file,
                 std::span<const LoaderFile> carried, std::vector<ForeignCode>& found) {
  try {
    const std::string text = read_text(directory / file, kMaxSettingsBytes);
    // modules.json is an array.
    const Json wrapped = parse_json_object("{\"\": " + text + "}", file.string());
    Settings{file.string(), carried, found}.search(wrapped[""]);
  } catch (const Error&) {
    found.push_back({file.string(), "not readable here"});
  }
}

bool carries_models(const Json& config, std::span<const LoaderFile> carried) {
  if (!has_loader_code(config)) {
    return false;
  }
  const auto entries = auto_map_of(config).items();
  return std::ranges::all_of(entries, [&](const auto& entry) {
    return !is_for_models(entry.key()) || is_carried(entry.value(), carried);
  });
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

std::optional<LoaderCode> loader_code_for(const Json& config, const ModelSpec& spec) {
  const std::string model_type = stock_model_type(config);
  const auto rows = loader_rows();
  const auto row = std::ranges::find(rows, model_type, &LoaderRow::model_type);
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
  const std::string architecture = architecture_of(config);
  const std::string own =
      own_names ? architecture : fmt::format("{}{}", kClassPrefix, architecture);
  if (const AutoClass* made = made_class(*row, own)) {
    code.auto_map[std::string(made->name)] = fmt::format("{}.{}", module, own);
  }
  return code;
}

bool has_loader_code(const Json& config) {
  return std::ranges::any_of(auto_map_of(config), names_loader_code);
}

bool has_own_code(const Json& config) {
  const auto entries = auto_map_of(config).items();
  return std::ranges::any_of(entries, [](const auto& entry) {
    return is_for_models(entry.key()) && !names_loader_code(entry.value());
  });
}

std::string with_loader_code(const std::string& config_text, const LoaderCode& code) {
  const Json config = parse_json_object(config_text, "config.json");
  Json auto_map = code.auto_map;
  for (const auto& [name, value] : auto_map_of(config).items()) {
    if (!is_for_models(name)) {
      auto_map[name] = value;
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
  for (const auto& [name, value] : auto_map_of(config).items()) {
    if (!names_loader_code(value)) {
      others[name] = value;
    }
  }
  return with_stock_architecture(with_auto_map(config_text, others));
}

std::vector<LoaderFile> carried_files(const fs::path& directory) {
  std::vector<LoaderFile> carried;
  for (const LoaderFile& file : loader_files()) {
    if (has_text(directory / file.name, file.text)) {
      carried.push_back(file);
    }
  }
  return carried;
}

DirectoryCode code_in(const Json& config, const fs::path& directory,
                      std::span<const fs::path> files, std::span<const LoaderFile> carried) {
  DirectoryCode code{carries_models(config, carried), {}};
  Settings{"config.json", carried, code.foreign}.search(config);
  for (const fs::path& file : files) {
    const bool own = std::ranges::any_of(carried, [&](const LoaderFile& each) {
      return file == fs::path(each.name) && has_text(directory / file, each.text);
    });
    if (is_settings_file(file)) {
      search_file(directory, file, carried, code.foreign);
    } else if (!own && (has_suffix(file, kCodeSuffixes) || is_pickle(directory, file))) {
      code.foreign.push_back({file.string(), ""});
    }
  }
  return code;
}

std::vector<std::string> notes_on_code(const DirectoryCode& code) {
  constexpr std::size_t kShown = 100;
  std::vector<std::string> names;
  for (const ForeignCode& each : code.foreign) {
    names.push_back(printable(each.place) +
                    (each.code.empty() ? "" : " = " + printable(each.code)));
  }
  if (names.empty()) {
    return {};
  }
  return {
      fmt::format("the result has code that regroup did not write, which loaders may run; read "
                  "it before you let them: {}",
                  first_of(names, kShown))};
}

}  // namespace regroup
