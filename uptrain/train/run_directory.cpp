#include "uptrain/train/run_directory.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <string_view>
#include <sys/file.h>
#include <utility>
#include <vector>

#include "formats/base/callback.h"
#include "formats/base/checksum.h"
#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/version.h"
#include "uptrain/train/rank_agreement.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRunFile = "run.json";
constexpr std::string_view kStatePrefix = "state-";
constexpr std::string_view kDamagedPrefix = "damaged-state-";
constexpr std::uint64_t kMaxRunBytes = 1U << 20;

std::string identity_of(const Json& recipe, const std::string& model) {
  return checksum_of(recipe.dump() + model);
}

Json read_run(const fs::path& file) {
  Json run = parse_json_object(read_text(file, kMaxRunBytes), printable_path(file));
  if (!run.contains("recipe") || !run["recipe"].is_object() || !run.contains("model")) {
    throw_bad_input("{}: holds no recipe; not the directory of an uptraining run",
                    printable_path(file));
  }
  return run;
}

std::optional<double> samples_per_step(const Json& recipe) {
  const Json batch = recipe.value("batch", Json()), batches = recipe.value("accumulation", Json(1));
  return batch.is_number() && batches.is_number()
             ? std::optional(batch.get<double>() * batches.get<double>())
             : std::nullopt;
}

// A recorded recipe with what a resumed run may change: how many steps it has, and into how many
// batches the samples of a step are divided.
Json with_allowed_changes(Json recorded, const Json& recipe) {
  std::vector<std::string> allowed{"alpha", "pretrain_steps", "pretrain_tokens", "steps"};
  if (samples_per_step(recorded) == samples_per_step(recipe)) {
    allowed.insert(allowed.end(), {"batch", "accumulation"});
  }
  for (const std::string& key : allowed) {
    recorded.erase(key);
    if (recipe.contains(key)) {
      recorded[key] = recipe[key];
    }
  }
  return recorded;
}

// Returns the differences that are allowed.
std::string check_same_run(const fs::path& file, const Json& recipe, const std::string& model) {
  constexpr std::string_view kForm = "{} was {}, now {}";
  const Json run = read_run(file);
  if (run["model"] != model) {
    throw_bad_input("{}: this run was started from another model, or the model has changed since",
                    printable_path(file));
  }
  const std::string changed =
      recipe_differences(with_allowed_changes(run["recipe"], recipe), recipe, kForm);
  if (!changed.empty()) {
    throw_usage("{}: this run was started with other settings: {}", printable_path(file), changed);
  }
  return recipe_differences(run["recipe"], recipe, kForm);
}

std::string state_name(std::int64_t step) { return fmt::format("{}{:08}", kStatePrefix, step); }

// The step in a name such as "state-00000120". None for other names, which are not the program's.
std::optional<std::int64_t> step_of(const std::string& name) {
  std::int64_t step = 0;
  if (name.starts_with(kStatePrefix)) {
    std::from_chars(name.data() + kStatePrefix.size(), name.data() + name.size(), step);
  }
  return name == state_name(step) ? std::optional(step) : std::nullopt;
}

// The steps of states, complete or not; newest first.
std::vector<std::int64_t> steps_in(const fs::path& run) {
  std::vector<std::int64_t> steps;
  for (const fs::directory_entry& entry : entries_in(run)) {
    if (const auto step = step_of(entry.path().filename().string())) {
      steps.push_back(*step);
    }
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

}  // namespace

RunDirectory::RunDirectory(fs::path path, std::string identity)
    : path_(std::move(path)), identity_(std::move(identity)) {}

fs::path RunDirectory::path_for(const fs::path& output) {
  fs::path path = output.has_filename() ? output : output.parent_path();
  return path += ".run";
}

bool RunDirectory::exists(const fs::path& output) {
  return fs::exists(path_for(output) / kRunFile);
}

void RunDirectory::check_output(const fs::path& output, bool resume) {
  const fs::path run = path_for(output);
  if (fs::exists(fs::symlink_status(output))) {
    const bool complete = resume && fs::exists(run / kRunFile);
    throw_usage(
        "{}: exists already; {}", printable_path(output),
        !complete ? "name an output that does not exist yet"
        : !steps_in(run).empty()
            ? "its run is complete: to go on from the state that it kept, move the output away and "
              "give more --steps"
            : "its run is complete and its states are removed: to go on, uptrain it as the model, "
              "with the further --steps and another output");
  }
  if (fs::exists(run / kRunFile) && !resume) {
    throw_usage("{}: holds a run already; continue it with --resume, or name another output",
                printable_path(run));
  }
  if (resume && !fs::exists(run / kRunFile)) {
    throw_usage("{}: there is no run to resume", printable_path(run));
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
  const bool made = fs::create_directories(run.path_, fault);
  if (fault) {
    throw_environment("{}: cannot create: {}", printable_path(run.path_), fault.message());
  }
  const fs::path staging = run.path_ / "run.json.partial";
  try {
    run.lock();
    check_output(output, false);  // again: another process may have used it before the lock
    const Json content = {{"version", kVersion}, {"model", model}, {"recipe", recipe}};
    fs::remove(staging);
    write_text(staging, content.dump(2) + "\n");
    fs::rename(staging, run.path_ / kRunFile);
    sync_directory(run.path_);
  } catch (...) {
    if (made) {  // removes it only if nobody else has put anything there
      fs::remove(staging, fault);
      fs::remove(run.path_, fault);
    }
    throw;
  }
  return run;
}

RunDirectory RunDirectory::resume(const fs::path& output, const Json& recipe,
                                  const std::string& model) {
  check_output(output, true);
  RunDirectory run = join(output, recipe, model);
  run.lock();
  run.changes_ = check_same_run(run.path_ / kRunFile, recipe, model);
  for (const std::int64_t step : steps_in(run.path_)) {
    if (!run.is_saved(step)) {  // left by a killed process: the lock tells that none is writing it
      run.remove_state(step);
    }
  }
  return run;
}

RunDirectory RunDirectory::join(const fs::path& output, const Json& recipe,
                                const std::string& model) {
  return {path_for(output), identity_of(exists(output) ? recorded_recipe(output) : recipe, model)};
}

void RunDirectory::lock() {
  lock_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock_.is_open()) {
    throw_environment("{}: cannot open: {}", printable_path(path_), std::strerror(errno));
  }
  if (::flock(lock_.number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw_usage("{}: another process is working on this run", printable_path(path_));
  }
}

fs::path RunDirectory::state_path(std::int64_t step) const { return path_ / state_name(step); }

void RunDirectory::save(const TrainingProgress& progress, std::span<const StateTensor> tensors,
                        const StatePart& part) const {
  save_training_state(state_path(progress.step), progress, tensors, identity_, part);
  sync_directory(path_);
  if (part.number == 0) {
    remove_old_states();
  }
}

std::optional<TrainingProgress> RunDirectory::load_newest(
    std::span<const StateTensor> tensors, const std::function<void(const std::string&)>& warn,
    const Agree& agree, const Check& check) const {
  std::string last_fault;
  std::vector<std::int64_t> damaged;
  for (const std::int64_t step : steps_in(path_)) {
    if (!is_saved(step)) {
      continue;  // without a part of this program's, see resume()
    }
    const auto [progress, fault] = load(step, tensors, check);
    last_fault = agree ? agree(fault) : fault;
    if (last_fault.empty()) {
      for (const std::int64_t other : damaged) {
        set_aside(other);
      }
      return progress;
    }
    call_if_given(warn, last_fault);
    damaged.push_back(step);
  }
  if (!damaged.empty()) {
    throw_bad_input("{}: no state is usable; the last error: {}", printable_path(path_),
                    last_fault);
  }
  for (const fs::directory_entry& entry : entries_in(path_)) {
    if (entry.path().filename().string().starts_with(kDamagedPrefix)) {
      throw_bad_input("{}: no state is usable; {} could not be read", printable_path(path_),
                      printable_path(entry.path()));
    }
  }
  return std::nullopt;
}

// A state, or why it is damaged. Throws if it is intact and not this run's, or the disk is at
// fault.
RunDirectory::Loaded RunDirectory::load(std::int64_t step, std::span<const StateTensor> tensors,
                                        const Check& check) const {
  try {
    const TrainingProgress progress = load_training_state(state_path(step), tensors, identity_);
    if (progress.step != step) {
      throw_bad_input("{}: holds the state after step {}", printable_path(state_path(step)),
                      progress.step);
    }
    call_if_given(check, progress, tensors);
    return {progress, ""};
  } catch (const Error& fault) {
    if (fault.kind() != ErrorKind::kBadInput) {
      throw;
    }
    return {{}, fault.what()};
  }
}

// Renames a damaged state, because the run will save the same step again.
void RunDirectory::set_aside(std::int64_t step) const {
  if (!lock_.is_open()) {
    return;  // the rank that has the lock does it
  }
  const fs::path name = path_ / fmt::format("{}{:08}", kDamagedPrefix, step);
  fs::path damaged = name;
  for (int number = 2; fs::exists(fs::symlink_status(damaged)); ++number) {
    damaged = name;
    damaged += fmt::format("-{}", number);
  }
  fs::rename(state_path(step), damaged);
}

void RunDirectory::remove_state(std::int64_t step) const {
  remove_training_state(state_path(step), identity_);
}

void RunDirectory::remove_states(std::size_t kept) const {
  for (const std::int64_t step : steps_in(path_)) {
    if (kept == 0) {
      remove_state(step);
    } else if (is_saved(step)) {
      --kept;
    }
  }
}

void RunDirectory::remove(std::span<const std::string> files) const {
  remove_states();
  std::error_code ignored;
  for (const std::string& file : files) {
    fs::remove(path_ / file, ignored);
  }
  fs::remove(path_ / kRunFile, ignored);
  fs::remove(path_, ignored);
}

}  // namespace regroup
