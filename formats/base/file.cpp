#include "formats/base/file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"

namespace regroup {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void throw_system(std::string_view action, const std::filesystem::path& path) {
  throw_environment("{}: cannot {}: {}", printable_path(path), action, std::strerror(errno));
}

struct stat status_of(int descriptor, const std::filesystem::path& path) {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) {
    throw_system("stat", path);
  }
  return status;
}

// An untrusted path may name anything. Reading a FIFO would block forever, and opening a device may
// have side effects.
void check_regular(int descriptor, const std::filesystem::path& path) {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    throw_bad_input("{}: not a regular file{}", printable_path(path),
                    S_ISDIR(status.st_mode) ? " but a directory" : "");
  }
}

// ENXIO: a socket, or a FIFO that nobody reads.
bool is_wrong_path(int code) {
  return contains(std::array{ENOENT, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG, ENXIO, EINVAL}, code);
}

fs::file_type type_of(const fs::path& path) {
  std::error_code fault;
  const fs::file_type type = fs::status(path, fault).type();
  if (fault && !is_wrong_path(fault.value())) {
    throw_cannot_open(path, fault.value());
  }
  return type;
}

}  // namespace

void Descriptor::close() {
  if (is_open()) {
    ::close(release());
  }
}

int open_without_waiting(const std::filesystem::path& path) {
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

File::File(std::filesystem::path path, Descriptor opened)
    : path_(std::move(path)), descriptor_(std::move(opened)) {
  const struct stat status = status_of(descriptor(), path_);
  size_ = static_cast<std::uint64_t>(status.st_size);
  modified_seconds_ = status.st_mtim.tv_sec;
  modified_nanoseconds_ = status.st_mtim.tv_nsec;
}

File File::open(const std::filesystem::path& path) {
  const int descriptor = open_without_waiting(path);
  if (descriptor < 0) {
    throw_cannot_open(path, errno);
  }
  File file(path, Descriptor(descriptor));
  check_regular(descriptor, path);
  return file;
}

File File::open_or_create(const std::filesystem::path& path) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  const int descriptor = ::open(path.c_str(), kFlags, 0666);
  if (descriptor < 0) {
    throw_system("open", path);
  }
  File file(path, Descriptor(descriptor));
  check_regular(descriptor, path);
  return file;
}

File File::create(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    throw_system("create", path);
  }
  return File(path, Descriptor(descriptor));
}

std::string File::where() const { return printable_path(path_); }

void File::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  start_reading(offset, out.size());
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor(), out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      throw_system("read", path_);
    }
    if (got == 0) {
      throw_bad_input("{}: ends at byte {}, {} more expected (truncated?)", where(), offset,
                      out.size());
    }
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

void File::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  const std::uint64_t begin = offset;
  while (!bytes.empty()) {
    const ssize_t put =
        ::pwrite(descriptor(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put <= 0) {
      throw_system("write", path_);
    }
    offset += static_cast<std::uint64_t>(put);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  start_writing(begin, offset - begin);
}

void File::truncate(std::uint64_t size) {
  if (::ftruncate(descriptor(), static_cast<off_t>(size)) != 0) {
    throw_system("truncate", path_);
  }
}

void File::check_unchanged() const {
  const struct stat status = status_of(descriptor(), path_);
  if (static_cast<std::uint64_t>(status.st_size) != size_ ||
      status.st_mtim.tv_sec != modified_seconds_ ||
      status.st_mtim.tv_nsec != modified_nanoseconds_) {
    throw_bad_input("{}: changed while it was being read", where());
  }
}

void File::sync_and_close() {
  const bool synced = ::fsync(descriptor()) == 0;
  const int sync_error = errno;
  const bool closed = ::close(descriptor_.release()) == 0;
  if (!synced || !closed) {
    errno = synced ? errno : sync_error;
    throw_system("write to the device", path_);
  }
}

bool path_exists(const std::filesystem::path& path) {
  std::error_code fault;
  return std::filesystem::status(path, fault).type() != std::filesystem::file_type::not_found;
}

std::filesystem::path existing_folder_above(const std::filesystem::path& path) {
  std::filesystem::path folder = path.parent_path();
  while (!folder.empty() && !path_exists(folder)) {
    folder = folder.parent_path();
  }
  return folder.empty() ? "." : folder;
}

std::string read_text(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const File file = File::open(path);
  if (file.size() > max_bytes) {
    throw_bad_input("{}: {} bytes, at most {} allowed", printable_path(path), file.size(),
                    max_bytes);
  }
  std::string text = read_bytes(file, 0, file.size());
  if (text.starts_with(kLfsPointer)) {
    throw_bad_input("{}: a git-LFS pointer, git lfs pull downloads the file", printable_path(path));
  }
  return text;
}

std::string read_bytes(const File& file, std::uint64_t offset, std::uint64_t count) {
  std::string bytes(count, '\0');
  file.read_at(offset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::string read_start(const File& file, std::uint64_t most) {
  return read_bytes(file, 0, std::min(file.size(), most));
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  File file = File::create(path);
  file.write_at(0, text);
  file.sync_and_close();
}

void sync_directory(const std::filesystem::path& path) {
  const Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.is_open()) {
    throw_system("open", path);
  }
  if (::fsync(directory.number()) != 0 && errno != EINVAL) {  // EINVAL: not supported
    throw_system("write to the device", path);
  }
}

void throw_cannot_open(const fs::path& path, int code) {
  const std::string shown = printable_path(path);
  if (is_wrong_path(code)) {
    throw_bad_input("{}: cannot open: {}", shown, std::strerror(code));
  }
  throw_environment("{}: cannot open: {}{}", shown, std::strerror(code),
                    code == EMFILE ? " (`ulimit -n` raises the limit)" : "");
}

bool is_directory_there(const fs::path& path) { return type_of(path) == fs::file_type::directory; }

bool is_file_there(const fs::path& path) { return type_of(path) == fs::file_type::regular; }

std::vector<fs::directory_entry> entries_in(const fs::path& directory) {
  std::error_code fault;
  std::vector<fs::directory_entry> entries = entries_in(directory, fault);
  if (fault) {
    throw_cannot_open(directory, fault.value());
  }
  return entries;
}

std::vector<fs::directory_entry> entries_in(const fs::path& directory, std::error_code& fault) {
  std::vector<fs::directory_entry> entries;
  for (fs::directory_iterator entry(directory, fault), end; !fault && entry != end;
       entry.increment(fault)) {
    entries.push_back(*entry);
  }
  return entries;
}

// The functions of File that copy ranges of bytes.

namespace {

// Large enough to stream, and small enough for reading, copying and writing to overlap.
constexpr std::uint64_t kChunk = 16U << 20, kAhead = 2 * kChunk;

// Below this, prefetching and direct writes gain nothing.
constexpr std::uint64_t kWorthStarting = 1U << 20;

// The errors of filesystems that do not support the call in general or for that file.
bool cannot_copy_in_kernel(int fault) {
  return contains(std::array{EXDEV, ENOSYS, EOPNOTSUPP, EINVAL, EPERM}, fault);
}

// Moves pages from the page cache to a device without copying.
class Pipe {
 public:
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) == 0) {
      read_end_ = Descriptor(ends[0]);
      write_end_ = Descriptor(ends[1]);
      capacity_ = ::fcntl(ends[1], F_SETPIPE_SZ, kWorthStarting);
    }
  }

  // Writes smaller than this are slower than copying.
  bool holds_enough() const { return capacity_ >= static_cast<int>(kWorthStarting); }

  // Moves up to `length` bytes and returns their number. Both offsets and the length must be whole
  // blocks. If fewer bytes can be written than were read, the pipe is blocked from then on.
  std::uint64_t move(int from, std::uint64_t from_at, int to, std::uint64_t to_at,
                     std::uint64_t length) {
    auto source_at = static_cast<off_t>(from_at);
    const ssize_t taken =
        ::splice(from, &source_at, write_end_.number(), nullptr,
                 std::min<std::uint64_t>(length, static_cast<std::uint64_t>(capacity_)), 0);
    auto target_at = static_cast<off_t>(to_at);
    ssize_t given = 0;
    while (given < taken) {
      const ssize_t part = ::splice(read_end_.number(), nullptr, to, &target_at,
                                    static_cast<std::size_t>(taken - given), 0);
      if (part <= 0) {
        break;
      }
      given += part;
    }
    blocked_ = taken <= 0 || given < taken;
    return static_cast<std::uint64_t>(given);
  }
  bool blocked() const { return blocked_; }

 private:
  Descriptor read_end_, write_end_;
  int capacity_ = -1;
  bool blocked_ = false;
};

void copy_through_memory(const File& source, File& target, std::uint64_t source_offset,
                         std::uint64_t offset, std::uint64_t length) {
  std::vector<std::byte> buffer(std::min<std::uint64_t>(length, 4U << 20));
  while (length > 0) {
    const auto chunk = std::span(buffer).first(std::min<std::uint64_t>(length, buffer.size()));
    source.read_at(source_offset, chunk);
    target.write_at(offset, chunk);
    source_offset += chunk.size();
    offset += chunk.size();
    length -= chunk.size();
  }
}

void copy_in_kernel(const File& source, File& target, std::uint64_t source_offset,
                    std::uint64_t offset, std::uint64_t length) {
  source.start_reading(source_offset, std::min(length, kChunk));
  while (length > 0) {
    auto from = static_cast<off_t>(source_offset);
    auto to = static_cast<off_t>(offset);
    const std::uint64_t chunk = std::min(length, kChunk);
    source.start_reading(source_offset + chunk, std::min(length - chunk, kChunk));
    const ssize_t moved =
        ::copy_file_range(source.descriptor(), &from, target.descriptor(), &to, chunk, 0);
    if (moved < 0 && errno == EINTR) {
      continue;
    }
    if (moved < 0 && cannot_copy_in_kernel(errno)) {
      copy_through_memory(source, target, source_offset, offset, length);
      return;
    }
    if (moved < 0) {
      throw_system("write", target.path());
    }
    if (moved == 0) {
      throw_bad_input("{}: ends at byte {}, {} more expected (truncated?)", source.where(),
                      source_offset, length);
    }
    target.start_writing(offset, static_cast<std::uint64_t>(moved));
    source_offset += static_cast<std::uint64_t>(moved);
    offset += static_cast<std::uint64_t>(moved);
    length -= static_cast<std::uint64_t>(moved);
  }
}

// Shares whole blocks, or moves them from the page cache to the device. Returns the bytes copied:
// as many from the beginning as it could.
std::uint64_t copy_blocks(const File& source, File& target, std::uint64_t source_offset,
                          std::uint64_t offset, std::uint64_t length) {
  file_clone_range range{source.descriptor(), source_offset, length, offset};
  if (::ioctl(target.descriptor(), FICLONERANGE, &range) == 0) {
    return length;
  }
  const Descriptor direct(::open(target.path().c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC));
  Pipe pipe;
  // Space that is allocated at once is contiguous. A filesystem without fallocate allocates it
  // while writing.
  if (!direct.is_open() || !pipe.holds_enough() ||
      (::fallocate(target.descriptor(), 0, static_cast<off_t>(offset),
                   static_cast<off_t>(length)) != 0 &&
       errno != EOPNOTSUPP)) {
    return 0;
  }
  source.start_reading(source_offset, std::min(length, kAhead));
  std::uint64_t done = 0;
  while (done < length && !pipe.blocked()) {
    if (done % kChunk == 0 && done + kAhead < length) {
      source.start_reading(source_offset + done + kAhead, kChunk);
    }
    const std::uint64_t part = std::min(length - done, kChunk - done % kChunk);
    done +=
        pipe.move(source.descriptor(), source_offset + done, direct.number(), offset + done, part);
  }
  return done;
}

}  // namespace

void File::copy_from(const File& source, std::uint64_t source_offset, std::uint64_t offset,
                     std::uint64_t length) {
  const std::uint64_t head = std::min(length, -source_offset % kSharedBlock);
  const std::uint64_t blocks = (length - head) / kSharedBlock * kSharedBlock;
  std::uint64_t done = 0;
  if (blocks > 0 && (offset - source_offset) % kSharedBlock == 0) {
    done = copy_blocks(source, *this, source_offset + head, offset + head, blocks);
  }
  if (done > 0) {
    copy_in_kernel(source, *this, source_offset, offset, head);
    done += head;
  }
  copy_in_kernel(source, *this, source_offset + done, offset + done, length - done);
}

bool File::shares_blocks_with(const std::filesystem::path& directory) const {
  const Descriptor probe(::open(directory.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  file_clone_range range{descriptor(), 0, kSharedBlock, 0};
  return probe.is_open() && size_ >= kSharedBlock &&
         ::ioctl(probe.number(), FICLONERANGE, &range) == 0;
}

// Only a hint: errors appear when the bytes are read. For small ranges, the kernel's own readahead
// is better.
void File::start_reading(std::uint64_t offset, std::uint64_t length) const {
  if (length >= kWorthStarting) {
    ::posix_fadvise(descriptor(), static_cast<off_t>(offset), static_cast<off_t>(length),
                    POSIX_FADV_WILLNEED);
  }
}

// Starts writing now, so that the final fsync is short. Only a hint: fsync still reports device
// errors.
void File::start_writing(std::uint64_t offset, std::uint64_t length) {
  if (length >= kWorthStarting) {
    ::sync_file_range(descriptor(), static_cast<off_t>(offset), static_cast<off_t>(length),
                      SYNC_FILE_RANGE_WRITE);
  }
}

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
