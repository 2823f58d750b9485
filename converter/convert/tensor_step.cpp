#include "converter/convert/tensor_step.h"

#include <cmath>

#include "formats/base/error.h"
#include "formats/tensors/dtype.h"

namespace regroup {

namespace {

constexpr double kLargestRatio = 1024.0;

std::vector<double> weights_of(const Checkpoint& checkpoint, const NormTensors& norm,
                               std::size_t width, double offset) {
  if (!norm.present()) {
    return std::vector<double>(width, 1.0);
  }
  std::vector<double> weights = stored_numbers(checkpoint, norm.weight);
  for (double& weight : weights) {
    weight += offset;
  }
  return weights;
}

std::vector<double> biases_of(const Checkpoint& checkpoint, const NormTensors& norm,
                              std::size_t width) {
  return norm.bias.empty() ? std::vector<double>(width, 0.0)
                           : stored_numbers(checkpoint, norm.bias);
}

[[noreturn]] void refuse_unreadable(const Checkpoint& checkpoint, const TensorInfo& tensor,
                                    std::string_view purpose) {
  throw_bad_input(
      "{}: dtype {} cannot be {}; {}", place_of(checkpoint, tensor), name_of(tensor.dtype), purpose,
      is_block_type(tensor.dtype) ? "use a file of another quantisation, such as Q8_0 or Q4_K"
                                  : "allowed: F16, BF16, F32, F64");
}

}  // namespace

FoldedNorm::FoldedNorm(const Checkpoint& checkpoint, const NormFold& fold, double offset) {
  const auto width = static_cast<std::size_t>(checkpoint.at(fold.from.weight).elements());
  ratio = weights_of(checkpoint, fold.from, width, offset);
  shift = biases_of(checkpoint, fold.from, width);
  const std::vector<double> kept = weights_of(checkpoint, fold.to, width, offset);
  const std::vector<double> kept_bias = biases_of(checkpoint, fold.to, width);
  for (std::size_t i = 0; i < width; ++i) {
    ratio[i] /= kept[i];
    shift[i] -= kept_bias[i] * ratio[i];
  }
}

bool can_fold(const Checkpoint& checkpoint, const NormFold& fold, double offset) {
  const FoldedNorm folded(checkpoint, fold, offset);
  return std::ranges::all_of(folded.ratio,
                             [](double ratio) { return std::abs(ratio) <= kLargestRatio; });
}

void FoldedNorm::apply_to_weight(std::span<double> weight) const {
  for (std::size_t i = 0; i < weight.size(); ++i) {
    weight[i] *= ratio[i % ratio.size()];
  }
}

void FoldedNorm::apply_to_bias(std::span<double> bias, std::span<const double> weight) const {
  for (std::size_t row = 0; row < bias.size(); ++row) {
    for (std::size_t i = 0; i < shift.size(); ++i) {
      bias[row] += weight[row * shift.size() + i] * shift[i];
    }
  }
}

TensorStep& TensorStepBuilder::step(const std::string& name, DType dtype, Shape shape) {
  const auto [place, is_new] = by_name_.emplace(name, steps_.size());
  if (is_new) {
    steps_.push_back({{name, dtype, std::move(shape)}});
  }
  return steps_[place->second];
}

void TensorStepBuilder::place(const std::string& from, bool from_columns, const std::string& to,
                              bool to_columns, const Features& features) {
  const TensorInfo& tensor = checkpoint_.at(from);
  Shape shape = tensor.shape;
  const bool matrix = shape.size() == 2;
  if (matrix && from_columns != to_columns) {
    std::swap(shape[0], shape[1]);
  }
  shape[matrix && to_columns ? 1 : 0] = features.total;
  HeadBlocks blocks = head_blocks(tensor.shape, from_columns, features.from, features.rows);
  if (features.pooled && matrix) {  // pooled heads are always [out, in]
    blocks = head_blocks({features.rows, tensor.shape[from_columns ? 0 : 1]}, false, features.from,
                         features.rows);
  }
  HeadMove move = copy_of_heads(from, std::move(blocks),
                                head_blocks(shape, to_columns, features.to, features.rows));
  move.pooled = features.pooled;
  if (move.pooled) {
    move.pooled->bias = !matrix && !move.pooled->is_norm();
  }
  if (!features.mean_of.empty()) {
    move.mean_of = features.mean_of;
  }
  move.row_order = features.row_order;
  if ((move.pools() || move.pooled) && !can_decode(tensor.dtype)) {
    refuse_unreadable(checkpoint_, tensor, "pooled");
  }
  step(to, tensor.dtype, std::move(shape)).moves.push_back(std::move(move));
}

void TensorStepBuilder::linear(const LinearTensors& from, const LinearTensors& to,
                               const Features& features, const NormFold* fold) {
  if (!to.present()) {
    return;
  }
  place(from.weight, from.input_major, to.weight, to.input_major, features);
  if (!to.bias.empty() && !from.bias.empty()) {
    place(from.bias, false, to.bias, false, features);
  } else if (!to.bias.empty()) {
    zeros(to.bias, checkpoint_.at(from.weight).dtype, features.total);
  }
  if (fold != nullptr) {
    fold_into(to, *fold);
  }
}

void TensorStepBuilder::linear(const LinearTensors& from, const LinearTensors& to,
                               const NormFold* fold) {
  if (from.present()) {
    const Shape& shape = checkpoint_.at(from.weight).shape;
    linear(from, to, Features::all(shape.at(from.input_major ? 1 : 0)), fold);
  }
}

// Called when all moves into the map are known. The map's weight absorbs the norm's weight, and its
// bias absorbs the rest of the norm.
void TensorStepBuilder::fold_into(const LinearTensors& to, const NormFold& fold) {
  TensorStep& weight = steps_[by_name_.at(to.weight)];
  TensorStep& bias = steps_[by_name_.at(to.bias)];
  weight.fold = fold;
  bias.fold = fold;
  bias.fold->weight_moves = weight.moves;
  bias.fold->weight_shape = weight.output.shape;
}

void TensorStepBuilder::copy_rows(const std::string& from, const Rows& from_rows,
                                  const std::string& to, const Shape& shape, const Rows& to_rows,
                                  std::int64_t rows) {
  const TensorInfo& tensor = checkpoint_.at(from);
  const Shape matrix = {rows, shape.back()};
  step(to, tensor.dtype, shape)
      .moves.push_back(copy_of_heads(from, head_blocks(matrix, false, from_rows, rows),
                                     head_blocks(matrix, false, to_rows, rows)));
}

void TensorStepBuilder::unit_rows(const std::string& from, const std::string& to) {
  const TensorInfo& tensor = checkpoint_.at(from);
  if (!can_decode(tensor.dtype)) {
    refuse_unreadable(checkpoint_, tensor, "normalised");
  }
  const Rows rows = evenly_spaced(rows_of(from));
  place(from, false, to, false, {rows, rows, 1, std::ssize(rows)});
  steps_[by_name_.at(to)].unit_rows = true;
}

void TensorStepBuilder::vector(const std::string& from, const std::string& to,
                               const Features& features) {
  if (!from.empty() && !to.empty()) {
    place(from, false, to, false, features);
  }
}

void TensorStepBuilder::norm(const NormTensors& from, const NormTensors& to) {
  if (!from.present() || !to.present()) {
    return;
  }
  const Features all = Features::all(rows_of(from.weight));
  vector(from.weight, to.weight, all);
  steps_.back().add = source_offset_ - target_offset_;
  if (from.bias.empty() && !to.bias.empty()) {
    zeros(to.bias, checkpoint_.at(from.weight).dtype, all.total);
  }
  vector(from.bias, to.bias, all);
}

void TensorStepBuilder::identity_norm(const NormTensors& to, const NormTensors& like) {
  const TensorInfo& tensor = checkpoint_.at(like.weight);
  step(to.weight, tensor.dtype, tensor.shape).add = 1.0 - target_offset_;
  step(to.bias, tensor.dtype, tensor.shape);
}

}  // namespace regroup
