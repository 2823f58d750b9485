// Reads text line by line from a file, a pipe or standard input of any length.
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
  /// "-" is standard input. Throws kBadInput if the input cannot be read.
  TextStream(const std::string& name, const std::atomic<bool>& stop);
  TextStream(const TextStream&) = delete;
  TextStream& operator=(const TextStream&) = delete;
  ~TextStream();

  /// The first kTextSample bytes, or all if there are fewer, valid until the next call. To be
  /// called before next(). Throws as next() does.
  std::string_view start();

  /// Leaves out that many bytes, which start() has shown.
  void skip(std::size_t bytes);

  /// Reads the next line with its line end, valid until the next call. Lines longer than 1 MiB are
  /// returned in parts of that size. Returns false at the end. Throws kBadInput if the file changed
  /// meanwhile, kInterrupted soon after `stop` becomes true.
  bool next(std::string_view& line);

  /// The input's name, for messages.
  const std::string& name() const { return name_; }
  /// Size of a regular file in bytes; 0 for other inputs.
  std::uint64_t size() const { return file_ ? file_->size() : 0; }
  /// Bytes returned by next() so far.
  std::uint64_t given() const { return given_; }

 private:
  bool read_block();
  std::size_t read_from_file(std::span<char> room);
  std::size_t read_from_pipe(std::span<char> room) const;

  std::string name_;
  const std::atomic<bool>& stop_;
  std::optional<File> file_;  // set for a regular file
  int pipe_ = -1;             // set otherwise
  std::string buffer_;
  std::size_t at_ = 0;       // next byte to return, in buffer_
  std::size_t scanned_ = 0;  // no line end before this
  std::uint64_t read_ = 0, given_ = 0;
};

}  // namespace regroup
