#include "uptrain/model/save_parameters.h"

#include <map>
#include <unordered_map>
#include <vector>

#include "formats/base/file.h"
#include "formats/tensors/dtype.h"
#include "formats/tensors/tensor_reader.h"

namespace regroup {
namespace {

void write_tensor(CheckpointWriter& writer, const std::string& name, const at::Tensor& value,
                  DType dtype) {
  const at::Tensor stored = value.detach().to(at::kCPU, scalar_type_of(dtype)).contiguous();
  writer.write(name, bytes_of(stored));
}

// The same as bytes, also for quantised types.
std::vector<std::byte> stored_bytes(const at::Tensor& value, DType dtype) {
  const at::Tensor numbers = value.detach().to(at::kCPU, at::kDouble).contiguous();
  const auto count = static_cast<std::size_t>(numbers.numel());
  std::vector<std::byte> bytes(bytes_of_elements(dtype, count));
  encode_numbers(dtype, {numbers.const_data_ptr<double>(), count}, bytes);
  return bytes;
}

std::vector<OutputTensor> tensors_like(const Checkpoint& source) {
  std::vector<OutputTensor> outputs;
  for (const TensorInfo& tensor : source.tensors()) {
    outputs.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  return outputs;
}

}  // namespace

ParametersWriter::ParametersWriter(const ModelSpec& spec, const Checkpoint& source,
                                   const std::filesystem::path& directory, OutputFiles files)
    : spec_(spec),
      source_(source),
      first_(files == OutputFiles::kCreated),
      writer_(directory, tensors_like(source), source.metadata(), kDefaultShardBytes, files) {}

// The trained tensor that is written in the place of `tensor`: itself, or the one of which it is a
// copy that the model does not use, the token embedding or, in BERT, the bias of the output. Empty
// if there is none.
std::string ParametersWriter::trained_name(const TensorInfo& tensor,
                                           const std::set<std::string>& trained) const {
  if (trained.contains(tensor.name)) {
    return tensor.name;
  }
  for (const std::string& name : {spec_.token_embedding, spec_.lm_head_bias}) {
    if (trained.contains(name) && same_contents(source_, tensor, source_.at(name))) {
      return name;
    }
  }
  return "";
}

void ParametersWriter::write(std::span<const StateTensor> trained,
                             const std::set<std::string>& elsewhere) {
  std::unordered_map<std::string, const StateTensor*> here;
  std::set<std::string> all = elsewhere;
  for (const StateTensor& tensor : trained) {
    here.emplace(tensor.name, &tensor);
    all.insert(tensor.name);
  }
  for (const TensorInfo& tensor : source_.tensors()) {
    const std::string name = trained_name(tensor, all);
    if (here.contains(name)) {
      write_tensor(writer_, tensor.name, here.at(name)->read(), tensor.dtype);
    } else if (name.empty() && first_) {
      writer_.copy(tensor.name, source_, tensor);
    }
  }
}

void overwrite_parameters(std::span<const StateTensor> tensors, const Checkpoint& checkpoint) {
  std::map<std::size_t, File> files;
  for (const StateTensor& tensor : tensors) {
    const TensorInfo& info = checkpoint.at(tensor.name);
    if (!files.contains(info.file)) {
      files.emplace(info.file, File::open_or_create(checkpoint.file_of(info).path()));
    }
    files.at(info.file).write_at(info.begin, stored_bytes(tensor.read(), info.dtype));
  }
  for (auto& [number, file] : files) {
    file.sync_and_close();
  }
}

void save_new_parameters(const Parameters& parameters, DType dtype,
                         const std::filesystem::path& directory) {
  std::vector<OutputTensor> outputs;
  for (const Parameters::Entry& entry : parameters.entries()) {
    outputs.push_back({entry.name, dtype, entry.value.sizes().vec()});
  }
  SafetensorsWriter writer(directory, outputs, {});
  for (const Parameters::Entry& entry : parameters.entries()) {
    write_tensor(writer, entry.name, entry.value, dtype);
  }
  writer.finish();
}

}  // namespace regroup
