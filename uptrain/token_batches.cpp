#include "uptrain/token_batches.h"

#include <ATen/ops/empty.h>

#include "formats/error.h"
#include "formats/printable.h"
#include "uptrain/permutation.h"

namespace regroup {

TokenBatches::TokenBatches(const std::vector<std::filesystem::path>& paths,
                           std::int64_t sequence_length, std::int64_t vocab_size,
                           std::uint64_t seed)
    : sequence_length_(sequence_length), seed_(seed) {
  for (const std::filesystem::path& path : paths) {
    files_.push_back(TokenFile::open(path));
    const TokenFile& file = files_.back();
    if (windows_of(file) == 0) {
      throw_bad_input("{}: {} tokens, one sequence needs {} (its length and the token after it)",
                      printable(path.string(), 0), file.size(), sequence_length + 1);
    }
    file.check_vocabulary(vocab_size);
    windows_ += windows_of(file);
  }
}

std::int64_t TokenBatches::tokens() const {
  std::int64_t total = 0;
  for (const TokenFile& file : files_) {
    total += file.size();
  }
  return total;
}

std::int64_t TokenBatches::windows_of(const TokenFile& file) const {
  return (file.size() - 1) / sequence_length_;
}

at::Tensor TokenBatches::batch(std::int64_t first, std::int64_t count) const {
  const std::int64_t width = sequence_length_ + 1;
  at::Tensor ids = at::empty({count, width}, at::kLong);
  const std::span<std::int64_t> all(ids.mutable_data_ptr<std::int64_t>(), count * width);
  for (std::int64_t i = 0; i < count; ++i) {
    read_window(first + i, all.subspan(i * width, width));
  }
  return ids;
}

void TokenBatches::read_window(std::int64_t sample, std::span<std::int64_t> ids) const {
  const std::uint64_t epoch = sample / windows_;
  auto window = static_cast<std::int64_t>(
      Permutation(windows_, seed_, epoch)(static_cast<std::uint64_t>(sample % windows_)));
  auto file = files_.begin();
  while (window >= windows_of(*file)) {
    window -= windows_of(*file++);
  }
  const std::int64_t spare = file->size() - 1 - windows_of(*file) * sequence_length_;
  const auto phase = static_cast<std::int64_t>(mix(~seed_, epoch) % (spare + 1));
  file->read(phase + window * sequence_length_, ids);
}

}  // namespace regroup
