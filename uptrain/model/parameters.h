// Weights of a model: reading and making them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint.h"
#include "formats/tensors/dtype.h"

namespace regroup {

// A tensor's numbers as bytes.

/// Views of a contiguous tensor in host memory, valid as long as its storage.
inline std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}
inline std::span<std::byte> mutable_bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

// The tensors of a training state, among them fp32 masters that are stored in two halves.

/// A named tensor that is saved and restored. Either `value` is the tensor, or it is an fp32 tensor
/// in two halves: `value` is its bf16 rounding and `low`, int16, holds the lower bits:
///   value = (bits + 0x8000) >> 16    low = bits - (value << 16)
/// where bits is the tensor read as int32. Ties are therefore rounded away from zero: after
/// rounding to even, the two ties around a value could not be told apart. The halves are exactly
/// the fp32 tensor, except that every NaN becomes the same NaN.
struct StateTensor {
  std::string name;
  at::Tensor value;
  at::Tensor low = {};  ///< undefined: `value` is the whole tensor

  bool is_split() const { return low.defined(); }

  /// The type of the whole tensor.
  at::ScalarType type() const { return is_split() ? at::kFloat : value.scalar_type(); }

  /// The whole tensor: `value` itself, or a new fp32 tensor on its device.
  at::Tensor read() const;

  /// Replaces the tensor. `whole` may be on another device, or what read() returned.
  void write(const at::Tensor& whole) const;
};

/// Two halves that take the place of the bf16 tensor `value`, whose present values they hold.
StateTensor split_tensor(const std::string& name, const at::Tensor& value);

// A model's learned tensors, under the names and in the layout in which they are stored.

/// Named tensors in a fixed order. Copies share the tensors' memory, as copies of at::Tensor do.
/// Fused projections stay fused and Conv1D weights stay [in, out]: saving is the inverse of
/// loading.
class Parameters {
 public:
  struct Entry {
    std::string name;
    at::Tensor value;
  };

  explicit Parameters(std::vector<Entry> entries);

  std::span<const Entry> entries() const { return entries_; }

  /// The tensor of that name; throws kBadInput naming it when it is missing.
  const at::Tensor& at(std::string_view name) const;

  bool contains(std::string_view name) const { return by_name_.contains(std::string(name)); }

  /// The tensors alone, in the same order.
  std::vector<at::Tensor> tensors() const;

  /// The tensors of the given names, in this order, sharing their memory.
  Parameters only(std::span<const std::string> names) const;

  /// Marks every tensor as a leaf that requires a gradient.
  void require_gradients() const;

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

/// The tensors of a state that is read and written in place.
std::vector<StateTensor> in_place(std::span<const Parameters::Entry> entries);

/// LibTorch's type for a stored floating type. Throws kBadInput for a type that cannot be trained.
at::ScalarType scalar_type_of(DType dtype);

/// Decodes stored numbers of any type that can_decode() to float, then rounds to `type`; on the
/// CPU.
at::Tensor tensor_of_numbers(std::span<const std::byte> bytes, DType dtype, const Shape& shape,
                             at::ScalarType type);

/// Throws kBadInput naming `tensor`, from which `numbers` were read, if they are not all finite.
void check_finite(const at::Tensor& numbers, const Checkpoint& checkpoint,
                  const TensorInfo& tensor);

/// Reads every tensor that `spec` names, or only those of a given list, converted to
/// `type`, onto `device`. Throws kBadInput if one that `spec` names is missing or has another shape
/// than the spec implies, or if one that is read holds values that are not numbers.
Parameters load_parameters(const ModelSpec& spec, const Checkpoint& checkpoint, at::ScalarType type,
                           at::Device device,
                           std::optional<std::span<const std::string>> names = std::nullopt);

/// The names of all tensors of a layer.
std::set<std::string> tensors_of(const LayerTensors& layer);

/// Loads only the tensors with these names, whose shapes are not checked.
Parameters load_tensors(const Checkpoint& checkpoint, const std::set<std::string>& names,
                        at::ScalarType type, at::Device device);

/// Reads the stored values of `tensors`, converted to their type, into them. Throws as
/// load_parameters() does.
void read_parameters(const Parameters& tensors, const ModelSpec& spec,
                     const Checkpoint& checkpoint);

// Random initialisation of a model from a config, for pretraining.

constexpr double kUsualDeviation = 0.02;

/// GPT-2's initialisation (Radford et al. 2019, section 2.3): normal with standard deviation
/// `deviation`, divided by √(2·layers) for projections into the residual stream; norms 1, biases 0.
/// If scores are not divided by √d, queries are initialised smaller by that factor, as in T5
/// (Raffel et al. 2020, https://arxiv.org/abs/1910.10683). fp32, on the CPU; a pure function of the
/// arguments.
Parameters initialise_parameters(const ModelSpec& spec, std::uint64_t seed,
                                 double deviation = kUsualDeviation);

/// A config.json and its name in error messages.
struct NamedConfig {
  std::string text;
  std::string name;
};

/// Writes a model directory at `destination` with such weights, stored as `dtype`, and the
/// unchanged config. `deviation` is the config's initializer_range if it has one. Throws kBadInput
/// for a config of an unknown family or of a model that cannot be computed; kUsage if `destination`
/// exists.
void write_new_model(const NamedConfig& config, std::uint64_t seed, DType dtype,
                     const std::filesystem::path& destination);

}  // namespace regroup
