#include "uptrain/train/training_state.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <limits>
#include <set>
#include <string_view>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/ScopeExit.h>

#include "formats/base/checksum.h"
#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/base/staged_directory.h"
#include "formats/model/model_directory.h"
#include "formats/tensors/checkpoint_writer.h"

namespace regroup {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStateFile = "state.json";
constexpr std::int64_t kStateVersion = 2;
constexpr std::uint64_t kMaxStateBytes = 256U << 20;

DType dtype_of(const StateTensor& tensor) {
  switch (tensor.type()) {
    case at::kDouble: return DType::kF64;
    case at::kBFloat16: return DType::kBF16;
    default: return DType::kF32;
  }
}

// Writes the tensors to `directory`. Returns their checksums.
Json write_tensors(const fs::path& directory, std::span<const StateTensor> tensors) {
  std::vector<OutputTensor> outputs;
  for (const StateTensor& tensor : tensors) {
    outputs.push_back({tensor.name, dtype_of(tensor), tensor.value.sizes().vec()});
  }
  SafetensorsWriter writer(directory, outputs, {}, std::numeric_limits<std::uint64_t>::max());
  Json checksums = Json::object();
  for (const StateTensor& tensor : tensors) {
    const at::Tensor host = tensor.read().detach().to(at::kCPU).contiguous();
    writer.write(tensor.name, bytes_of(host));
    checksums[tensor.name] = checksum_of(bytes_of(host));
  }
  writer.finish();
  return checksums;
}

// The text of state.json. Its last member is a checksum of the text without it.
std::string sealed(Json state) {
  state["checksum"] = checksum_of(state.dump());
  return state.dump(1) + "\n";
}

Json read_sealed(const fs::path& path) {
  const std::string where = printable_path(path);
  Json state = parse_json_object(read_text(path, kMaxStateBytes), where);
  const Json checksum = state.contains("checksum") ? state["checksum"] : Json();
  state.erase("checksum");
  if (checksum != Json(checksum_of(state.dump()))) {
    throw_bad_input("{}: damaged: its checksum does not match", where);
  }
  return state;
}

// Throws for what training never leaves in a state.
void check_values(const std::string& name, const at::Tensor& values, const std::string& where) {
  const bool root_is_taken = name.starts_with("second_moment") || name == "optimizer.count";
  if (values.isnan().any().item<bool>() || (root_is_taken && values.lt(0).any().item<bool>())) {
    throw_bad_input("{} holds {}", where, root_is_taken ? "NaN or negative numbers" : "NaN");
  }
}

void read_tensor(const Checkpoint& checkpoint, const StateTensor& tensor, const Json& checksums) {
  const TensorInfo& info = checkpoint.at(tensor.name);
  const std::string where = fmt::format(
      "{}: tensor \"{}\"", printable_path(checkpoint.file_of(info).path()), printable(tensor.name));
  if (info.shape != tensor.value.sizes().vec() || info.dtype != dtype_of(tensor)) {
    throw_bad_input("{} is {} {}, this run needs {} {}", where, name_of(info.dtype),
                    text_of(info.shape), name_of(dtype_of(tensor)),
                    text_of(tensor.value.sizes().vec()));
  }
  const at::Tensor host = at::empty(tensor.value.sizes(), tensor.type());
  checkpoint.read(info, mutable_bytes_of(host));
  if (checksums.value(tensor.name, std::string()) != checksum_of(bytes_of(host))) {
    throw_bad_input("{} is damaged: its checksum does not match", where);
  }
  check_values(tensor.name, host, where);
  tensor.write(host);
}

fs::path path_of(const fs::path& directory, const StatePart& part) {
  return directory / fmt::format("part-{}-of-{}", part.number + 1, part.count);
}

// The number of parts in a name such as "part-1-of-4". None for other names, such as that of a part
// that is being written.
std::optional<int> count_in(const std::string& name) {
  constexpr std::string_view kOf = "-of-";
  const std::size_t at = name.rfind(kOf);
  int count = 0;
  if (at == std::string::npos) {
    return std::nullopt;
  }
  const char* end = name.data() + name.size();
  const auto [stopped, fault] = std::from_chars(name.data() + at + kOf.size(), end, count);
  return fault == std::errc() && stopped == end && count > 0 ? std::optional(count) : std::nullopt;
}

std::vector<fs::path> parts_of(const fs::path& directory, int count) {
  std::vector<fs::path> parts;
  for (int number = 0; number < count; ++number) {
    parts.push_back(path_of(directory, {number, count}));
    if (!fs::exists(parts.back())) {
      return {};
    }
  }
  return parts;
}

// The parts of a complete state; empty if it is not. A run that goes on with other ranks may have
// left parts of two numbers. A state of version 1, which had no parts, is one that
// read_from_part() refuses.
std::vector<fs::path> complete_parts(const fs::path& directory) {
  if (fs::exists(directory / kStateFile)) {
    return {directory};
  }
  std::error_code absent;
  for (const fs::directory_entry& entry : entries_in(directory, absent)) {
    const auto count = count_in(entry.path().filename().string());
    std::vector<fs::path> parts = count ? parts_of(directory, *count) : std::vector<fs::path>();
    if (!parts.empty()) {
      return parts;
    }
  }
  return {};
}

// A whole number from `least` to `most`.
std::int64_t count_at(const Json& state, const char* key, std::int64_t most,
                      const std::string& where, std::int64_t least = 0) {
  const Json& value = state.at(key);
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<std::uint64_t>() >> 63 == 0);
  const std::int64_t count = fits ? value.get<std::int64_t>() : least - 1;
  if (count < least || count > most) {
    throw_bad_input("{}: {} is {}, allowed are {} to {}", where, key, printable_json(value), least,
                    most);
  }
  return count;
}

// Reads those of `tensors` that the part holds, and takes them off `missing`.
TrainingProgress read_from_part(const fs::path& part, const std::string& run,
                                std::span<const StateTensor> tensors,
                                std::set<std::string>& missing) {
  const std::string where = printable_path(part / kStateFile);
  const Json state = read_sealed(part / kStateFile);
  if (state.at("version") != kStateVersion) {
    throw_usage("{}: state of version {}, this regroup reads {}", where,
                printable_json(state["version"]), kStateVersion);
  }
  if (state.at("run") != run) {
    throw_usage("{}: belongs to another run or model: move it away", where);
  }
  if (state.at("part") != part.filename().string()) {
    throw_bad_input("{}: belongs to another part of the state", where);
  }
  const TrainingProgress progress = progress_in(state, where);
  const Checkpoint checkpoint = open_checkpoint(part);
  for (const StateTensor& tensor : tensors) {
    if (checkpoint.find(tensor.name) != nullptr) {
      read_tensor(checkpoint, tensor, state.at("tensors"));
      missing.erase(tensor.name);
    }
  }
  return progress;
}

bool was_written_for(const fs::path& part, const std::string& run) {
  try {
    return read_sealed(part / kStateFile).at("run") == run;
  } catch (const std::exception&) {  // not readable, so not known to be
    return false;
  }
}

// Removes the files that save_training_state() writes, then the directory if nothing else is in it.
void remove_part(const fs::path& part) {
  std::error_code ignored;
  for (const std::string_view name : {kStateFile, std::string_view("model.safetensors")}) {
    fs::remove(part / name, ignored);
  }
  fs::remove(part, ignored);
}

}  // namespace

Json json_of(const TrainingProgress& progress) {
  return {{"step", progress.step},           {"samples", progress.samples},
          {"skipped", progress.skipped},     {"skipped_in_a_row", progress.skipped_in_a_row},
          {"evaluated", progress.evaluated}, {"loss_before", number_or_null(progress.loss_before)}};
}

TrainingProgress progress_in(const Json& json, const std::string& where) {
  TrainingProgress progress;
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  progress.step = count_at(json, "step", kMost, where);
  progress.samples = count_at(json, "samples", kMost, where);
  progress.skipped = count_at(json, "skipped", progress.step, where);
  progress.skipped_in_a_row = count_at(json, "skipped_in_a_row", progress.skipped, where);
  progress.evaluated = count_at(json, "evaluated", progress.step, where, -1);
  progress.loss_before = number_if_any(json.value("loss_before", Json()));
  return progress;
}

void save_training_state(const fs::path& directory, const TrainingProgress& progress,
                         std::span<const StateTensor> tensors, const std::string& run,
                         const StatePart& part) {
  const fs::path path = path_of(directory, part);
  if (fs::exists(path) || is_complete_state(directory)) {
    return;
  }
  StagedDirectory staged(path);
  Json state = {{"version", kStateVersion}, {"run", run}, {"part", path.filename().string()}};
  state.update(json_of(progress));
  state["tensors"] = write_tensors(staged.path(), tensors);
  write_text(staged.path() / kStateFile, sealed(std::move(state)));
  staged.publish();
}

bool is_complete_state(const fs::path& directory) { return !complete_parts(directory).empty(); }

void remove_training_state(const fs::path& directory, const std::string& run) {
  std::error_code fault;
  if (!fs::is_directory(fs::symlink_status(directory, fault))) {
    return;
  }
  std::vector<fs::path> parts;
  for (const fs::directory_entry& entry : entries_in(directory, fault)) {
    const std::string name = entry.path().filename().string();
    const std::size_t partial = name.find(".partial-");
    if (entry.is_directory(fault) && !entry.is_symlink(fault) &&
        count_in(name.substr(0, partial)) &&
        (partial != name.npos || was_written_for(entry.path(), run))) {
      parts.push_back(entry.path());
    }
  }
  std::ranges::for_each(parts, remove_part);
  fs::remove(directory, fault);
}

TrainingProgress load_training_state(const fs::path& directory,
                                     std::span<const StateTensor> tensors, const std::string& run) {
  const std::string where = printable_path(directory);
  std::set<std::string> missing;
  for (const StateTensor& tensor : tensors) {
    missing.insert(tensor.name);
  }
  std::optional<TrainingProgress> progress;
  try {
    for (const fs::path& part : complete_parts(directory)) {
      const TrainingProgress found = read_from_part(part, run, tensors, missing);
      if (progress && found != *progress) {
        throw_bad_input("{}: the parts of this state are of different steps", where);
      }
      progress = found;
    }
  } catch (const Json::exception& fault) {
    throw_bad_input("{}: {}", where, printable(fault.what()));
  }
  if (!progress) {
    throw_bad_input("{}: a part of this state is missing", where);
  }
  if (!missing.empty()) {
    throw_bad_input("{}: no part of this state has tensor {}", where, printable(*missing.begin()));
  }
  return *progress;
}

void StateSaver::start(const TrainingProgress& progress, std::span<const StateTensor> tensors,
                       const std::vector<bool>& transient) {
  step_ = progress.step;
  if (in_background_) {
    copy(tensors, transient);
    writing_ = std::async(std::launch::async, [this, progress, transient] {
      const auto release = c10::make_scope_exit([&] {
        for (std::size_t i = 0; i < transient.size(); ++i) {
          if (transient[i]) {
            copies_[i].value.reset();
          }
        }
      });
      save_(progress, copies_);
    });
  } else {
    writing_ = std::async(std::launch::deferred, [&] { save_(progress, tensors); });
    writing_.wait();
  }
}

void StateSaver::copy(std::span<const StateTensor> tensors, const std::vector<bool>& transient) {
  const at::NoGradGuard no_gradients;
  copies_.resize(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor value = tensors[i].read();
    StateTensor& copy = copies_[i];
    copy.name = tensors[i].name;
    if (!transient.empty() && transient[i]) {
      copy.value = value;
      continue;
    }
    if (!copy.value.defined()) {
      copy.value =
          at::empty_like(value, value.options().device(at::kCPU), at::MemoryFormat::Contiguous);
    }
    copy.value.copy_(value);
  }
}

std::optional<StateSaver::Outcome> StateSaver::outcome() {
  if (writing_.valid() && writing_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    return std::nullopt;
  }
  return wait();
}

std::optional<StateSaver::Outcome> StateSaver::wait() {
  if (!writing_.valid()) {
    return std::nullopt;
  }
  try {
    writing_.get();
    return Outcome{step_, ""};
  } catch (const Error& fault) {
    return Outcome{step_, fault.what()};
  }
}

}  // namespace regroup
