#include "uptrain/run/run_states.h"

#include <algorithm>
#include <chrono>
#include <unistd.h>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "uptrain/train/rank_agreement.h"

namespace regroup {

RunStates::RunStates(ProcessGroup* group, std::vector<StateTensor> tensors, bool in_background,
                     UptrainObserver& observer)
    : group_(group),
      state_(group, std::move(tensors)),
      observer_(observer),
      saver_([this](const auto& progress,
                    const auto& saved) { directory_->save(progress, saved, part()); },
             in_background) {}

void RunStates::open(const std::function<RunDirectory(bool first)>& open) {
  if (group_ == nullptr) {
    directory_.emplace(open(true));
    return;
  }
  group_->on_first([&] { directory_.emplace(open(true)); });
  if (!first()) {
    directory_.emplace(open(false));
  }
  shared_ = all_see(directory_->path());
  if (!shared_ && first()) {
    observer_.on_warning(
        "not all ranks see the directory of the output: rank 0 gathers and writes whole states");
  }
}

// A file of that name may also be on the disk of another machine, where an earlier run left it.
bool RunStates::all_see(const std::filesystem::path& directory) const {
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  const std::string name =
      group_->exchange(fmt::format("seen-by-all-{}-{}.partial", ::getpid(), now)).front();
  group_->on_first([&] { write_text(directory / name, ""); });
  const std::vector<std::string> seen =
      group_->exchange(std::filesystem::exists(directory / name) ? "yes" : "");
  group_->on_first([&] { std::filesystem::remove(directory / name); });
  return std::find(seen.begin(), seen.end(), "") == seen.end();
}

StatePart RunStates::part() const {
  return shared_ ? StatePart{group_->rank(), group_->size()} : StatePart{};
}

std::vector<StateTensor> RunStates::tensors_to_save() const {
  return shared_ ? state_.part() : state_.gather();
}

std::optional<TrainingProgress> RunStates::load_newest(const RunDirectory::Check& check) {
  const auto warn = [&](const std::string& text) {
    if (first()) {
      observer_.on_warning(text);
    }
  };
  if (group_ == nullptr || shared_) {
    return directory_->load_newest(
        state_.own(), warn, [&](const auto& fault) { return first_fault(group_, fault); }, check);
  }
  const std::vector<StateTensor> places = state_.places();
  std::optional<TrainingProgress> progress;
  group_->on_first([&] { progress = directory_->load_newest(places, warn, {}, check); });
  progress = progress_of_first(*group_, progress);
  if (progress) {
    state_.scatter(places);
  }
  return progress;
}

// The previous state is written before this one is gathered: the host holds one copy.
void RunStates::start_saving(const TrainingProgress& progress) {
  finish_saving();
  const std::vector<StateTensor> tensors = tensors_to_save();
  if (shared_ || first()) {
    saver_.start(progress, tensors, shared_ ? std::vector<bool>() : state_.gathered_copies());
  }
  saving_ = progress.step;
  fault_.reset();
  reported_ = false;
  poll();
}

void RunStates::report_saved(std::int64_t step) {
  directory_->remove_old_states();
  observer_.on_saved(directory_->path(), step);
}

void RunStates::poll() {
  if (!first() || !saving_ || reported_) {
    return;
  }
  if (!fault_) {
    if (const auto outcome = saver_.outcome()) {
      fault_ = outcome->fault;
    }
  }
  if (fault_ && !fault_->empty()) {
    observer_.on_warning(fmt::format("no state saved at step {}: {}", *saving_, *fault_));
    reported_ = true;
  } else if (fault_ && directory_->is_saved(*saving_)) {
    report_saved(*saving_);
    reported_ = true;
  }
}

void RunStates::finish_saving() {
  if (!saving_) {
    return;
  }
  if (const auto outcome = saver_.wait()) {
    fault_ = outcome->fault;
  }
  const std::string fault = first_fault(group_, fault_.value_or(""));
  if (first() && !reported_ && !fault.empty()) {
    observer_.on_warning(fmt::format("no state saved at step {}: {}", *saving_, fault));
  } else {
    poll();
  }
  saving_.reset();
}

void RunStates::save_now(const TrainingProgress& progress) {
  finish_saving();
  const std::vector<StateTensor> tensors = tensors_to_save();
  const std::string fault = first_fault(group_, fault_of([&] {
                                          if (shared_ || first()) {
                                            directory_->save(progress, tensors, part());
                                          }
                                        }));
  if (!fault.empty()) {
    throw_environment("no state saved at step {}: {}", progress.step, fault);
  }
  if (first()) {
    report_saved(progress.step);
  }
}

}  // namespace regroup
