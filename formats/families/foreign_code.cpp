#include "formats/families/foreign_code.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/families/loader_code.h"
#include "formats/families/loader_table.h"

namespace regroup {
namespace {

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
  return std::find(suffixes.begin(), suffixes.end(), file.extension().string()) != suffixes.end();
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
  const std::string definition =
      fmt::format("\nclass {}(", reference.substr(std::min(dot + 1, reference.size())));
  const auto has = [&](std::string_view name, std::string_view text) {
    return std::any_of(carried.begin(), carried.end(), [&](const LoaderFile& file) {
      return file.name == name && file.text.find(text) != file.text.npos;
    });
  };
  const auto rows = loader_rows();
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const LoaderRow& candidate) {
    return module_of(candidate) + ".py" == module;
  });
  return row != rows.end() && has(module, definition) &&
         (row->shared.empty() || has(row->shared, ""));
}

// Collects what the keys of settings name as code.
class Settings {
 public:
  Settings(std::string file, std::span<const LoaderFile> carried, std::vector<ForeignCode>& found)
      : file_(std::move(file)), carried_(carried), found_(found) {}

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

 private:
  void search_member(const std::string& key, const Json& value, const std::string& path) {
    const bool kernel =
        key.ends_with("attn_implementation") || key.ends_with("experts_implementation");
    if (key == "auto_map") {
      add_strings(value, path, [&](const Json& text) { return !is_carried(text, carried_); });
    } else if (key == "impl") {  // of custom_pipelines
      add_strings(value, path, [](const Json&) { return true; });
    } else if (kernel) {
      add_strings(value, path, [](const std::string& text) { return text.find('/') != text.npos; });
    } else if (key == "type" && file_ == "modules.json") {
      add_strings(value, path, [](const std::string& text) {
        return !text.starts_with("sentence_transformers.");
      });
    } else if (key == "trust_remote_code" && value != false && !value.is_null()) {
      found_.push_back({place(path), value.dump()});
    } else {
      search(value, path);
    }
  }

  template <typename Wanted>
  void add_strings(const Json& value, const std::string& path, const Wanted& wanted) {
    if (value.is_string() && wanted(value)) {
      found_.push_back({place(path), value.get<std::string>()});
    } else if (value.is_array()) {
      std::for_each(value.begin(), value.end(),
                    [&](const Json& item) { add_strings(item, path, wanted); });
    } else if (value.is_object()) {
      for (const auto& [key, member] : value.items()) {
        add_strings(member, path + "." + key, wanted);
      }
    }
  }

  std::string place(const std::string& path) const { return file_ + ": " + path; }

  std::string file_;
  std::span<const LoaderFile> carried_;
  std::vector<ForeignCode>& found_;
};

void search_file(const fs::path& directory, const fs::path& file,
                 std::span<const LoaderFile> carried, std::vector<ForeignCode>& found) {
  try {
    const std::string text = read_text(directory / file, kMaxSettingsBytes);
    // modules.json is an array.
    const Json wrapped = parse_json_object("{\"\": " + text + "}", file.string());
    Settings(file.string(), carried, found).search(wrapped[""]);
  } catch (const Error&) {
    found.push_back({file.string(), "not readable here"});
  }
}

bool carries_models(const Json& config, std::span<const LoaderFile> carried) {
  if (!has_loader_code(config)) {
    return false;
  }
  const auto entries = config["auto_map"].items();
  return std::all_of(entries.begin(), entries.end(), [&](const auto& entry) {
    return !is_for_models(entry.key()) || is_carried(entry.value(), carried);
  });
}

}  // namespace

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
  Settings("config.json", carried, code.foreign).search(config);
  for (const fs::path& file : files) {
    const bool own = std::any_of(carried.begin(), carried.end(), [&](const LoaderFile& each) {
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
    if (names.size() == kShown) {
      names.push_back(fmt::format("and {} more", code.foreign.size() - kShown));
      break;
    }
    names.push_back(printable(each.place) +
                    (each.code.empty() ? "" : " = " + printable(each.code)));
  }
  if (names.empty()) {
    return {};
  }
  return {
      fmt::format("the result has code that regroup did not write, which loaders may run; read "
                  "it before you let them: {}",
                  fmt::join(names, "; "))};
}

}  // namespace regroup
