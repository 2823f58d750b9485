#include "formats/base/file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/open_failure.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

std::string shown(const std::filesystem::path& path) { return printable(path.string(), 0); }

[[noreturn]] void throw_system(std::string_view action, const std::filesystem::path& path) {
  throw_environment("{}: cannot {}: {}", shown(path), action, std::strerror(errno));
}

// An untrusted path may name anything. Reading a FIFO would block forever, and opening a device may
// have side effects.
void check_regular(int descriptor, const std::filesystem::path& path) {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    throw_bad_input("{}: not a regular file{}", shown(path),
                    S_ISDIR(status.st_mode) ? " but a directory" : "");
  }
}

}  // namespace

int open_without_waiting(const std::filesystem::path& path) {
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

File::File(std::filesystem::path path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) {
    throw_system("stat", path_);
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
  modified_seconds_ = status.st_mtim.tv_sec;
  modified_nanoseconds_ = status.st_mtim.tv_nsec;
}

File File::open(const std::filesystem::path& path) {
  const int descriptor = open_without_waiting(path);
  if (descriptor < 0) {
    throw_cannot_open(path, errno);
  }
  File file(path, descriptor);
  check_regular(descriptor, path);
  return file;
}

File File::open_or_create(const std::filesystem::path& path) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  const int descriptor = ::open(path.c_str(), kFlags, 0666);
  if (descriptor < 0) {
    throw_system("open", path);
  }
  File file(path, descriptor);
  check_regular(descriptor, path);
  return file;
}

File File::create(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    throw_system("create", path);
  }
  return File(path, descriptor);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_),
      modified_seconds_(other.modified_seconds_),
      modified_nanoseconds_(other.modified_nanoseconds_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  std::swap(modified_seconds_, other.modified_seconds_);
  std::swap(modified_nanoseconds_, other.modified_nanoseconds_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

void File::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  start_reading(offset, out.size());
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      throw_system("read", path_);
    }
    if (got == 0) {
      throw_bad_input("{}: ends at byte {}, {} more expected (truncated?)", shown(path_), offset,
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
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
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
  if (::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) {
    throw_system("truncate", path_);
  }
}

void File::check_unchanged() const {
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) {
    throw_system("stat", path_);
  }
  if (static_cast<std::uint64_t>(status.st_size) != size_ ||
      status.st_mtim.tv_sec != modified_seconds_ ||
      status.st_mtim.tv_nsec != modified_nanoseconds_) {
    throw_bad_input("{}: changed while it was being read", shown(path_));
  }
}

void File::sync_and_close() {
  const bool synced = ::fsync(descriptor_) == 0;
  const int sync_error = errno;
  const bool closed = ::close(std::exchange(descriptor_, -1)) == 0;
  if (!synced || !closed) {
    errno = synced ? errno : sync_error;
    throw_system("write to the device", path_);
  }
}

bool path_exists(const std::filesystem::path& path) {
  std::error_code fault;
  return std::filesystem::status(path, fault).type() != std::filesystem::file_type::not_found;
}

std::string read_text(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const File file = File::open(path);
  if (file.size() > max_bytes) {
    throw_bad_input("{}: {} bytes, at most {} allowed", shown(path), file.size(), max_bytes);
  }
  std::string text(file.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  File file = File::create(path);
  file.write_at(0, std::as_bytes(std::span(text)));
  file.sync_and_close();
}

void sync_directory(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    throw_system("open", path);
  }
  const bool synced = ::fsync(descriptor) == 0 || errno == EINVAL;  // EINVAL: not supported
  const int sync_error = errno;
  ::close(descriptor);
  if (!synced) {
    errno = sync_error;
    throw_system("write to the device", path);
  }
}

}  // namespace regroup
