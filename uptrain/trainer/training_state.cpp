#include "uptrain/trainer/training_state.h"

#include <limits>
#include <string_view>
#include <vector>

#include <ATen/core/grad_mode.h>
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

constexpr std::string_view kStateFile = "state.json";
constexpr std::int64_t kStateVersion = 1;
constexpr std::uint64_t kMaxStateBytes = 256U << 20;

DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble: return DType::kF64;
    case at::kBFloat16: return DType::kBF16;
    default: return DType::kF32;
  }
}

// Writes the tensors to `directory`. Returns their checksums.
Json write_tensors(const std::filesystem::path& directory,
                   std::span<const Parameters::Entry> tensors) {
  std::vector<OutputTensor> outputs;
  for (const auto& [name, value] : tensors) {
    outputs.push_back({name, dtype_of(value), value.sizes().vec()});
  }
  SafetensorsWriter writer(directory, outputs, {}, std::numeric_limits<std::uint64_t>::max());
  Json checksums = Json::object();
  for (const auto& [name, value] : tensors) {
    const at::Tensor host = value.detach().to(at::kCPU).contiguous();
    writer.write(name, bytes_of(host));
    checksums[name] = checksum_of(bytes_of(host));
  }
  writer.finish();
  return checksums;
}

// The text of state.json. Its last member is a checksum of the text without it.
std::string sealed(Json state) {
  state["checksum"] = checksum_of(state.dump());
  return state.dump(1) + "\n";
}

Json read_sealed(const std::filesystem::path& path) {
  const std::string where = printable(path.string(), 0);
  Json state = parse_json_object(read_text(path, kMaxStateBytes), where);
  const Json checksum = state.contains("checksum") ? state["checksum"] : Json();
  state.erase("checksum");
  if (checksum != Json(checksum_of(state.dump()))) {
    throw_bad_input("{}: damaged: its checksum does not match", where);
  }
  return state;
}

void read_tensor(const Checkpoint& checkpoint, const Parameters::Entry& entry,
                 const Json& checksums) {
  const TensorInfo& info = checkpoint.at(entry.name);
  const std::string where =
      fmt::format("{}: tensor \"{}\"", printable(checkpoint.file_of(info).path().string(), 0),
                  printable(entry.name));
  if (info.shape != entry.value.sizes().vec() || info.dtype != dtype_of(entry.value)) {
    throw_bad_input("{} is {} {}, this run needs {} {}", where, name_of(info.dtype),
                    text_of(info.shape), name_of(dtype_of(entry.value)),
                    text_of(entry.value.sizes().vec()));
  }
  const at::Tensor host = at::empty(entry.value.sizes(), entry.value.scalar_type());
  checkpoint.read(info, mutable_bytes_of(host));
  if (checksums.value(entry.name, std::string()) != checksum_of(bytes_of(host))) {
    throw_bad_input("{} is damaged: its checksum does not match", where);
  }
  const at::NoGradGuard no_gradients;
  entry.value.copy_(host);
}

}  // namespace

void save_training_state(const std::filesystem::path& directory, const TrainingProgress& progress,
                         std::span<const Parameters::Entry> tensors, const std::string& run) {
  StagedDirectory staged(directory);
  Json checksums = write_tensors(staged.path(), tensors);
  const Json state = {
      {"version", kStateVersion},        {"run", run},
      {"step", progress.step},           {"samples", progress.samples},
      {"skipped", progress.skipped},     {"skipped_in_a_row", progress.skipped_in_a_row},
      {"evaluated", progress.evaluated}, {"tensors", std::move(checksums)}};
  write_text(staged.path() / kStateFile, sealed(state));
  staged.publish();
}

TrainingProgress load_training_state(const std::filesystem::path& directory,
                                     std::span<const Parameters::Entry> tensors,
                                     const std::string& run) {
  const Json state = read_sealed(directory / kStateFile);
  const std::string where = printable((directory / kStateFile).string(), 0);
  try {
    if (state.at("version") != kStateVersion) {
      throw_bad_input("{}: state of version {}, allowed is {}", where, state["version"].dump(),
                      kStateVersion);
    }
    if (state.at("run") != run) {
      throw_bad_input("{}: belongs to another run or model", where);
    }
    const Checkpoint checkpoint = open_checkpoint(directory);
    for (const Parameters::Entry& entry : tensors) {
      read_tensor(checkpoint, entry, state.at("tensors"));
    }
    return {state.at("step"), state.at("samples"), state.at("skipped"),
            state.at("skipped_in_a_row"), state.at("evaluated")};
  } catch (const Json::exception& fault) {
    throw_bad_input("{}: {}", where, printable(fault.what()));
  }
}

}  // namespace regroup
