#include "formats/model/fingerprint.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "formats/base/checksum.h"
#include "formats/model/model.h"

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

}  // namespace regroup
