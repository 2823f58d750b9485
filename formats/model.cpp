#include "formats/model.h"

#include <utility>

#include "formats/error.h"
#include "formats/families/gguf_model.h"
#include "formats/families/meta_llama.h"
#include "formats/gguf.h"
#include "formats/hub_cache.h"
#include "formats/layout_file.h"
#include "formats/llama2c.h"
#include "formats/meta_checkpoint.h"
#include "formats/printable.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

// A model that is one file, without a config.
ModelDirectory lone_file(const fs::path& path, Checkpoint checkpoint) {
  return {path, "", Json::object(), std::move(checkpoint), {}};
}

Model open_gguf_model(const fs::path& path) {
  GgufFile file = open_gguf(path);
  std::vector<Checkpoint::Part> parts;
  parts.push_back(std::move(file.part));
  ModelDirectory model = lone_file(path, Checkpoint(std::move(parts)));
  ModelSpec spec = describe_gguf(file.metadata, model.checkpoint);
  return {std::move(model), Convention::kGguf, std::move(spec), std::move(file.metadata)};
}

Model open_meta_model(const fs::path& path) {
  ModelDirectory directory = open_meta_directory(path);
  const std::string where = printable((path / kMetaParamsFile).string(), 0);
  ModelSpec spec = describe_meta(directory.config, directory.checkpoint, where);
  return {std::move(directory), Convention::kMeta, std::move(spec), std::nullopt};
}

std::optional<Llama2cHeader> llama2c_header_of(const fs::path& path) {
  std::error_code fault;
  return fs::is_regular_file(path, fault) ? find_llama2c_header(File::open(path)) : std::nullopt;
}

Model open_llama2c_model(const fs::path& path, const Llama2cHeader& header) {
  return {lone_file(path, open_checkpoint(path)), Convention::kLlama2c, describe_llama2c(header),
          std::nullopt};
}

std::string_view name_of(Convention convention) {
  switch (convention) {
    case Convention::kHuggingFace: return "Hugging Face's";
    case Convention::kGguf: return "GGUF's";
    case Convention::kMeta: return "Meta's";
    case Convention::kLlama2c: return "llama2.c's";
  }
  return "";
}

}  // namespace

Model open_model(const fs::path& given, const OpenOptions& options) {
  const fs::path path = resolve_model_path(given);
  if (is_gguf_file(path)) {
    return open_gguf_model(path);
  }
  if (is_meta_directory(path)) {
    return open_meta_model(path);
  }
  if (const auto header = llama2c_header_of(path)) {
    return open_llama2c_model(path, *header);
  }
  ModelDirectory directory = open_model_directory(path);
  const std::string where = printable((directory.path / "config.json").string(), 0);
  ModelSpec spec =
      describe_model_or_layout(directory.config, directory.checkpoint, where, options.layout);
  return {std::move(directory), Convention::kHuggingFace, std::move(spec), std::nullopt};
}

void check_writable(const Model& model) {
  if (model.convention != Convention::kHuggingFace) {
    throw_usage("{}: a model in {} convention, which is read but not written here",
                printable(model.path.string(), 0), name_of(model.convention));
  }
}

std::optional<ModelSpec> describe_without_config(const fs::path& given,
                                                 const Checkpoint& checkpoint) {
  const fs::path path = resolve_model_path(given);
  if (is_gguf_file(path)) {
    const GgufMetadata metadata = open_gguf(path).metadata;
    return is_known_gguf_model(metadata) ? std::optional(describe_gguf(metadata, checkpoint))
                                         : std::nullopt;
  }
  if (is_meta_directory(path)) {
    const fs::path params = path / kMetaParamsFile;
    const std::string where = printable(params.string(), 0);
    const std::string text = read_text(params, kMaxConfigBytes);
    return describe_meta(parse_json_object(text, where), checkpoint, where);
  }
  const auto header = llama2c_header_of(path);
  return header ? std::optional(describe_llama2c(*header)) : std::nullopt;
}

}  // namespace regroup
