#include "formats/directory/model_directory.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "formats/base/error.h"
#include "formats/base/hub_cache.h"
#include "formats/base/open_failure.h"
#include "formats/base/places.h"
#include "formats/base/printable.h"
#include "formats/directory/container.h"
#include "formats/directory/meta_checkpoint.h"
#include "formats/directory/weight_index.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfigFile = "config.json";

// Weights and indices in any format are not copied: some runtimes would load a stale one instead of
// the new weights.
bool is_weight_file(const fs::path& file) {
  const std::string name = file.filename().string();
  constexpr std::array<std::string_view, 14> kSuffixes{
      ".safetensors", ".index.json", ".bin",  ".pt",   ".pth", ".gguf",      ".h5",
      ".msgpack",     ".tflite",     ".onnx", ".ckpt", ".npz", ".onnx_data", ".ot"};
  return std::any_of(kSuffixes.begin(), kSuffixes.end(),
                     [&](std::string_view suffix) { return name.ends_with(suffix); }) ||
         name.starts_with("consolidated") || name == kMetaParamsFile ||
         name == "checklist.chk";  // checksums of the weights
}

bool is_companion(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  std::error_code unusable;  // for example a circular link
  return entry.is_regular_file(unusable) && name != kConfigFile && !name.starts_with('.') &&
         !is_weight_file(entry.path());
}

// The names of companion files: with `outside` those that link out of the directory, else the
// others.
std::vector<fs::path> companions_of(const fs::path& directory, bool outside = false) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    if (is_companion(entry) && leads_out(entry.path()) == outside) {
      found.push_back(entry.path().filename());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

void check_exists(const fs::path& path) {
  std::error_code fault;
  if (fs::status(path, fault).type() == fs::file_type::not_found) {
    throw_bad_input("{}: no such file or directory", printable(path.string(), 0));
  }
  if (fault) {
    throw_cannot_open(path, fault.value());
  }
}

std::vector<Checkpoint::Part> open_single(const fs::path& file) {
  std::vector<Checkpoint::Part> parts;
  parts.push_back(open_weight_file(file));
  return parts;
}

bool is_index(const fs::path& path) { return path.filename().string().ends_with(".index.json"); }

// The file or index that loaders prefer if there are several.
std::optional<fs::path> weights_in(const fs::path& directory) {
  for (const auto name : {kSingleFile, kIndexFile, kTorchSingleFile, kTorchIndexFile}) {
    if (path_exists(directory / name)) {
      return directory / name;
    }
  }
  return std::nullopt;
}

std::vector<Checkpoint::Part> open_weights_in(const fs::path& directory) {
  if (const auto weights = weights_in(directory)) {
    return is_index(*weights) ? open_indexed_shards(*weights) : open_single(*weights);
  }
  throw_bad_input("{}: holds no {}, {} or index of either; not a model directory with weights",
                  printable(directory.string(), 0), kSingleFile, kTorchSingleFile);
}

}  // namespace

fs::path directory_of_model(const fs::path& given) {
  const fs::path path = resolve_model_path(given);
  check_exists(path);
  return fs::is_directory(path) ? path : path.parent_path();
}

Checkpoint open_checkpoint(const fs::path& given) {
  const fs::path path = resolve_model_path(given);
  check_exists(path);
  if (is_meta_directory(path)) {
    return open_meta_checkpoint(path);
  }
  if (fs::is_directory(path)) {
    return Checkpoint(open_weights_in(path));
  }
  return Checkpoint(is_index(path) ? open_indexed_shards(path) : open_single(path));
}

std::optional<fs::path> index_of_checkpoint(const fs::path& given) {
  const fs::path path = resolve_model_path(given);
  const auto weights = fs::is_directory(path) ? weights_in(path) : std::optional(path);
  return weights && is_index(*weights) ? weights : std::nullopt;
}

ModelDirectory open_model_directory(const fs::path& given) {
  const fs::path path = resolve_model_path(given);
  const fs::path directory = directory_of_model(path);
  const fs::path config_path = directory / kConfigFile;
  if (!path_exists(config_path)) {
    throw_bad_input("{}: {} {}; not a model directory", printable(path.string(), 0),
                    path == directory ? "contains no" : "is in a directory without", kConfigFile);
  }
  std::string text = read_text(config_path, kMaxConfigBytes);
  Json config = parse_json_object(text, printable(config_path.string(), 0));
  return {directory, std::move(text), std::move(config), open_checkpoint(path),
          companions_of(directory)};
}

ModelDirectory open_meta_directory(const fs::path& path) {
  const fs::path params = path / kMetaParamsFile;
  std::string text = read_text(params, kMaxConfigBytes);
  Json config = parse_json_object(text, printable(params.string(), 0));
  return {path, std::move(text), std::move(config), open_meta_checkpoint(path),
          companions_of(path)};
}

void copy_companions(const ModelDirectory& source, const fs::path& destination,
                     const std::vector<std::string>& left_out) {
  for (const fs::path& name : source.companions) {
    if (std::find(left_out.begin(), left_out.end(), name.string()) != left_out.end()) {
      continue;
    }
    const File from = File::open(source.path / name);
    File to = File::create(destination / name);
    to.copy_from(from, 0, 0, from.size());
    to.sync_and_close();
  }
}

std::vector<std::string> notes_on_companions(const ModelDirectory& source) {
  std::vector<std::string> notes;
  std::error_code unknown;
  if (!fs::is_directory(source.path, unknown)) {
    return notes;
  }
  for (const fs::path& name : companions_of(source.path, /*outside=*/true)) {
    notes.push_back(fmt::format(
        "{} is left out: it is a link out of the model's directory, to {}; copy that file by hand "
        "if it belongs to the model",
        printable(name.string(), 0),
        printable(fs::canonical(source.path / name, unknown).string(), 0)));
  }
  return notes;
}

void refuse_output_inside(const ModelDirectory& source, const fs::path& destination) {
  if (lies_inside(destination, source.path)) {
    std::error_code unknown;
    throw_usage("{}: lies inside the source {}",
                printable(fs::absolute(destination, unknown).string(), 0),
                printable(fs::weakly_canonical(source.path, unknown).string(), 0));
  }
}

}  // namespace regroup
