// Files: the one place where they are opened, read, written, copied and appended to.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace regroup {

/// Closes a file descriptor at the end of its scope.
class Descriptor {
 public:
  /// Negative: none.
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }

  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }
  /// The number, which the caller closes.
  int release() { return std::exchange(number_, -1); }
  void close();

 private:
  int number_;
};

// Every error message names the path.

/// Block size in bytes for sharing extents between files (XFS, btrfs) and for direct I/O. A copy is
/// cheap or free if its two offsets are equal modulo this size.
inline constexpr std::uint64_t kSharedBlock = 4096;

/// An open regular file. Weights are read with pread, never mapped. Truncating a mapped file kills
/// the reader with SIGBUS; a short pread is an error that can be reported.
class File {
 public:
  /// Opens for reading. Throws kBadInput unless `path` is (or links to) a regular file.
  static File open(const std::filesystem::path& path);

  /// Creates a new file for writing. Throws kEnvironment, also when `path` exists.
  static File create(const std::filesystem::path& path);

  /// Opens `path` for reading and writing, and creates it if needed. Throws kBadInput unless it is
  /// (or links to) a regular file, kEnvironment if it cannot be opened.
  static File open_or_create(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  /// The path, for messages.
  std::string where() const;
  int descriptor() const { return descriptor_.number(); }

  /// Size in bytes at the time of opening.
  std::uint64_t size() const { return size_; }

  /// Fills `out` from byte `offset`; throws kBadInput if the file is too short.
  void read_at(std::uint64_t offset, std::span<std::byte> out) const;

  /// Writes all of `bytes` at byte `offset`.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  void write_at(std::uint64_t offset, std::string_view text) {
    write_at(offset, std::as_bytes(std::span(text)));
  }

  /// Truncates the file to `size` bytes.
  void truncate(std::uint64_t size);

  /// Hints that these bytes will be read soon, or will not be written again, so that I/O can start.
  void start_reading(std::uint64_t offset, std::uint64_t length) const;
  void start_writing(std::uint64_t offset, std::uint64_t length);

  /// Copies `length` bytes of `source` from `source_offset` to `offset`. Whole blocks (see
  /// kSharedBlock) are shared if the filesystem supports it; otherwise they are written to the
  /// device straight from the page cache. Everything else is copied inside the kernel, or through a
  /// small buffer if the kernel cannot.
  void copy_from(const File& source, std::uint64_t source_offset, std::uint64_t offset,
                 std::uint64_t length);

  /// Whether copy_from() can share this file's blocks with a file in `directory`. False if that
  /// cannot be tested.
  bool shares_blocks_with(const std::filesystem::path& directory) const;

  /// Throws kBadInput if the size or modification time changed since the file was opened.
  void check_unchanged() const;

  /// Flushes to the device and closes. After an error the file must be discarded, not retried.
  void sync_and_close();

 private:
  File(std::filesystem::path path, Descriptor opened);

  std::filesystem::path path_;
  Descriptor descriptor_;
  std::uint64_t size_ = 0;
  std::int64_t modified_seconds_ = 0;
  std::int64_t modified_nanoseconds_ = 0;
};

/// Opens `path`, which may be a pipe, for reading. Returns -1 and sets errno on failure. Never
/// blocks, even for a FIFO without a writer. Only this function and File open files.
int open_without_waiting(const std::filesystem::path& path);

/// Whether `path` exists. A path that cannot be examined counts as existing; opening it reports the
/// reason.
bool path_exists(const std::filesystem::path& path);

/// The nearest folder above `path` that is there; "." if `path` names none that is.
std::filesystem::path existing_folder_above(const std::filesystem::path& path);

/// Reads a whole small file as text. Throws kBadInput if it is larger than `max_bytes`, or a
/// pointer of git-LFS in its place.
std::string read_text(const std::filesystem::path& path, std::uint64_t max_bytes);

/// Creates `path`, writes `text` and flushes it to the device.
void write_text(const std::filesystem::path& path, std::string_view text);

/// Flushes a directory's entries to the device.
void sync_directory(const std::filesystem::path& path);

/// Bytes [offset, offset + count). Throws like File::read_at().
std::string read_bytes(const File& file, std::uint64_t offset, std::uint64_t count);

/// The first `most` bytes, or all if there are fewer.
std::string read_start(const File& file, std::uint64_t most);

// Little-endian numbers in bytes and in files.

static_assert(std::endian::native == std::endian::little, "numbers are stored in memory order");

/// The number at byte `at`; all its bytes must be there.
template <typename T>
T number_at(std::string_view bytes, std::uint64_t at = 0) {
  T number;
  std::memcpy(&number, bytes.data() + at, sizeof(T));
  return number;
}

template <typename T>
void append_number(std::string& bytes, T number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(T));
}

/// The number at byte `offset`. Throws like File::read_at().
template <typename T>
T read_number(const File& file, std::uint64_t offset) {
  std::array<std::byte, sizeof(T)> bytes;
  file.read_at(offset, bytes);
  return std::bit_cast<T>(bytes);
}

// Errors for paths that cannot be opened or examined.

/// Throws the error for a call on `path` that failed with errno `code`: kBadInput if the path is
/// wrong (it does not exist or is not a file), kEnvironment otherwise (for example missing
/// permission or too many open files).
[[noreturn]] void throw_cannot_open(const std::filesystem::path& path, int code);

/// Whether `path` is an existing directory or a regular file, respectively. Throws like
/// throw_cannot_open() if that cannot be determined: a directory that cannot be entered does not
/// count as absent.
bool is_directory_there(const std::filesystem::path& path);
bool is_file_there(const std::filesystem::path& path);

/// What a directory holds, in any order. Throws like throw_cannot_open() if it cannot be listed to
/// its end; with `fault`, returns what could be listed.
std::vector<std::filesystem::directory_entry> entries_in(const std::filesystem::path& directory);
std::vector<std::filesystem::directory_entry> entries_in(const std::filesystem::path& directory,
                                                         std::error_code& fault);

/// A new file that is written sequentially through a buffer.
class AppendedFile {
 public:
  /// Throws kEnvironment, also when `path` exists.
  explicit AppendedFile(const std::filesystem::path& path) : file_(File::create(path)) {}

  void append(std::span<const std::byte> bytes);
  void append(std::string_view text) { append(std::as_bytes(std::span(text))); }

  /// Writes the buffered bytes to the file.
  void flush();

  /// Bytes appended so far.
  std::uint64_t size() const { return written_ + buffer_.size(); }

  /// The underlying file. Flushed bytes can be read from it and overwritten.
  File& file() { return file_; }

 private:
  File file_;
  std::vector<std::byte> buffer_;
  std::uint64_t written_ = 0;
};

// What the first bytes of a file say about it, where text or token ids are expected.

/// A format that is neither text nor token ids.
struct FileKind {
  std::string_view name;     ///< for example "a Parquet file"
  std::string_view reader;   ///< a shell command that writes the text in FILE; empty: none is known
  bool hidden_text = false;  ///< text in another encoding
};

/// The beginning of what git leaves in place of a large file that git-LFS did not download.
inline constexpr std::string_view kLfsPointer = "version https://git-lfs.github.com/spec/";

/// The format that `start`, the first bytes of a file (64 KiB are enough), belongs to; nothing if
/// none is recognised.
std::optional<FileKind> kind_of_bytes(std::string_view start);

/// Whether the bytes are mostly text, in an encoding that extends ASCII.
bool is_text(std::string_view sample);

/// Whether the bytes are no text of any such encoding: some in a hundred are control characters.
bool is_binary(std::string_view sample);

}  // namespace regroup
