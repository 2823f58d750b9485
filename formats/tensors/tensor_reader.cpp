#include "formats/tensors/tensor_reader.h"

#include <algorithm>
#include <cstring>

namespace regroup {

TensorReader::TensorReader(const Checkpoint& checkpoint, const TensorInfo& tensor)
    : checkpoint_(checkpoint), tensor_(tensor), bytes_(tensor.bytes()), ranges_(ranges_of(tensor)) {
  if (ranges_.empty()) {
    whole_.resize(bytes_);
    checkpoint_.read(tensor_, whole_);
  }
}

void TensorReader::start() const {
  for (const ByteRange& range : ranges_) {
    checkpoint_.files()[range.file].start_reading(range.begin, range.end - range.begin);
  }
}

void TensorReader::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  if (ranges_.empty()) {
    std::memcpy(out.data(), whole_.data() + offset, out.size());
    return;
  }
  std::uint64_t begin = 0;  // of the range, in the tensor
  for (const ByteRange& range : ranges_) {
    const std::uint64_t size = range.end - range.begin;
    if (!out.empty() && offset < begin + size) {
      const std::uint64_t skip = offset - begin;
      const auto part = out.first(std::min<std::uint64_t>(out.size(), size - skip));
      checkpoint_.files()[range.file].read_at(range.begin + skip, part);
      offset += part.size();
      out = out.subspan(part.size());
    }
    begin += size;
  }
}

void for_each_part(const TensorReader& reader,
                   const std::function<void(std::uint64_t, std::span<const std::byte>)>& visit) {
  const std::size_t at_once = bytes_of_elements(reader.tensor().dtype, kElementsAtATime);
  std::vector<std::byte> bytes(std::min<std::uint64_t>(at_once, reader.bytes()));
  std::uint64_t first = 0;
  for (std::uint64_t at = 0; at < reader.bytes(); at += bytes.size()) {
    const auto part =
        std::span(bytes).first(std::min<std::uint64_t>(bytes.size(), reader.bytes() - at));
    reader.read_at(at, part);
    visit(first, part);
    first += kElementsAtATime;
  }
}

bool same_contents(const Checkpoint& checkpoint, const TensorInfo& a, const TensorInfo& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) {
    return false;
  }
  if (a.contiguous() && b.contiguous() && a.file == b.file && a.begin == b.begin) {
    return true;
  }
  const TensorReader one(checkpoint, a), other(checkpoint, b);
  const std::size_t at_once = bytes_of_elements(a.dtype, kElementsAtATime);
  std::vector<std::byte> some, same;
  for (std::uint64_t at = 0; at < one.bytes(); at += at_once) {
    some.resize(std::min<std::uint64_t>(at_once, one.bytes() - at));
    same.resize(some.size());
    one.read_at(at, some);
    other.read_at(at, same);
    if (some != same) {
      return false;
    }
  }
  return true;
}

}  // namespace regroup
