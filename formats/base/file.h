// Files as descriptors that close themselves; every failure names its path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace regroup {

/// Filesystems share (XFS, btrfs) and devices take whole blocks of this many bytes: a copy whose
/// two offsets are the same modulo it costs nothing or little.
inline constexpr std::uint64_t kSharedBlock = 4096;

/// An open regular file. Weights are read with pread, never mapped: a file that is truncated
/// under a mapping kills the reader with SIGBUS, a short pread is an error one can report.
class File {
 public:
  /// Opens for reading. Throws kBadInput unless `path` is (or links to) a regular file.
  static File open(const std::filesystem::path& path);

  /// Creates a new file for writing. Throws kEnvironment, also when `path` exists.
  static File create(const std::filesystem::path& path);

  /// Opens for reading and writing what is there, or creates it. Throws kBadInput unless it is (or
  /// links to) a regular file, kEnvironment where it cannot be opened.
  static File open_or_create(const std::filesystem::path& path);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_; }

  /// Size in bytes when it was opened.
  std::uint64_t size() const { return size_; }

  /// Fills `out` from byte `offset`; throws kBadInput if the file ends before.
  void read_at(std::uint64_t offset, std::span<std::byte> out) const;

  /// Writes all of `bytes` at byte `offset`.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);

  /// Cuts off what follows the first `size` bytes.
  void truncate(std::uint64_t size);

  /// Hints that these bytes will be read soon, or not be written again: the device may begin.
  void start_reading(std::uint64_t offset, std::uint64_t length) const;
  void start_writing(std::uint64_t offset, std::uint64_t length);

  /// Copies `length` bytes of `source` from `source_offset` to `offset`. Whole blocks (see
  /// kSharedBlock) are shared with it where the filesystem can, else written to the device from
  /// where they lie in the page cache; the rest, and what that is impossible for, is copied inside
  /// the kernel, else through a small buffer.
  void copy_from(const File& source, std::uint64_t source_offset, std::uint64_t offset,
                 std::uint64_t length);

  /// Whether copy_from() lets a file in `directory` share this one's blocks; false if that cannot
  /// be tried.
  bool shares_blocks_with(const std::filesystem::path& directory) const;

  /// Throws kBadInput if the file was changed since it was opened (size or modification time).
  void check_unchanged() const;

  /// Flushes to the device and closes. After an error the file must be discarded, not retried.
  void sync_and_close();

 private:
  File(std::filesystem::path path, int descriptor);
  std::uint64_t copy_blocks(const File& source, std::uint64_t source_offset, std::uint64_t offset,
                            std::uint64_t length);
  void copy_in_kernel(const File& source, std::uint64_t source_offset, std::uint64_t offset,
                      std::uint64_t length);
  void copy_through_memory(const File& source, std::uint64_t source_offset, std::uint64_t offset,
                           std::uint64_t length);

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  std::int64_t modified_seconds_ = 0;
  std::int64_t modified_nanoseconds_ = 0;
};

/// A descriptor to read what `path` names, be it a pipe; -1 with errno where that fails. Never
/// waits: opening a FIFO that nobody writes to would. Files are opened here and by File alone.
int open_without_waiting(const std::filesystem::path& path);

/// Whether there is something under that name. What cannot be looked at counts as there: opening it
/// says why.
bool path_exists(const std::filesystem::path& path);

/// The whole of a small file as text. Throws kBadInput when it is larger than `max_bytes`.
std::string read_text(const std::filesystem::path& path, std::uint64_t max_bytes);

/// Creates `path` with `text`, flushed to the device.
void write_text(const std::filesystem::path& path, std::string_view text);

/// Flushes a directory's entries to the device.
void sync_directory(const std::filesystem::path& path);

}  // namespace regroup
