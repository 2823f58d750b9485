// A library to preload. System calls that read, write or copy transfer half of what is requested,
// and every fifth call is interrupted first. At exit it writes the number of each to the file that
// SHORT_TRANSFERS names.
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

std::atomic<int> calls, reads, writes, copies;

std::size_t half(std::size_t count, std::atomic<int>& shortened) {
  shortened += count > 1 ? 1 : 0;
  return count - count / 2;
}

// Whether a signal ends this call before it does anything.
bool interrupted() {
  const bool now = ++calls % 5 == 0;
  errno = now ? EINTR : errno;
  return now;
}

struct Report {
  ~Report() {
    const char* path = std::getenv("SHORT_TRANSFERS");
    std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "w");
    if (file != nullptr) {
      std::fprintf(file, "{\"reads\":%d,\"writes\":%d,\"copies\":%d}", reads.load(), writes.load(),
                   copies.load());
      std::fclose(file);
    }
  }
} report;

}  // namespace

extern "C" {

ssize_t pread64(int file, void* bytes, std::size_t count, off64_t offset) {
  return interrupted() ? -1 : ::syscall(SYS_pread64, file, bytes, half(count, reads), offset);
}
ssize_t pread(int file, void* bytes, std::size_t count, off_t offset) {
  return pread64(file, bytes, count, offset);
}

ssize_t pwrite64(int file, const void* bytes, std::size_t count, off64_t offset) {
  return interrupted() ? -1 : ::syscall(SYS_pwrite64, file, bytes, half(count, writes), offset);
}
ssize_t pwrite(int file, const void* bytes, std::size_t count, off_t offset) {
  return pwrite64(file, bytes, count, offset);
}

ssize_t copy_file_range(int from, off64_t* from_offset, int to, off64_t* to_offset,
                        std::size_t count, unsigned flags) {
  return interrupted() ? -1
                       : ::syscall(SYS_copy_file_range, from, from_offset, to, to_offset,
                                   half(count, copies), flags);
}

}  // extern "C"
