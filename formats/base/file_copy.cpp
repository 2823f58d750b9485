// The functions of File that copy ranges of bytes.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <vector>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

// Large enough to stream, and small enough for reading, copying and writing to overlap.
constexpr std::uint64_t kChunk = 16U << 20, kAhead = 2 * kChunk;

// Below this, prefetching and direct writes gain nothing.
constexpr std::uint64_t kWorthStarting = 1U << 20;

// The errors of filesystems that do not support the call in general or for that file.
bool cannot_copy_in_kernel(int fault) {
  return fault == EXDEV || fault == ENOSYS || fault == EOPNOTSUPP || fault == EINVAL ||
         fault == EPERM;
}

// A file descriptor that is closed at the end of its scope.
struct Descriptor {
  explicit Descriptor(int opened) : number(opened) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number >= 0) {
      ::close(number);
    }
  }
  int number;
};

// Moves pages from the page cache to a device without copying.
class Pipe {
 public:
  Pipe() : Pipe(open_ends()) {}

  // Writes smaller than this are slower than copying.
  bool holds_enough() const { return capacity_ >= static_cast<int>(kWorthStarting); }

  // Moves up to `length` bytes and returns their number. Both offsets and the length must be whole
  // blocks. If fewer bytes can be written than were read, the pipe is blocked from then on.
  std::uint64_t move(int from, std::uint64_t from_at, int to, std::uint64_t to_at,
                     std::uint64_t length) {
    auto source_at = static_cast<off_t>(from_at);
    const ssize_t taken =
        ::splice(from, &source_at, write_end_.number, nullptr,
                 std::min<std::uint64_t>(length, static_cast<std::uint64_t>(capacity_)), 0);
    auto target_at = static_cast<off_t>(to_at);
    ssize_t given = 0;
    while (given < taken) {
      const ssize_t part = ::splice(read_end_.number, nullptr, to, &target_at,
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
  explicit Pipe(const std::array<int, 2>& ends)
      : read_end_(ends[0]),
        write_end_(ends[1]),
        capacity_(::fcntl(ends[1], F_SETPIPE_SZ, kWorthStarting)) {}

  static std::array<int, 2> open_ends() {
    std::array<int, 2> ends{-1, -1};
    return ::pipe2(ends.data(), O_CLOEXEC) == 0 ? ends : std::array{-1, -1};
  }

  Descriptor read_end_, write_end_;
  int capacity_;
  bool blocked_ = false;
};

}  // namespace

void File::copy_from(const File& source, std::uint64_t source_offset, std::uint64_t offset,
                     std::uint64_t length) {
  const std::uint64_t head = std::min(length, -source_offset % kSharedBlock);
  const std::uint64_t blocks = (length - head) / kSharedBlock * kSharedBlock;
  std::uint64_t done = 0;
  if (blocks > 0 && (offset - source_offset) % kSharedBlock == 0) {
    done = copy_blocks(source, source_offset + head, offset + head, blocks);
  }
  if (done > 0) {
    copy_in_kernel(source, source_offset, offset, head);
    done += head;
  }
  copy_in_kernel(source, source_offset + done, offset + done, length - done);
}

bool File::shares_blocks_with(const std::filesystem::path& directory) const {
  const Descriptor probe(::open(directory.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  file_clone_range range{descriptor_, 0, kSharedBlock, 0};
  return probe.number >= 0 && size_ >= kSharedBlock &&
         ::ioctl(probe.number, FICLONERANGE, &range) == 0;
}

std::uint64_t File::copy_blocks(const File& source, std::uint64_t source_offset,
                                std::uint64_t offset, std::uint64_t length) {
  file_clone_range range{source.descriptor_, source_offset, length, offset};
  if (::ioctl(descriptor_, FICLONERANGE, &range) == 0) {
    return length;
  }
  const Descriptor direct(::open(path_.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC));
  Pipe pipe;
  // Space that is allocated at once is contiguous. A filesystem without fallocate allocates it
  // while writing.
  if (direct.number < 0 || !pipe.holds_enough() ||
      (::fallocate(descriptor_, 0, static_cast<off_t>(offset), static_cast<off_t>(length)) != 0 &&
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
    done += pipe.move(source.descriptor_, source_offset + done, direct.number, offset + done, part);
  }
  return done;
}

void File::copy_in_kernel(const File& source, std::uint64_t source_offset, std::uint64_t offset,
                          std::uint64_t length) {
  source.start_reading(source_offset, std::min(length, kChunk));
  while (length > 0) {
    auto from = static_cast<off_t>(source_offset);
    auto to = static_cast<off_t>(offset);
    const std::uint64_t chunk = std::min(length, kChunk);
    source.start_reading(source_offset + chunk, std::min(length - chunk, kChunk));
    const ssize_t moved = ::copy_file_range(source.descriptor_, &from, descriptor_, &to, chunk, 0);
    if (moved < 0 && errno == EINTR) {
      continue;
    }
    if (moved < 0 && cannot_copy_in_kernel(errno)) {
      copy_through_memory(source, source_offset, offset, length);
      return;
    }
    if (moved < 0) {
      throw_environment("{}: cannot write: {}", printable(path_.string(), 0), std::strerror(errno));
    }
    if (moved == 0) {
      throw_bad_input("{}: ends at byte {}, {} more expected (truncated?)",
                      printable(source.path_.string(), 0), source_offset, length);
    }
    start_writing(offset, static_cast<std::uint64_t>(moved));
    source_offset += static_cast<std::uint64_t>(moved);
    offset += static_cast<std::uint64_t>(moved);
    length -= static_cast<std::uint64_t>(moved);
  }
}

void File::copy_through_memory(const File& source, std::uint64_t source_offset,
                               std::uint64_t offset, std::uint64_t length) {
  std::vector<std::byte> buffer(std::min<std::uint64_t>(length, 4U << 20));
  while (length > 0) {
    const auto chunk = std::span(buffer).first(std::min<std::uint64_t>(length, buffer.size()));
    source.read_at(source_offset, chunk);
    write_at(offset, chunk);
    source_offset += chunk.size();
    offset += chunk.size();
    length -= chunk.size();
  }
}

// Only a hint: errors appear when the bytes are read. For small ranges, the kernel's own readahead
// is better.
void File::start_reading(std::uint64_t offset, std::uint64_t length) const {
  if (length >= kWorthStarting) {
    ::posix_fadvise(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(length),
                    POSIX_FADV_WILLNEED);
  }
}

// Starts writing now, so that the final fsync is short. Only a hint: fsync still reports device
// errors.
void File::start_writing(std::uint64_t offset, std::uint64_t length) {
  if (length >= kWorthStarting) {
    ::sync_file_range(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(length),
                      SYNC_FILE_RANGE_WRITE);
  }
}

}  // namespace regroup
