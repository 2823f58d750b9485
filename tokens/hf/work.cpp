#include "tokens/hf/work.h"

#include <algorithm>
#include <ctime>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

constexpr std::int64_t kNanosecondsPerByte =
    std::chrono::nanoseconds(Work::kMaxTime).count() / (1 << 20);
constexpr std::size_t kLeast = 4096;  // the limits of a small text are those of so many bytes

// Processor time, so that other programs do not decide what is refused.
std::chrono::nanoseconds time_of_thread() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

Work& Work::of_thread() {
  thread_local Work work;
  return work;
}

// What is left of the time for the text before is added to that for this one.
void Work::begin(std::string_view where, std::size_t bytes, std::chrono::nanoseconds most) {
  const std::chrono::nanoseconds now = time_of_thread();
  const auto left = std::max(deadline_ - now, std::chrono::nanoseconds(0));
  const std::chrono::nanoseconds share(kNanosecondsPerByte * bytes);
  deadline_ = now + (bytes == 0 ? most : std::min(most, left + share));
  where_ = where;
  bytes_ = std::max(bytes, kLeast);
  reads_ = bytes == 0;
  steps_ = 0;
}

void Work::look(std::string_view rule) {
  steps_ = 0;
  if (stop_ != nullptr) {
    throw_if_stopped(*stop_, "tokenizing was stopped; nothing was written");
  }
  if (time_of_thread() > deadline_) {
    throw_bad_input("{}: the tokenizer takes longer than {} s {}{}", where_, kMaxTime.count(),
                    reads_ ? "to be read" : fmt::format("on {} bytes of text", bytes_),
                    rule.empty() ? "" : fmt::format(", at last {}", printable(rule, 100)));
  }
}

void Work::check_size(std::size_t bytes) const {
  if (bytes > kMaxGrowth * bytes_) {
    throw_bad_input("{}: the tokenizer turns {} bytes of text into more than {}", where_, bytes_,
                    kMaxGrowth * bytes_);
  }
}

void Work::check_memory(std::size_t bytes) const {
  if (bytes > kMaxMemory * bytes_) {
    throw_bad_input("{}: the tokenizer needs more than {} bytes of memory for {} bytes of text",
                    where_, kMaxMemory * bytes_, bytes_);
  }
}

}  // namespace regroup
