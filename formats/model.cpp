#include "formats/model.h"

#include <utility>

#include "formats/families/family.h"
#include "formats/families/gguf_model.h"
#include "formats/gguf.h"
#include "formats/printable.h"

namespace regroup {
namespace {

Model open_gguf_model(const std::filesystem::path& path) {
  GgufFile file = open_gguf(path);
  std::vector<Checkpoint::Part> parts;
  parts.push_back(std::move(file.part));
  ModelDirectory model{path, "", Json::object(), Checkpoint(std::move(parts)), {}};
  ModelSpec spec = describe_gguf(file.metadata, model.checkpoint);
  return {std::move(model), Convention::kGguf, std::move(spec), std::move(file.metadata)};
}

}  // namespace

Model open_model(const std::filesystem::path& path) {
  if (is_gguf_file(path)) {
    return open_gguf_model(path);
  }
  ModelDirectory directory = open_model_directory(path);
  const std::string where = printable((directory.path / "config.json").string(), 0);
  ModelSpec spec = describe_model(directory.config, directory.checkpoint, where);
  return {std::move(directory), Convention::kHuggingFace, std::move(spec), std::nullopt};
}

}  // namespace regroup
