// Bounds what a tokenizer may do with a text: time, memory and growth, for each byte of it. A
// tokenizer is a program of a stranger.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace regroup {

/// The work of one thread, on a part of a document or on reading a tokenizer.
class Work {
 public:
  /// Processor time for 1 MiB of text, at once or in many small documents, or for reading a
  /// tokenizer.
  static constexpr std::chrono::seconds kMaxTime{10};
  /// Bytes that each byte of a text may become, and bytes of memory for it.
  static constexpr std::size_t kMaxGrowth = 16, kMaxMemory = 512;

  static Work& of_thread();

  /// As long as this exists, the work of the thread that made it throws kInterrupted soon after
  /// `stop` becomes true.
  class Watch {
   public:
    explicit Watch(const std::atomic<bool>& stop) { of_thread().stop_ = &stop; }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    ~Watch() { of_thread().stop_ = nullptr; }
  };

  /// Begins work on a text of so many bytes; 0: on reading the tokenizer. `where` names its file.
  /// `most` is a smaller limit than kMaxTime, for tests.
  void begin(std::string_view where, std::size_t bytes, std::chrono::nanoseconds most = kMaxTime);

  /// Counts steps of some nanoseconds each. Throws kBadInput if the time is over, kInterrupted
  /// after a request to stop. `rule` is what takes them, for the message.
  void step(std::size_t count, std::string_view rule = {}) {
    steps_ += count;
    if (steps_ >= kStepsPerLook) {
      look(rule);
    }
  }

  /// Throws kBadInput if the text has become larger than it may.
  void check_size(std::size_t bytes) const;

  /// Throws kBadInput if the work on the text needs more memory than it may.
  void check_memory(std::size_t bytes) const;

 private:
  // Between looks at the clock, each of which takes as long as 100 steps.
  static constexpr std::size_t kStepsPerLook = 1U << 16;

  void look(std::string_view rule);

  std::string where_;
  const std::atomic<bool>* stop_ = nullptr;
  std::size_t bytes_ = 1U << 20, steps_ = 0;
  bool reads_ = false;  // the tokenizer
  std::chrono::nanoseconds deadline_ = std::chrono::hours(24);
};

}  // namespace regroup
