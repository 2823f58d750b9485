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

Model open_computable_model(const std::filesystem::path& path) {
  Model model = open_model(path);
  if (!model.spec.not_computable.empty()) {
    throw_bad_input("{}: this model cannot be computed: {}", printable(path.string(), 0),
                    printable(model.spec.not_computable));
  }
  check_all_shapes(model.spec, model.checkpoint);
  return model;
}

namespace {

// Of the first and the last bytes of a range.
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

std::string fingerprint_of(const Model& source) {
  std::string digest = checksum_of(source.config_text);
  for (const TensorInfo& tensor : source.checkpoint.tensors()) {
    digest += fmt::format("|{} {} {}", tensor.name, name_of(tensor.dtype), text_of(tensor.shape));
    if (tensor.pieces.empty()) {
      digest += sample_checksums(source.checkpoint, tensor);
    }
    for (const TensorInfo& piece : tensor.pieces) {
      digest += sample_checksums(source.checkpoint, piece);
    }
  }
  return checksum_of(digest);
}

Transformer load_transformer(const Model& source, at::ScalarType type, at::Device device) {
  return Transformer(source.spec, load_parameters(source.spec, source.checkpoint, type, device));
}

void save_model(const Model& source, const Parameters& parameters, const std::string& config_text,
                const std::filesystem::path& destination) {
  refuse_output_inside(source, destination);
  StagedDirectory staged(destination);
  save_parameters(parameters, source.spec, source.checkpoint, staged.path());
  write_text(staged.path() / "config.json", config_text);
  copy_companions(source, staged.path());
  staged.publish();
}

}  // namespace regroup
