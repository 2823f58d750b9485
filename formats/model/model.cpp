#include "formats/model/model.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "formats/base/checksum.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/families/family.h"
#include "formats/families/gguf_model.h"
#include "formats/families/unknown_architecture.h"
#include "formats/model/weight_index.h"
#include "formats/spec/tensor_names.h"
#include "formats/tensors/gguf.h"

namespace regroup {

namespace {

// Checksums of the first and the last bytes of a tensor.
std::string sample_checksums(const Checkpoint& checkpoint, const TensorInfo& tensor) {
  constexpr std::uint64_t kSample = 4096;
  std::vector<std::byte> sample(std::min(kSample, tensor.end - tensor.begin));
  std::string digest;
  for (const std::uint64_t begin : {tensor.begin, tensor.end - sample.size()}) {
    checkpoint.file_of(tensor).read_at(begin, sample);
    digest += checksum_of(sample);
  }
  return digest;
}

}  // namespace

std::string fingerprint_of(const Checkpoint& checkpoint, const std::string& text) {
  std::string digest = checksum_of(text);
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    digest += fmt::format("|{} {} {}", tensor.name, name_of(tensor.dtype), text_of(tensor.shape));
    if (tensor.pieces.empty()) {
      digest += sample_checksums(checkpoint, tensor);
    }
    for (const TensorInfo& piece : tensor.pieces) {
      digest += sample_checksums(checkpoint, piece);
    }
  }
  return checksum_of(digest);
}

std::string fingerprint_of(const Model& source) {
  return fingerprint_of(source.checkpoint, source.config_text);
}

namespace {

namespace fs = std::filesystem;

// Loaders would read plain weights wrongly by what an earlier, quantised copy left in the config.
// Weights that are quantised have been refused before.
void leave_out_quantisation(ModelDirectory& model) {
  for (const std::vector<std::string>& path : quantisation_members(model.config)) {
    const std::string& key = path.back();
    model.config_text = path.size() == 1
                            ? without_member(model.config_text, key)
                            : with_member(model.config_text, {path.front()},
                                          without_member(model.config[path.front()].dump(2), key));
  }
  model.config = parse_json_object(model.config_text, "config.json");
}

Model open_gguf_model(const fs::path& path) {
  GgufModelFiles files = open_gguf_files(path);
  ModelDirectory model{path, "", Json::object(), Checkpoint(std::move(files.parts)), {}};
  ModelSpec spec = describe_gguf(files.metadata, model.checkpoint);
  return {std::move(model), Convention::kGguf, std::move(spec), std::move(files.metadata), {}};
}

Model open_meta_model(const fs::path& path) {
  ModelDirectory directory = open_meta_directory(path);
  const std::string where = printable_path(path / kMetaParamsFile);
  ModelSpec spec = describe_meta(directory.config, directory.checkpoint, where);
  leave_out_quantisation(directory);
  return {std::move(directory), Convention::kMeta, std::move(spec), std::nullopt, {}};
}

// The dtype that a config names for the weights, in transformers' terms. Without one: F32, or F16
// of quantised weights.
DType dtype_of_config(const Json& config) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    const auto found = config.find(key);
    if (found != config.end() && found->is_string()) {
      const auto& name = found->get_ref<const std::string&>();
      return name == "float16" ? DType::kF16 : name == "bfloat16" ? DType::kBF16 : DType::kF32;
    }
  }
  return quantisation_members(config).empty() ? DType::kF32 : DType::kF16;
}

Checkpoint checkpoint_called_for(const ModelSpec& spec, DType dtype) {
  std::vector<TensorInfo> tensors;
  for (ExpectedTensor& expected : expected_tensors(spec)) {
    const std::uint64_t bytes = tensor_bytes(dtype, expected.shape);
    tensors.push_back({std::move(expected.name), dtype, std::move(expected.shape), 0, 0, bytes});
  }
  return {{}, std::move(tensors)};
}

// Whether a directory has a config but no weights.
bool is_config_alone(const fs::path& path) {
  std::error_code fault;
  return fs::is_directory(path, fault) && path_exists(path / "config.json") &&
         !weights_file_in(path);
}

}  // namespace

Model open_model(const fs::path& given, const OpenOptions& options) {
  const fs::path path = resolve_weights_path(given);
  if (is_gguf_file(path)) {
    return open_gguf_model(path);
  }
  if (is_meta_directory(path)) {
    return open_meta_model(path);
  }
  ModelDirectory directory = open_model_directory(path);
  const std::string where = printable_path(directory.path / "config.json");
  ModelSpec spec =
      describe_model_or_layout(directory.config, directory.checkpoint, where, options.layout);
  leave_out_quantisation(directory);
  std::string missing = missing_head(spec, directory.checkpoint);
  if (std::string lost = text_of_lost_head(directory.config, missing); !lost.empty()) {
    spec.contradictions.push_back(std::move(lost));
  }
  spec = missing.empty() ? std::move(spec) : without_head(std::move(spec));
  return {std::move(directory), Convention::kHuggingFace, std::move(spec), std::nullopt,
          std::move(missing)};
}

Model open_model_outline(const fs::path& given, const OpenOptions& options) {
  const fs::path path = resolve_weights_path(given);
  const bool names_config =
      path.extension() == ".json" && !path.stem().string().ends_with(".index");
  const fs::path directory = names_config ? fs::absolute(path).parent_path() : path;
  const fs::path file = names_config ? path : directory / "config.json";
  if (file.filename() == "config.json" &&
      (is_meta_directory(directory) || !is_config_alone(directory))) {
    return open_model(directory, options);
  }
  const std::string where = printable_path(file);
  const Checkpoint none({});
  std::string text = read_text(file, kMaxConfigBytes);
  Json config = parse_json_object(text, where);
  ModelSpec spec = describe_model_or_layout(config, none, where, options.layout);
  Checkpoint checkpoint = checkpoint_called_for(spec, dtype_of_config(config));
  return {{directory, std::move(text), std::move(config), std::move(checkpoint), {}},
          Convention::kHuggingFace,
          std::move(spec),
          std::nullopt,
          {}};
}

ConversionRecord record_of(const Model& model) {
  if (model.config.contains(kRecordKey) || model.convention == Convention::kHuggingFace) {
    return ConversionRecord::in_config(model.config);
  }
  return ConversionRecord::in_metadata(model.checkpoint.metadata());
}

void check_writable(const Model& model) {
  if (model.convention != Convention::kHuggingFace) {
    const std::string path = printable_path(model.path);
    const auto& tensors = model.checkpoint.tensors();
    const bool quantised = std::ranges::any_of(tensors, is_block_type, &TensorInfo::dtype);
    throw_usage(
        "{}: a model in {} convention, which cannot be written here: run regroup convert {} "
        "DIRECTORY --to safetensors{}, then use DIRECTORY",
        path, model.convention == Convention::kMeta ? "Meta's" : "GGUF's", path,
        quantised ? " --dtype fp32" : "");
  }
}

std::optional<ModelSpec> describe_without_config(const fs::path& given,
                                                 const Checkpoint& checkpoint) {
  const fs::path path = resolve_weights_path(given);
  if (is_gguf_file(path)) {
    const GgufMetadata metadata = gguf_metadata_of(path);
    return is_known_gguf_model(metadata) ? std::optional(describe_gguf(metadata, checkpoint))
                                         : std::nullopt;
  }
  if (is_meta_directory(path)) {
    const fs::path params = path / kMetaParamsFile;
    const std::string where = printable_path(params);
    const std::string text = read_text(params, kMaxConfigBytes);
    return describe_meta(parse_json_object(text, where), checkpoint, where);
  }
  return std::nullopt;
}

}  // namespace regroup
