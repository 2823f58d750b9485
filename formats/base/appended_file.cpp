#include "formats/base/appended_file.h"

namespace regroup {

void AppendedFile::append(std::span<const std::byte> bytes) {
  constexpr std::size_t kBuffer = 1 << 20;
  if (buffer_.size() + bytes.size() > kBuffer) {
    flush();
  }
  if (bytes.size() > kBuffer) {
    file_.write_at(written_, bytes);
    written_ += bytes.size();
    return;
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void AppendedFile::flush() {
  file_.write_at(written_, buffer_);
  written_ += buffer_.size();
  buffer_.clear();
}

}  // namespace regroup
