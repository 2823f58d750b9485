// Graphs of the paper device: recorded under CUDA's rules, repeated by calling the work again.
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "tests/paper/paper_state.h"

namespace regroup {
namespace {

// What one call launched.
struct Launched {
  std::map<std::string, std::int64_t> operators;
  std::int64_t bytes = 0;
  bool operator==(const Launched&) const = default;
};

// Calls `work`. Throws if it does what CUDA cannot record.
Launched launches_of(const std::function<void()>& work) {
  const PaperCounts before = paper_counts();
  work();
  PaperCounts after = paper_counts();
  TORCH_CHECK(after.waits == before.waits && after.uploads == before.uploads &&
                  after.downloads == before.downloads,
              "operation not permitted when stream is capturing");
  for (const auto& [name, count] : before.operators) {
    if ((after.operators[name] -= count) == 0) {
      after.operators.erase(name);
    }
  }
  return {std::move(after.operators), after.bytes - before.bytes};
}

class PaperGraph {
 public:
  explicit PaperGraph(const std::function<void()>& work) : work_(work) {
    work_();
    recorded_ = launches_of(work_);
  }

  void replay() const {
    TORCH_CHECK(launches_of(work_) == recorded_, "a graph's work changed after it was recorded");
  }

 private:
  std::function<void()> work_;
  Launched recorded_;
};

}  // namespace

GraphRecording record_on_paper(c10::Device /*device*/, const std::function<void()>& work) {
  try {
    return {[graph = PaperGraph(work)] { graph.replay(); }, ""};
  } catch (const c10::Error& fault) {
    return {nullptr, fault.what_without_backtrace()};
  }
}

}  // namespace regroup
