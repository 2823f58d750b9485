// Text as it comes: a file, a pipe or standard input, line by line, of any length.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/base/file.h"

namespace regroup {

class TextStream {
 public:
  /// "-" is standard input. Throws kBadInput for what cannot be read or is compressed.
  TextStream(const std::string& name, const std::atomic<bool>& stop);
  TextStream(const TextStream&) = delete;
  TextStream& operator=(const TextStream&) = delete;
  ~TextStream();

  /// The next line with its end, valid until the next call; of a line longer than 1 MiB the next so
  /// many bytes of it. False when there is none left. Throws kBadInput where the file has changed
  /// meanwhile, kInterrupted soon after `stop` turns true.
  bool next(std::string_view& line);

  /// For messages.
  const std::string& name() const { return name_; }
  /// Bytes of a regular file; 0 for what has no size.
  std::uint64_t size() const { return file_ ? file_->size() : 0; }
  /// Bytes that next() has given.
  std::uint64_t given() const { return given_; }

 private:
  bool read_block();
  std::size_t read_from_file(std::span<char> room);
  std::size_t read_from_pipe(std::span<char> room) const;
  void refuse_compressed() const;

  std::string name_;
  const std::atomic<bool>& stop_;
  std::optional<File> file_;  // a regular one
  int pipe_ = -1;             // else
  std::string buffer_;
  std::size_t at_ = 0;       // of what next() gives, in buffer_
  std::size_t scanned_ = 0;  // no line ends ahead of this
  std::uint64_t read_ = 0, given_ = 0;
};

}  // namespace regroup
