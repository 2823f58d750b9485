#include "tokens/text_stream.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

constexpr std::size_t kBlock = 1 << 20;
constexpr std::string_view kReplacement = "\xef\xbf\xbd";

bool is_pipe(int descriptor) {
  struct stat status{};
  return ::fstat(descriptor, &status) == 0 &&
         (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode) || S_ISSOCK(status.st_mode));
}

bool is_space(char byte) { return kTextSpaces.find(byte) != std::string_view::npos; }

}  // namespace

std::string with_replacements(std::string_view text) {
  std::string whole;
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    whole.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (!text.empty()) {
      whole.append(kReplacement);
      text.remove_prefix(1);
    }
  }
  return whole;
}

std::size_t cut_of_text(std::string_view text, std::size_t most) {
  if (text.size() <= most) {
    return text.size();
  }
  std::size_t before_white_space = 0;
  for (std::size_t at = most; at > most / 2; --at) {
    const bool begins_white_space =
        (text[at] == ' ' || text[at] == '\n') && !is_space(text[at - 1]);
    if (begins_white_space && text[at] == ' ' && at + 1 < text.size() && !is_space(text[at + 1])) {
      return at;
    }
    before_white_space = before_white_space == 0 && begins_white_space ? at : before_white_space;
  }
  if (before_white_space != 0) {
    return before_white_space;
  }
  std::size_t at = most;
  while (at > 1 && continues_utf8(text[at])) {
    --at;
  }
  return at;
}

TextStream::TextStream(const std::string& name, const std::atomic<bool>& stop)
    : name_(name == "-" ? "standard input" : printable(name, 0)), stop_(stop) {
  if (name == "-") {
    pipe_ = Descriptor(::dup(STDIN_FILENO));
    if (!pipe_.is_open()) {
      throw_cannot_open(name_, errno);
    }
    return;
  }
  // Opens a FIFO without waiting for a writer. Reading waits for one and can be stopped.
  pipe_ = Descriptor(open_without_waiting(name));
  if (!pipe_.is_open() || !is_pipe(pipe_.number())) {
    pipe_.close();
    file_ = File::open(name);
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
    struct pollfd waiting{pipe_.number(), POLLIN, 0};
    if (::poll(&waiting, 1, kMilliseconds) <= 0) {  // also if a signal interrupted it
      continue;
    }
    const ssize_t got = ::read(pipe_.number(), room.data(), room.size());
    if (got >= 0) {
      return static_cast<std::size_t>(got);
    }
    if (errno != EINTR && errno != EAGAIN) {
      throw_environment("{}: cannot read: {}", name_, std::strerror(errno));
    }
  }
}

std::size_t TextStream::read_stored(std::span<char> room) {
  throw_if_stopped(stop_, "reading text was stopped");
  const std::size_t got = file_ ? read_from_file(room) : read_from_pipe(room);
  read_ += got;
  return got;
}

std::size_t TextStream::read_text(std::span<char> room) {
  constexpr std::size_t kEnoughToKnow = 4;
  if (decompressed_) {
    return decompressed_(room);
  }
  const bool first = read_ == 0;
  std::size_t got = read_stored(room);
  for (std::size_t more = got; first && more > 0 && got < kEnoughToKnow; got += more) {
    more = read_stored(room.subspan(got));
  }
  if (first && got > 0) {
    decompressed_ = decompressed(
        {room.data(), got}, [this](std::span<char> next) { return read_stored(next); }, name_);
  }
  return decompressed_ ? decompressed_(room) : got;
}

bool TextStream::read_block() {
  throw_if_stopped(stop_, "reading text was stopped");
  buffer_.erase(0, std::exchange(at_, 0));
  const std::size_t kept = buffer_.size();
  scanned_ = kept;
  buffer_.resize(kept + kBlock);
  const auto room = std::span(buffer_).subspan(kept);
  const std::size_t got = read_text(room);
  buffer_.resize(kept + got);
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
  std::size_t end = 0;
  do {
    end = buffer_.find('\n', std::max(at_, scanned_));
  } while (end == std::string::npos && buffer_.size() - at_ < kBlock && read_block());
  const std::size_t after = end == std::string::npos ? buffer_.size() : end + 1;
  const std::size_t length = std::min(after - at_, kBlock);
  line = std::string_view(buffer_).substr(at_, length);
  at_ += length;
  given_ += length;
  return length > 0;
}

}  // namespace regroup
