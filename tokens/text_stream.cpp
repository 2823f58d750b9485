#include "tokens/text_stream.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <span>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/interruption.h"
#include "formats/base/open_failure.h"
#include "formats/base/printable.h"
#include "tokens/text_kind.h"

namespace regroup {
namespace {

constexpr std::size_t kBlock = 1 << 20;

bool is_pipe(int descriptor) {
  struct stat status{};
  return ::fstat(descriptor, &status) == 0 &&
         (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode) || S_ISSOCK(status.st_mode));
}

}  // namespace

TextStream::TextStream(const std::string& name, const std::atomic<bool>& stop)
    : name_(name == "-" ? "standard input" : printable(name, 0)), stop_(stop) {
  if (name == "-") {
    pipe_ = ::dup(STDIN_FILENO);
    if (pipe_ < 0) {
      throw_cannot_open(name_, errno);
    }
  } else {
    // Opens a FIFO without waiting for a writer. Reading waits for one and can be stopped.
    const int descriptor = open_without_waiting(name);
    if (descriptor >= 0 && is_pipe(descriptor)) {
      pipe_ = descriptor;
      return;
    }
    ::close(descriptor);
    file_ = File::open(name);
  }
}

TextStream::~TextStream() {
  if (pipe_ >= 0) {
    ::close(pipe_);
  }
}

std::size_t TextStream::read_from_file(std::span<char> room) {
  const std::size_t count = std::min<std::uint64_t>(room.size(), file_->size() - read_);
  if (count == 0) {
    file_->check_unchanged();
  } else {
    file_->read_at(read_, std::as_writable_bytes(room.first(count)));
  }
  return count;
}

std::size_t TextStream::read_from_pipe(std::span<char> room) const {
  constexpr int kMilliseconds = 100;
  while (true) {
    throw_if_stopped(stop_, "reading text was stopped");
    struct pollfd waiting{pipe_, POLLIN, 0};
    if (::poll(&waiting, 1, kMilliseconds) == 0) {
      continue;
    }
    const ssize_t got = ::read(pipe_, room.data(), room.size());
    if (got >= 0) {
      return static_cast<std::size_t>(got);
    }
    if (errno != EINTR && errno != EAGAIN) {
      throw_environment("{}: cannot read: {}", name_, std::strerror(errno));
    }
  }
}

bool TextStream::read_block() {
  throw_if_stopped(stop_, "reading text was stopped");
  buffer_.erase(0, std::exchange(at_, 0));
  const std::size_t kept = buffer_.size();
  scanned_ = kept;
  buffer_.resize(kept + kBlock);
  const auto room = std::span(buffer_).subspan(kept);
  const std::size_t got = file_ ? read_from_file(room) : read_from_pipe(room);
  buffer_.resize(kept + got);
  read_ += got;
  return got > 0;
}

std::string_view TextStream::start() {
  while (buffer_.size() < kTextSample && read_block()) {
  }
  scanned_ = 0;
  return std::string_view(buffer_).substr(0, kTextSample);
}

void TextStream::skip(std::size_t bytes) {
  at_ += bytes;
  given_ += bytes;
}

bool TextStream::next(std::string_view& line) {
  std::size_t end = std::string::npos;
  while (true) {
    end = buffer_.find('\n', std::max(at_, scanned_));
    if (end != std::string::npos || buffer_.size() - at_ >= kBlock) {
      break;
    }
    if (!read_block()) {
      break;
    }
  }
  const std::size_t left = std::min(buffer_.size() - at_, kBlock);
  const std::size_t length = end == std::string::npos ? left : std::min(end + 1 - at_, kBlock);
  line = std::string_view(buffer_).substr(at_, length);
  at_ += length;
  given_ += length;
  return length > 0;
}

}  // namespace regroup
