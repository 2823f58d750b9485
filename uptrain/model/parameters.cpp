#include "uptrain/model/parameters.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <ranges>
#include <unordered_set>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/base/staged_directory.h"
#include "formats/families/family.h"
#include "formats/spec/config_reader.h"
#include "formats/spec/tensor_names.h"
#include "uptrain/model/save_parameters.h"

namespace regroup {

namespace {

constexpr int kHalf = 0x8000;

void split(const at::Tensor& whole, const at::Tensor& value, const at::Tensor& low) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  // A NaN whose bits are all ones, such as CUDA's, would round to a number.
  const at::Tensor bits =
      whole.nan_to_num(std::numeric_limits<double>::quiet_NaN(), kInfinity, -kInfinity)
          .view(at::kInt);
  low.copy_(bits);  // the lower 16 bits, with a sign
  value.view(at::kShort).copy_(bits.add_(kHalf).bitwise_right_shift_(16));
}

}  // namespace

at::Tensor StateTensor::read() const {
  if (!is_split()) {
    return value;
  }
  const at::NoGradGuard no_gradients;
  const at::Tensor whole = value.detach().to(at::kFloat);
  whole.view(at::kInt).add_(low);
  return whole;
}

void StateTensor::write(const at::Tensor& whole) const {
  const at::NoGradGuard no_gradients;
  if (is_split()) {
    split(whole.detach().to(value.device()), value.detach(), low);
  } else if (!whole.is_same(value)) {
    value.copy_(whole);
  }
}

StateTensor split_tensor(const std::string& name, const at::Tensor& value) {
  return {name, value,
          at::zeros(value.sizes(), value.options().dtype(at::kShort).requires_grad(false))};
}

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
    throw_bad_input(
        "{}: tensor \"{}\" is {}, which is not computed: {}",
        printable_path(checkpoint.file_of(info).path()), printable(info.name), name_of(info.dtype),
        is_block_type(info.dtype) ? "use a file of another quantisation, such as Q8_0 or Q4_K"
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
  const auto values = entries_ | std::views::transform(&Entry::value);
  return {values.begin(), values.end()};
}

Parameters Parameters::only(std::span<const std::string> names) const {
  const std::unordered_set<std::string> wanted(names.begin(), names.end());
  std::vector<Entry> chosen;
  std::ranges::copy_if(entries_, std::back_inserter(chosen),
                       [&](const Entry& entry) { return wanted.contains(entry.name); });
  return Parameters(std::move(chosen));
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
                           at::Device device, std::optional<std::span<const std::string>> names) {
  check_all_shapes(spec, checkpoint);
  const auto listed = names.value_or(std::span<const std::string>());
  const std::unordered_set<std::string> wanted(listed.begin(), listed.end());
  std::vector<Parameters::Entry> entries;
  for (const ExpectedTensor& expected : expected_tensors(spec)) {
    if (!names || wanted.contains(expected.name)) {
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
  std::set<std::string> names;
  ModelSpec alone;
  alone.layers = {layer};
  rename_tensors(alone, [&](const std::string& name) { return *names.insert(name).first; });
  return names;
}

Parameters load_tensors(const Checkpoint& checkpoint, const std::set<std::string>& names,
                        at::ScalarType type, at::Device device) {
  std::vector<Parameters::Entry> entries;
  for (const std::string& name : names) {
    entries.push_back({name, load_tensor(checkpoint, checkpoint.at(name), type, device)});
  }
  return Parameters(std::move(entries));
}

namespace {

// The names that are not initialised with plain normal noise.
struct Roles {
  std::set<std::string> norms;
  std::set<std::string> biases;
  std::set<std::string> residual;  // weights that write into the residual stream
  std::set<std::string> queries;   // weights that make only queries

  void add(const NormTensors& norm) {
    norms.insert(norm.weight);
    biases.insert(norm.bias);
  }
  void add(const LinearTensors& linear) { biases.insert(linear.bias); }
  void add(const AttentionLayout& attention) {
    for (const LinearTensors* linear : {&attention.q, &attention.k, &attention.v, &attention.o}) {
      add(*linear);
    }
    for (const auto* all : {&attention.q_norms, &attention.k_norms}) {
      for (const NormTensors& norm : *all) {
        add(norm);
      }
    }
    residual.insert(attention.o.weight);
    if (attention.q.weight != attention.k.weight) {
      queries.insert(attention.q.weight);
    }
  }
  void add(const LayerTensors& layer) {
    for (const NormTensors* norm : layer.norms()) {
      add(*norm);
    }
    add(layer.attention);
    add(layer.cross_attention);
    for (const LinearTensors* linear : {&layer.gate, &layer.up, &layer.down}) {
      add(*linear);
    }
    residual.insert(layer.down.weight);
    residual.insert(layer.experts.down.begin(), layer.experts.down.end());
  }
};

Roles roles_in(const ModelSpec& spec) {
  Roles roles;
  for (const NormTensors* norm : {&spec.embedding_norm, &spec.encoder_embedding_norm,
                                  &spec.encoder_final_norm, &spec.final_norm, &spec.head_norm}) {
    roles.add(*norm);
  }
  roles.add(spec.head_transform);
  roles.biases.insert(spec.lm_head_bias);
  for (const auto* stack : {&spec.encoder_layers, &spec.layers}) {
    for (const LayerTensors& layer : *stack) {
      roles.add(layer);
    }
  }
  return roles;
}

// The factor that compensates for a score scale other than 1/√d.
double query_factor(const ModelSpec& spec) {
  const double usual = 1.0 / std::sqrt(static_cast<double>(spec.head_dim));
  return usual / spec.attention_scale.value_or(usual);
}

double deviation_in(const ConfigReader& config) {
  const double deviation = config.number_or({"initializer_range"}, kUsualDeviation);
  if (!(deviation > 0.0)) {
    throw_bad_input("{}: initializer_range is {}, allowed is more than 0", config.where(),
                    deviation);
  }
  return deviation;
}

// Converts the numbers to find those that overflow in that type.
void check_fits(const Parameters& parameters, DType dtype, const NamedConfig& config,
                double deviation) {
  for (const Parameters::Entry& entry : parameters.entries()) {
    if (!entry.value.to(scalar_type_of(dtype)).isfinite().all().item<bool>()) {
      throw_bad_input(
          "{}: weights with a standard deviation of {} (initializer_range) do not fit into {}: "
          "tensor {} would hold NaN or infinities; {} is usual",
          config.name, deviation, name_of(dtype), printable(entry.name), kUsualDeviation);
    }
  }
}

}  // namespace

Parameters initialise_parameters(const ModelSpec& spec, std::uint64_t seed, double deviation) {
  const Roles roles = roles_in(spec);
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  const double residual = deviation / std::sqrt(2.0 * static_cast<double>(spec.layer_count()));
  std::vector<Parameters::Entry> entries;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    at::Tensor value = at::empty(tensor.shape, at::kFloat);
    if (roles.norms.contains(tensor.name)) {
      value.fill_(1.0 - spec.norm_weight_offset);
    } else if (roles.biases.contains(tensor.name)) {
      value.zero_();
    } else {
      const double own = roles.residual.contains(tensor.name)  ? residual
                         : roles.queries.contains(tensor.name) ? deviation * query_factor(spec)
                                                               : deviation;
      value.normal_(0.0, own, generator);
    }
    entries.push_back({tensor.name, value});
  }
  return Parameters(std::move(entries));
}

void write_new_model(const NamedConfig& config, std::uint64_t seed, DType dtype,
                     const std::filesystem::path& destination) {
  const Json json = parse_json_object(config.text, config.name);
  const ModelSpec spec = describe_model(json, Checkpoint({}), config.name);
  if (!spec.not_computable.empty()) {
    throw_bad_input("{}: this model cannot be computed: {}", config.name,
                    printable(spec.not_computable));
  }
  const double deviation = deviation_in(ConfigReader(json, config.name));
  if (!spec.whole_model.empty()) {
    throw_bad_input("{}: describes a {} model, of which only the language model could be made",
                    config.name, printable(spec.whole_model));
  }
  StagedDirectory staged(destination);
  write_text(staged.path() / "config.json", config.text);
  const Parameters parameters = initialise_parameters(spec, seed, deviation);
  check_fits(parameters, dtype, config, deviation);
  save_new_parameters(parameters, dtype, staged.path());
  staged.publish();
}

}  // namespace regroup
