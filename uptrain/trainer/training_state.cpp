#include "uptrain/trainer/training_state.h"

#include <charconv>
#include <limits>
#include <set>
#include <string_view>
#include <vector>

#include <ATen/ops/empty.h>

#include "formats/base/checksum.h"
#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/base/staged_directory.h"
#include "formats/directory/model_directory.h"
#include "formats/json/json.h"
#include "formats/safetensors/safetensors_writer.h"
#include "uptrain/model/tensor_bytes.h"

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
  const std::string where = printable(path.string(), 0);
  Json state = parse_json_object(read_text(path, kMaxStateBytes), where);
  const Json checksum = state.contains("checksum") ? state["checksum"] : Json();
  state.erase("checksum");
  if (checksum != Json(checksum_of(state.dump()))) {
    throw_bad_input("{}: damaged: its checksum does not match", where);
  }
  return state;
}

void read_tensor(const Checkpoint& checkpoint, const StateTensor& tensor, const Json& checksums) {
  const TensorInfo& info = checkpoint.at(tensor.name);
  const std::string where =
      fmt::format("{}: tensor \"{}\"", printable(checkpoint.file_of(info).path().string(), 0),
                  printable(tensor.name));
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
// left parts of two numbers. A state of version 1, which had no parts, is one that read_part()
// refuses.
std::vector<fs::path> complete_parts(const fs::path& directory) {
  if (fs::exists(directory / kStateFile)) {
    return {directory};
  }
  std::error_code absent;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, absent)) {
    const auto count = count_in(entry.path().filename().string());
    std::vector<fs::path> parts = count ? parts_of(directory, *count) : std::vector<fs::path>();
    if (!parts.empty()) {
      return parts;
    }
  }
  return {};
}

TrainingProgress progress_in(const Json& state) {
  return {state.at("step"),      state.at("samples"),
          state.at("skipped"),   state.at("skipped_in_a_row"),
          state.at("evaluated"), number_if_any(state.value("loss_before", Json()))};
}

// state.json of a part.
Json read_part(const fs::path& part, const std::string& run) {
  const std::string where = printable((part / kStateFile).string(), 0);
  Json state = read_sealed(part / kStateFile);
  if (state.at("version") != kStateVersion) {
    throw_bad_input("{}: state of version {}, allowed is {}", where, state["version"].dump(),
                    kStateVersion);
  }
  if (state.at("run") != run) {
    throw_bad_input("{}: belongs to another run or model", where);
  }
  if (state.at("part") != part.filename().string()) {
    throw_bad_input("{}: belongs to another part of the state", where);
  }
  return state;
}

// Reads those of `tensors` that the part holds, and takes them off `missing`.
TrainingProgress read_from_part(const fs::path& part, const std::string& run,
                                std::span<const StateTensor> tensors,
                                std::set<std::string>& missing) {
  const Json state = read_part(part, run);
  const Checkpoint checkpoint = open_checkpoint(part);
  for (const StateTensor& tensor : tensors) {
    if (checkpoint.find(tensor.name) != nullptr) {
      read_tensor(checkpoint, tensor, state.at("tensors"));
      missing.erase(tensor.name);
    }
  }
  return progress_in(state);
}

}  // namespace

void save_training_state(const fs::path& directory, const TrainingProgress& progress,
                         std::span<const StateTensor> tensors, const std::string& run,
                         const StatePart& part) {
  const fs::path path = path_of(directory, part);
  if (fs::exists(path) || is_complete_state(directory)) {
    return;
  }
  StagedDirectory staged(path);
  Json checksums = write_tensors(staged.path(), tensors);
  const Json state = {{"version", kStateVersion},
                      {"run", run},
                      {"part", path.filename().string()},
                      {"step", progress.step},
                      {"samples", progress.samples},
                      {"skipped", progress.skipped},
                      {"skipped_in_a_row", progress.skipped_in_a_row},
                      {"evaluated", progress.evaluated},
                      {"loss_before", number_or_null(progress.loss_before)},
                      {"tensors", std::move(checksums)}};
  write_text(staged.path() / kStateFile, sealed(state));
  staged.publish();
}

bool is_complete_state(const fs::path& directory) { return !complete_parts(directory).empty(); }

TrainingProgress load_training_state(const fs::path& directory,
                                     std::span<const StateTensor> tensors, const std::string& run) {
  const std::string where = printable(directory.string(), 0);
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

}  // namespace regroup
