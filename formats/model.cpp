#include "formats/model.h"

#include <utility>

#include "formats/families/family.h"
#include "formats/printable.h"

namespace regroup {

Model open_model(const std::filesystem::path& path) {
  ModelDirectory directory = open_model_directory(path);
  const std::string where = printable((directory.path / "config.json").string(), 0);
  ModelSpec spec = describe_model(directory.config, directory.checkpoint, where);
  return {std::move(directory), Convention::kHuggingFace, std::move(spec)};
}

}  // namespace regroup
