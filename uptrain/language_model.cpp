#include "uptrain/language_model.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "formats/error.h"
#include "formats/families/family.h"
#include "formats/file.h"
#include "formats/printable.h"
#include "formats/staged_directory.h"
#include "uptrain/checksum.h"

namespace regroup {
ModelSource open_model_source(const std::filesystem::path& path) {
  ModelDirectory directory = open_model_directory(path);
  const std::string where = printable((directory.path / "config.json").string(), 0);
  ModelSpec spec = describe_model(directory.config, directory.checkpoint, where);
  if (!spec.not_computable.empty()) {
    throw_bad_input("{}: this model cannot be computed: {}", where, printable(spec.not_computable));
  }
  check_all_shapes(spec, directory.checkpoint);
  return {std::move(directory), std::move(spec)};
}

std::string fingerprint_of(const ModelSource& source) {
  constexpr std::uint64_t kSample = 4096;
  std::string digest = checksum_of(source.directory.config_text);
  std::vector<std::byte> sample;
  for (const TensorInfo& tensor : source.directory.checkpoint.tensors()) {
    digest += fmt::format("|{} {} {}", tensor.name, name_of(tensor.dtype), text_of(tensor.shape));
    const std::uint64_t bytes = std::min(kSample, tensor.end - tensor.begin);
    sample.resize(bytes);
    for (const std::uint64_t begin : {tensor.begin, tensor.end - bytes}) {
      source.directory.checkpoint.file_of(tensor).read_at(begin, sample);
      digest += checksum_of(sample);
    }
  }
  return checksum_of(digest);
}

Transformer load_transformer(const ModelSource& source, at::ScalarType type, at::Device device) {
  return Transformer(source.spec,
                     load_parameters(source.spec, source.directory.checkpoint, type, device));
}

void save_model(const ModelSource& source, const Parameters& parameters,
                const std::string& config_text, const std::filesystem::path& destination) {
  refuse_output_inside(source.directory, destination);
  StagedDirectory staged(destination);
  save_parameters(parameters, source.spec, source.directory.checkpoint, staged.path());
  write_text(staged.path() / "config.json", config_text);
  copy_companions(source.directory, staged.path());
  staged.publish();
}

}  // namespace regroup
