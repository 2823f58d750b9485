// A model's learned tensors, under the names and in the layout in which they are stored.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "formats/checkpoint/checkpoint.h"
#include "formats/spec/model_spec.h"
#include "uptrain/model/state_tensor.h"

namespace regroup {

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

  /// Elements of all tensors together.
  std::int64_t elements() const;

  /// The tensors of the given names, in this order, sharing their memory.
  Parameters only(std::span<const std::string> names) const;

  /// A deep copy in another floating type.
  Parameters copy_as(at::ScalarType type) const;

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

/// Reads every tensor that `spec` names, converted to `type`, onto `device`. Throws kBadInput if
/// one is missing, has another shape than the spec implies, or holds values that are not numbers.
Parameters load_parameters(const ModelSpec& spec, const Checkpoint& checkpoint, at::ScalarType type,
                           at::Device device);

/// The names of all tensors of a layer.
std::set<std::string> tensors_of(const LayerTensors& layer);

/// Loads only the parameters of one layer, in the stack whose self-attention has `role`.
Parameters load_layer_parameters(const ModelSpec& spec, AttentionRole role, std::size_t layer,
                                 const Checkpoint& checkpoint, at::ScalarType type,
                                 at::Device device);

/// Loads only the parameters of one norm.
Parameters load_norm_parameters(const NormTensors& norm, const Checkpoint& checkpoint,
                                at::ScalarType type, at::Device device);

/// Loads only the parameters with the given names.
Parameters load_parameters(const ModelSpec& spec, const Checkpoint& checkpoint, at::ScalarType type,
                           at::Device device, std::span<const std::string> names);

/// Reads the stored values of `tensors`, converted to their type, into them. Throws as
/// load_parameters() does.
void read_parameters(const Parameters& tensors, const ModelSpec& spec,
                     const Checkpoint& checkpoint);

}  // namespace regroup
