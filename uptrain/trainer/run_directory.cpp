#include "uptrain/trainer/run_directory.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <string_view>
#include <sys/file.h>
#include <unistd.h>
#include <utility>

#include <fmt/ranges.h>

#include "formats/base/callback.h"
#include "formats/base/checksum.h"
#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/json/printable_json.h"
#include "formats/version.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRunFile = "run.json";
constexpr std::string_view kStatePrefix = "state-";
constexpr std::string_view kDamagedPrefix = "damaged-state-";
constexpr std::size_t kStatesKept = 2;
constexpr std::uint64_t kMaxRunBytes = 1U << 20;

std::string shown(const fs::path& path) { return printable(path.string(), 0); }

std::string identity_of(const Json& recipe, const std::string& model) {
  return checksum_of(recipe.dump() + model);
}

// "batch is 8 there, 16 here" for each key whose values differ.
std::vector<std::string> differences(const Json& there, const Json& here) {
  std::vector<std::string> found;
  for (const auto& [key, value] : here.items()) {
    const Json before = there.contains(key) ? there[key] : Json();
    if (before != value) {
      found.push_back(
          fmt::format("{} was {}, now {}", key, printable_json(before), printable_json(value)));
    }
  }
  return found;
}

Json read_run(const fs::path& file) {
  Json run = parse_json_object(read_text(file, kMaxRunBytes), shown(file));
  if (!run.contains("recipe") || !run["recipe"].is_object() || !run.contains("model")) {
    throw_bad_input("{}: holds no recipe; not the directory of an uptraining run", shown(file));
  }
  return run;
}

void check_same_run(const fs::path& file, const Json& recipe, const std::string& model) {
  const Json run = read_run(file);
  if (run["model"] != model) {
    throw_bad_input("{}: this run was started from another model, or the model has changed since",
                    shown(file));
  }
  const std::vector<std::string> changed = differences(run["recipe"], recipe);
  if (!changed.empty()) {
    throw_usage("{}: this run was started with other settings: {}", shown(file),
                fmt::join(changed, "; "));
  }
}

// The step in a name such as "state-000120". None for other names, such as that of an incomplete
// state.
std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kStatePrefix)) {
    return std::nullopt;
  }
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stopped, fault] = std::from_chars(name.data() + kStatePrefix.size(), end, step);
  return fault == std::errc() && stopped == end ? std::optional(step) : std::nullopt;
}

}  // namespace

RunDirectory::RunDirectory(fs::path path, std::string identity)
    : path_(std::move(path)), identity_(std::move(identity)) {}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::move(other.path_)),
      identity_(std::move(other.identity_)),
      lock_(std::exchange(other.lock_, -1)) {}

RunDirectory::~RunDirectory() {
  if (lock_ >= 0) {
    ::close(lock_);
  }
}

fs::path RunDirectory::path_for(const fs::path& output) {
  fs::path path = output.has_filename() ? output : output.parent_path();
  return path += ".run";
}

bool RunDirectory::exists(const fs::path& output) {
  return fs::exists(path_for(output) / kRunFile);
}

void RunDirectory::check_output(const fs::path& output, bool resume) {
  if (fs::exists(fs::symlink_status(output))) {
    throw_usage("{}: exists already; name an output that does not exist yet", shown(output));
  }
  const fs::path run = path_for(output);
  if (fs::exists(run / kRunFile) && !resume) {
    throw_usage("{}: holds a run already; resume it, or name another output", shown(run));
  }
  if (resume && !fs::exists(run / kRunFile)) {
    throw_usage("{}: there is no run to resume", shown(run));
  }
}

Json RunDirectory::recorded_recipe(const fs::path& output) {
  const fs::path file = path_for(output) / kRunFile;
  return fs::exists(file) ? read_run(file)["recipe"] : Json::object();
}

RunDirectory RunDirectory::create(const fs::path& output, const Json& recipe,
                                  const std::string& model) {
  check_output(output, false);
  RunDirectory run(path_for(output), identity_of(recipe, model));
  std::error_code fault;
  fs::create_directories(run.path_, fault);
  if (fault) {
    throw_environment("{}: cannot create: {}", shown(run.path_), fault.message());
  }
  run.lock();
  check_output(output, false);  // again, because another process may have used it before the lock
  const Json content = {{"version", kVersion}, {"model", model}, {"recipe", recipe}};
  const fs::path staging = run.path_ / "run.json.partial";
  fs::remove(staging);
  write_text(staging, content.dump(2) + "\n");
  fs::rename(staging, run.path_ / kRunFile);
  sync_directory(run.path_);
  return run;
}

RunDirectory RunDirectory::resume(const fs::path& output, const Json& recipe,
                                  const std::string& model) {
  check_output(output, true);
  RunDirectory run(path_for(output), identity_of(recipe, model));
  run.lock();
  check_same_run(run.path_ / kRunFile, recipe, model);
  run.remove_incomplete_states();
  return run;
}

RunDirectory RunDirectory::join(const fs::path& output, const Json& recipe,
                                const std::string& model) {
  return {path_for(output), identity_of(recipe, model)};
}

void RunDirectory::lock() {
  lock_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0) {
    throw_environment("{}: cannot open: {}", shown(path_), std::strerror(errno));
  }
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw_usage("{}: another process is working on this run", shown(path_));
  }
}

fs::path RunDirectory::state_path(std::int64_t step) const {
  return path_ / fmt::format("{}{:08}", kStatePrefix, step);
}

std::vector<std::int64_t> RunDirectory::saved_steps() const {
  std::vector<std::int64_t> steps;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    if (const auto step = step_of(entry.path().filename().string())) {
      steps.push_back(*step);
    }
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

void RunDirectory::save(const TrainingProgress& progress, std::span<const StateTensor> tensors,
                        const StatePart& part) const {
  save_training_state(state_path(progress.step), progress, tensors, identity_, part);
  sync_directory(path_);
  if (part.number == 0) {
    remove_old_states();
  }
}

void RunDirectory::remove_old_states() const {
  std::size_t complete = 0;
  for (const std::int64_t step : saved_steps()) {
    if (complete == kStatesKept) {
      fs::remove_all(state_path(step));
    } else if (is_saved(step)) {
      ++complete;
    }
  }
}

std::optional<TrainingProgress> RunDirectory::load_newest(
    std::span<const StateTensor> tensors, const std::function<void(const std::string&)>& warn,
    const Agree& agree) const {
  const std::vector<std::int64_t> steps = saved_steps();
  std::string last_fault;
  for (const std::int64_t step : steps) {
    std::optional<TrainingProgress> progress;
    std::string own_fault;
    try {
      progress = load_training_state(state_path(step), tensors, identity_);
    } catch (const Error& fault) {
      if (fault.kind() != ErrorKind::kBadInput) {
        throw;  // the disk is at fault, not the state
      }
      own_fault = fault.what();
    }
    last_fault = agree ? agree(own_fault) : own_fault;
    if (last_fault.empty()) {
      return progress;
    }
    call_if_given(warn, last_fault);
    if (lock_ >= 0) {
      set_aside(step);
    }
  }
  if (!steps.empty()) {
    throw_bad_input("{}: no state is usable; the last error: {}", shown(path_), last_fault);
  }
  return std::nullopt;
}

// Renames a damaged state, because the run will save the same step again.
void RunDirectory::set_aside(std::int64_t step) const {
  const fs::path damaged = path_ / fmt::format("{}{:08}", kDamagedPrefix, step);
  fs::remove_all(damaged);
  fs::rename(state_path(step), damaged);
}

void RunDirectory::remove_states() const {
  remove_entries([](const std::string& name) {
    return name.starts_with(kStatePrefix) || name.starts_with(kDamagedPrefix);
  });
}

// Removes states that killed processes left incomplete. The lock ensures that no other process is
// writing.
void RunDirectory::remove_incomplete_states() const {
  remove_entries([&](const std::string& name) {
    const auto step = step_of(name);
    return name.starts_with(kStatePrefix) && !(step && is_saved(*step));
  });
}

void RunDirectory::remove_entries(
    const std::function<bool(const std::string& name)>& wanted) const {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    if (wanted(entry.path().filename().string())) {
      found.push_back(entry.path());
    }
  }
  for (const fs::path& path : found) {
    fs::remove_all(path);
  }
}

}  // namespace regroup
