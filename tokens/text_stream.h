// Text as a stream: UTF-8 that is checked, where it can be cut, and its lines.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "formats/base/file.h"

namespace regroup {

// Compressed text as a stream of bytes: gzip by zlib, zstd by libzstd, as far as the build has
// them.

/// Fills `room` from the front with the next bytes and returns how many there were: 0 only at the
/// end.
using ByteSource = std::function<std::size_t(std::span<char> room)>;

/// The text of compressed data that begins with `start` and goes on in `source`; empty if it is not
/// compressed in these ways. `start` must not be empty and hold all that `source` has given. `name`
/// is for messages. Throws kUsage in a build without the library. Memory does not depend on what
/// the data says: reading throws kBadInput for data that is damaged, incomplete, needs a window
/// above 128 MiB, or is a thousand times smaller than its text.
ByteSource decompressed(std::string_view start, ByteSource source, const std::string& name);

// Replaces invalid UTF-8, and finds places to cut text.

inline constexpr std::string_view kTextSpaces = " \t\r\n";

/// `text` with each invalid byte replaced by U+FFFD.
std::string with_replacements(std::string_view text);

/// The place to cut `text`, at most `most` bytes in: before the last single space between two other
/// characters, where tokenizers cut as well. If there is none in the second half, before the last
/// white space that follows a non-space, or else between two characters. Never 0 if `most` is at
/// least 4.
std::size_t cut_of_text(std::string_view text, std::size_t most);

/// So many bytes of an input are enough to decide what it holds.
inline constexpr std::size_t kTextSample = 64U << 10;

// Reads text line by line from a file, a pipe or standard input of any length. What is compressed
// with gzip or zstd, by its first bytes, is decompressed.

class TextStream {
 public:
  /// "-" is standard input. Throws kBadInput if the input cannot be read.
  TextStream(const std::string& name, const std::atomic<bool>& stop);
  TextStream(const TextStream&) = delete;
  TextStream& operator=(const TextStream&) = delete;

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
  /// Bytes returned by next() so far.
  std::uint64_t given() const { return given_; }
  /// The same in stored bytes: of a compressed input, the bytes read.
  std::uint64_t position() const { return decompressed_ ? read_ : given_; }

 private:
  bool read_block();
  std::size_t read_text(std::span<char> room);
  std::size_t read_stored(std::span<char> room);
  std::size_t read_from_file(std::span<char> room);
  std::size_t read_from_pipe(std::span<char> room) const;

  std::string name_;
  const std::atomic<bool>& stop_;
  std::optional<File> file_;  // set for a regular file
  Descriptor pipe_;           // set otherwise
  ByteSource decompressed_;   // set for a compressed one, once it is read
  std::string buffer_;
  std::size_t at_ = 0;       // next byte to return, in buffer_
  std::size_t scanned_ = 0;  // no line end before this
  std::uint64_t read_ = 0, given_ = 0;
};

}  // namespace regroup
