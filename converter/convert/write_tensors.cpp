#include "converter/convert/write_tensors.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "converter/convert/tensor_parts.h"
#include "formats/base/callback.h"
#include "formats/base/checksum.h"
#include "formats/base/error.h"

namespace regroup {
namespace {

// With two threads, one can wait for the disk while the other computes. More than a few copying
// threads gain nothing on any disk.
constexpr unsigned kFewestThreads = 2, kMostThreads = 4;

// Tensors are computed concurrently as long as they need no more memory than this in total.
constexpr std::uint64_t kSideBySide = 64U << 20;

// The position of a solved tensor in the order of computation.
std::tuple<bool, std::size_t, AttentionRole> turn_of(const TensorStep& step) {
  const PooledTensor& tensor = *step.solved();
  return {tensor.role != AttentionRole::kEncoder, tensor.layer, tensor.role};
}

// The work queue. Only the first thread makes solved tensors, because a layer is solved once for
// all its tensors and a refiner processes layers in order.
class Steps {
 public:
  explicit Steps(const ConversionPlan& plan) {
    for (const TensorStep& step : plan.steps) {
      (step.unchanged() ? copied_ : step.solved() != nullptr ? solved_ : moved_).push_back(&step);
    }
    std::stable_sort(solved_.begin(), solved_.end(), [](const auto* one, const auto* other) {
      return turn_of(*one) < turn_of(*other);
    });
  }

  // Returns the next tensor for a thread, or null. The first thread prefers computed tensors.
  const TensorStep* take(bool is_first) {
    auto& preferred = !is_first ? copied_ : solved_.empty() ? moved_ : solved_;
    auto& other = is_first ? copied_ : moved_;
    auto& steps = preferred.empty() ? other : preferred;
    if (steps.empty()) {
      return nullptr;
    }
    const TensorStep* step = steps.front();
    steps.pop_front();
    return step;
  }

 private:
  std::deque<const TensorStep*> solved_, moved_, copied_;
};

// The memory for making a tensor. A tensor made in parts needs one part and its sources. Others
// need the sources, the tensor, and doubles if it is computed.
std::uint64_t working_bytes(const TensorStep& step, const Checkpoint& checkpoint) {
  if (const auto parts = parts_of(step, checkpoint); !parts.empty()) {
    return bytes_at_once(parts, step, checkpoint);
  }
  std::uint64_t bytes = tensor_bytes(step.output.dtype, step.output.shape);
  const std::string* last = nullptr;
  for (const HeadMove& move : step.moves) {
    if (last == nullptr || *last != move.source) {
      bytes += checkpoint.at(move.source).bytes();
    }
    last = &move.source;
  }
  return step.fold || step.add != 0.0 || step.unit_rows ? 8 * bytes : bytes;
}

class TensorWriters {
 public:
  explicit TensorWriters(const TensorWork& work) : work_(work), steps_(work.plan) {}

  void run(unsigned threads) {
    {
      std::vector<std::jthread> others;
      try {
        for (unsigned i = 1; i < threads; ++i) {
          others.emplace_back([this] { write_all(false); });
        }
      } catch (const std::system_error&) {
        // Fewer threads suffice.
      }
      write_all(true);
    }
    if (failure_) {
      std::rethrow_exception(failure_);
    }
  }

 private:
  void write_all(bool is_first) {
    try {
      while (const TensorStep* step = next(is_first)) {
        write(*step);
        report(*step);
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = failure_ ? failure_ : std::current_exception();
    }
    freed_.notify_all();
  }

  const TensorStep* next(bool is_first) {
    const std::lock_guard lock(mutex_);
    return failure_ ? nullptr : (check_stop(), steps_.take(is_first));
  }

  void check_stop() const { throw_if_stopped(work_.stop, "interrupted; nothing was left behind"); }

  void write(const TensorStep& step) {
    const std::string& name = step.output.name;
    if (step.unchanged()) {
      work_.writer.copy(name, work_.checkpoint, work_.checkpoint.at(step.copy_of));
      return;
    }
    const std::uint64_t bytes = working_bytes(step, work_.checkpoint);
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [&] { return in_use_ == 0 || in_use_ + bytes <= kSideBySide; });
    in_use_ += bytes;
    lock.unlock();
    struct Release {
      TensorWriters& writers;
      std::uint64_t bytes;
      ~Release() { writers.release(bytes); }
    } const release{*this, bytes};
    if (has_checksum(work_.plan, step)) {
      const std::vector<std::byte> tensor =
          make_tensor(step, work_.plan, work_.checkpoint, work_.pooler);
      work_.checksums[name] = checksum_of(tensor);
      work_.writer.write(name, tensor);
      return;
    }
    work_.writer.write_parts(name, [&](const TensorSink& sink) {
      make_tensor_parts(step, work_.plan, work_.checkpoint, work_.pooler, sink);
    });
  }

  void release(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    in_use_ -= bytes;
    freed_.notify_all();
  }

  void report(const TensorStep& step) {
    const std::lock_guard lock(mutex_);
    check_stop();
    done_ += work_.writer.bytes_of(step.output.name);
    call_if_given(work_.progress, done_, step.output.name);
  }

  const TensorWork& work_;
  std::mutex mutex_;  // guards all members below
  std::condition_variable freed_;
  Steps steps_;
  std::uint64_t in_use_ = 0;
  std::uint64_t done_ = 0;
  std::exception_ptr failure_;
};

}  // namespace

void write_tensors(const TensorWork& work, int threads) {
  const unsigned cores =
      std::clamp(std::thread::hardware_concurrency(), kFewestThreads, kMostThreads);
  TensorWriters(work).run(threads > 0 ? std::min(static_cast<unsigned>(threads), kMostThreads)
                                      : cores);
}

}  // namespace regroup
