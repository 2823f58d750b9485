#include <algorithm>

#include <fmt/format.h>

#include "converter/card/card_metadata.h"
#include "converter/card/model_card.h"
#include "formats/base/file.h"
#include "formats/base/hub_cache.h"
#include "formats/directory/model_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCard = "README.md";
constexpr std::uint64_t kMaxCardBytes = 4U << 20;

// The card in `directory`; empty if there is none, or if it is too long to be one.
std::string card_in(const fs::path& directory) {
  const fs::path path = directory / kCard;
  std::error_code unknown;
  return fs::is_regular_file(path, unknown) && fs::file_size(path, unknown) <= kMaxCardBytes
             ? read_text(path, kMaxCardBytes)
             : std::string();
}

fs::path free_name(const fs::path& directory) {
  fs::path free = directory / "README.source.md";
  for (int i = 2; path_exists(free); ++i) {
    free = directory / fmt::format("README.source-{}.md", i);
  }
  return free;
}

// Whether the record in `config` has all of that in `before`.
bool keeps_record(const Json& config, const Json& before) {
  const Json now = config.value("regroup", Json::object());
  const Json record = before.value("regroup", Json::object());
  const auto members = record.items();
  return std::all_of(members.begin(), members.end(), [&](const auto& member) {
    return now.contains(member.key()) && now[member.key()] == member.value();
  });
}

// The code in a directory without links to the outside, as results are.
DirectoryCode code_of(const fs::path& directory, const Json& config) {
  return code_in(config, directory, companions_of(directory), carried_files(directory));
}

}  // namespace

void write_model_card(const Model& source, const fs::path& directory,
                      const std::string& config_text, const ModelSpec& spec) {
  const Json config = parse_json_object(config_text, "config.json");
  const std::string copied = card_in(directory);
  std::string metadata = lasting_metadata(copied);
  const auto source_card = [&] {
    const DirectoryCode code =
        code_in(source.config, source.path, source.companions, carried_files(source.path));
    return model_card(source.config, source.spec, metadata, code);
  };
  const bool repeated =
      !copied.empty() && keeps_record(config, source.config) && copied == source_card();
  if (const std::string name = hub_name_of(source.path); !name.empty()) {
    metadata = fmt::format("base_model: {}\n{}", yaml_text(name),
                           without_metadata(metadata, "base_model"));
  }
  const std::string card = model_card(config, spec, metadata, code_of(directory, config));
  if (card.empty()) {
    return;
  }
  if (repeated) {
    fs::remove(directory / kCard);
  } else if (path_exists(directory / kCard)) {
    fs::rename(directory / kCard, free_name(directory));
  }
  write_text(directory / kCard, card);
}

void rewrite_record(const fs::path& directory, const ModelSpec& spec,
                    const std::string& config_text) {
  const Json config = parse_json_object(config_text, "config.json");
  const std::string card =
      model_card(config, spec, lasting_metadata(card_in(directory)), code_of(directory, config));
  fs::remove(directory / "config.json");
  write_text(directory / "config.json", config_text);
  fs::remove(directory / kCard);
  write_text(directory / kCard, card);
}

}  // namespace regroup
