#include "uptrain/trainer/training_state.h"

#include <limits>
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

constexpr std::string_view kStateFile = "state.json";
constexpr std::int64_t kStateVersion = 1;
constexpr std::uint64_t kMaxStateBytes = 256U << 20;

DType dtype_of(const StateTensor& tensor) {
  switch (tensor.type()) {
    case at::kDouble: return DType::kF64;
    case at::kBFloat16: return DType::kBF16;
    default: return DType::kF32;
  }
}

// Writes the tensors to `directory`. Returns their checksums.
Json write_tensors(const std::filesystem::path& directory, std::span<const StateTensor> tensors) {
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

}  // namespace

void save_training_state(const std::filesystem::path& directory, const TrainingProgress& progress,
                         std::span<const StateTensor> tensors, const std::string& run) {
  StagedDirectory staged(directory);
  Json checksums = write_tensors(staged.path(), tensors);
  const Json state = {
      {"version", kStateVersion},        {"run", run},
      {"step", progress.step},           {"samples", progress.samples},
      {"skipped", progress.skipped},     {"skipped_in_a_row", progress.skipped_in_a_row},
      {"evaluated", progress.evaluated}, {"loss_before", number_or_null(progress.loss_before)},
      {"tensors", std::move(checksums)}};
  write_text(staged.path() / kStateFile, sealed(state));
  staged.publish();
}

TrainingProgress load_training_state(const std::filesystem::path& directory,
                                     std::span<const StateTensor> tensors, const std::string& run) {
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
    for (const StateTensor& tensor : tensors) {
      read_tensor(checkpoint, tensor, state.at("tensors"));
    }
    return {state.at("step"),      state.at("samples"),
            state.at("skipped"),   state.at("skipped_in_a_row"),
            state.at("evaluated"), number_if_any(state.value("loss_before", Json()))};
  } catch (const Json::exception& fault) {
    throw_bad_input("{}: {}", where, printable(fault.what()));
  }
}

}  // namespace regroup
