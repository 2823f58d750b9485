#include "uptrain/model/parameters.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <unordered_set>
#include <utility>

#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>

#include "formats/base/error.h"
#include "formats/base/interruption.h"
#include "formats/base/printable.h"
#include "formats/checkpoint/tensor_place.h"
#include "formats/dtype/numbers.h"
#include "formats/families/family.h"
#include "uptrain/model/tensor_bytes.h"

namespace regroup {
namespace {

at::Tensor read_numbers(const Checkpoint& checkpoint, const TensorInfo& info) {
  if (is_block_type(info.dtype)) {
    std::vector<std::byte> blocks(info.bytes());
    checkpoint.read(info, blocks);
    return tensor_of_numbers(blocks, info.dtype, info.shape, at::kFloat);
  }
  at::Tensor stored = at::empty(info.shape, scalar_type_of(info.dtype));
  checkpoint.read(info, mutable_bytes_of(stored));
  return stored;
}

// All weights that are computed with are read here.
at::Tensor load_tensor(const Checkpoint& checkpoint, const TensorInfo& info, at::ScalarType type,
                       at::Device device) {
  if (!can_decode(info.dtype)) {
    throw_bad_input("{}: tensor \"{}\" is {}, which is not computed: {}",
                    printable(checkpoint.file_of(info).path().string(), 0), printable(info.name),
                    name_of(info.dtype),
                    is_block_type(info.dtype)
                        ? "use a file of another quantisation, such as Q8_0 or Q4_K"
                        : "allowed are F16, BF16, F32, F64 and ggml's block types");
  }
  const at::Tensor numbers = read_numbers(checkpoint, info);
  check_finite(numbers, checkpoint, info);
  return numbers.to(device, type);
}

}  // namespace

// One pass over the numbers: minimum and maximum are NaN if one of them is.
void check_finite(const at::Tensor& numbers, const Checkpoint& checkpoint,
                  const TensorInfo& tensor) {
  if (numbers.numel() == 0) {
    return;
  }
  const auto [least, most] = at::aminmax(numbers);
  if (!std::isfinite(least.item<double>()) || !std::isfinite(most.item<double>())) {
    throw_bad_input(
        "{}: holds NaN or infinities, and a model cannot be computed with them; regroup inspect "
        "--stats counts them",
        place_of(checkpoint, tensor));
  }
}

Parameters::Parameters(std::vector<Entry> entries) : entries_(std::move(entries)) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!by_name_.emplace(entries_[i].name, i).second) {
      throw_bad_input("parameter \"{}\" is named twice", printable(entries_[i].name));
    }
  }
}

const at::Tensor& Parameters::at(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  if (found == by_name_.end()) {
    throw_bad_input("tensor \"{}\" is missing", printable(name));
  }
  return entries_[found->second].value;
}

std::vector<at::Tensor> Parameters::tensors() const {
  std::vector<at::Tensor> all;
  all.reserve(entries_.size());
  for (const Entry& entry : entries_) {
    all.push_back(entry.value);
  }
  return all;
}

std::int64_t Parameters::elements() const {
  std::int64_t total = 0;
  for (const Entry& entry : entries_) {
    total += entry.value.numel();
  }
  return total;
}

Parameters Parameters::only(std::span<const std::string> names) const {
  const std::unordered_set<std::string> wanted(names.begin(), names.end());
  std::vector<Entry> chosen;
  for (const Entry& entry : entries_) {
    if (wanted.contains(entry.name)) {
      chosen.push_back(entry);
    }
  }
  return Parameters(std::move(chosen));
}

Parameters Parameters::copy_as(at::ScalarType type) const {
  std::vector<Entry> copies;
  copies.reserve(entries_.size());
  for (const Entry& entry : entries_) {
    copies.push_back({entry.name, entry.value.detach().to(type, /*non_blocking=*/false,
                                                          /*copy=*/true)});
  }
  return Parameters(std::move(copies));
}

void Parameters::require_gradients() const {
  for (const Entry& entry : entries_) {
    entry.value.set_requires_grad(true);
  }
}

std::vector<StateTensor> in_place(std::span<const Parameters::Entry> entries) {
  std::vector<StateTensor> tensors;
  tensors.reserve(entries.size());
  for (const Parameters::Entry& entry : entries) {
    tensors.push_back({entry.name, entry.value});
  }
  return tensors;
}

at::ScalarType scalar_type_of(DType dtype) {
  switch (dtype) {
    case DType::kF16: return at::kHalf;
    case DType::kBF16: return at::kBFloat16;
    case DType::kF32: return at::kFloat;
    case DType::kF64: return at::kDouble;
    default:
      throw_bad_input("dtype {} cannot be trained, allowed are F16, BF16, F32 and F64",
                      name_of(dtype));
  }
}

at::Tensor tensor_of_numbers(std::span<const std::byte> bytes, DType dtype, const Shape& shape,
                             at::ScalarType type) {
  constexpr std::size_t kChunk = std::size_t{1} << 16;  // whole blocks of every type
  at::Tensor tensor = at::empty(shape, at::kFloat);
  const std::span<float> floats{tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
  std::vector<double> numbers(std::min(kChunk, floats.size()));
  for (std::size_t begin = 0; begin < floats.size(); begin += kChunk) {
    const std::size_t count = std::min(kChunk, floats.size() - begin);
    const auto chunk = std::span(numbers).first(count);
    decode_numbers(dtype,
                   bytes.subspan(bytes_of_elements(dtype, begin), bytes_of_elements(dtype, count)),
                   chunk);
    std::transform(chunk.begin(), chunk.end(), floats.begin() + static_cast<std::ptrdiff_t>(begin),
                   [](double number) { return static_cast<float>(number); });
  }
  return tensor.to(type);
}

Parameters load_parameters(const ModelSpec& spec, const Checkpoint& checkpoint, at::ScalarType type,
                           at::Device device) {
  std::vector<std::string> names;
  for (const ExpectedTensor& expected : expected_tensors(spec)) {
    names.push_back(expected.name);
  }
  return load_parameters(spec, checkpoint, type, device, names);
}

Parameters load_parameters(const ModelSpec& spec, const Checkpoint& checkpoint, at::ScalarType type,
                           at::Device device, std::span<const std::string> names) {
  check_all_shapes(spec, checkpoint);
  const std::unordered_set<std::string> wanted(names.begin(), names.end());
  std::vector<Parameters::Entry> entries;
  for (const ExpectedTensor& expected : expected_tensors(spec)) {
    if (wanted.contains(expected.name)) {
      check_stop();
      const TensorInfo& info = checkpoint.at(expected.name);
      entries.push_back({expected.name, load_tensor(checkpoint, info, type, device)});
    }
  }
  return Parameters(std::move(entries));
}

void read_parameters(const Parameters& tensors, const ModelSpec& spec,
                     const Checkpoint& checkpoint) {
  check_all_shapes(spec, checkpoint);
  for (const Parameters::Entry& entry : tensors.entries()) {
    entry.value.copy_(load_tensor(checkpoint, checkpoint.at(entry.name), entry.value.scalar_type(),
                                  entry.value.device()));
  }
}

std::set<std::string> tensors_of(const LayerTensors& layer) {
  std::set<std::string> names{layer.relative_bias};
  const auto add = [&](const auto& tensors) { names.insert({tensors.weight, tensors.bias}); };
  for (const NormTensors* norm : layer.norms()) {
    add(*norm);
  }
  for (const LinearTensors& linear : {layer.gate, layer.up, layer.down, layer.shared_gate}) {
    add(linear);
  }
  names.insert(layer.experts.router);
  for (const auto* experts : {&layer.experts.gate, &layer.experts.up, &layer.experts.down}) {
    names.insert(experts->begin(), experts->end());
  }
  for (const AttentionLayout& attention : {layer.attention, layer.cross_attention}) {
    for (const LinearTensors& linear : {attention.q, attention.k, attention.v, attention.o}) {
      add(linear);
    }
    for (const auto& norms : {attention.q_norms, attention.k_norms}) {
      for (const NormTensors& norm : norms) {
        add(norm);
      }
    }
  }
  names.erase("");
  return names;
}

Parameters load_norm_parameters(const NormTensors& norm, const Checkpoint& checkpoint,
                                at::ScalarType type, at::Device device) {
  std::vector<Parameters::Entry> entries;
  for (const std::string& name : {norm.weight, norm.bias}) {
    if (!name.empty()) {
      entries.push_back({name, load_tensor(checkpoint, checkpoint.at(name), type, device)});
    }
  }
  return Parameters(std::move(entries));
}

Parameters load_layer_parameters(const ModelSpec& spec, AttentionRole role, std::size_t layer,
                                 const Checkpoint& checkpoint, at::ScalarType type,
                                 at::Device device) {
  std::vector<Parameters::Entry> entries;
  for (const std::string& name : tensors_of(spec.stack(role)[layer])) {
    entries.push_back({name, load_tensor(checkpoint, checkpoint.at(name), type, device)});
  }
  return Parameters(std::move(entries));
}

}  // namespace regroup
