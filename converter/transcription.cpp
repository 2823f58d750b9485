#include "converter/transcription.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

#include "converter/norm_fold.h"
#include "converter/pooling/attention_pooler.h"
#include "formats/error.h"
#include "formats/numbers.h"
#include "formats/printable.h"

namespace regroup {
namespace {

using Rows = std::vector<std::int64_t>;

// Output features on their way from one linear map to another, in blocks of `rows` features.
struct Features {
  Rows from, to;  // first feature of each block
  std::int64_t rows = 0;
  std::int64_t total = 0;                          // features of the result's tensor
  std::vector<std::vector<std::int64_t>> mean_of;  // per block of the result; empty: its own
  Rows row_order;
  std::optional<PooledTensor> pooled = std::nullopt;  // they are of this tensor's part

  static Features all(std::int64_t count) { return {{0}, {0}, count, count, {}, {}}; }

  // The same features out of a pooled layer, whose heads follow one another.
  Features out_of(const PooledTensor& tensor, std::size_t heads) const {
    Features features = *this;
    features.pooled = tensor;
    features.from.resize(heads);
    for (std::size_t h = 0; h < heads; ++h) {
      features.from[h] = static_cast<std::int64_t>(h) * rows;
    }
    return features;
  }
};

// Where each feature of a rotating head comes from when the two specs pair features differently.
Rows rope_order(const ModelSpec& source, const ModelSpec& target) {
  const bool rotates =
      source.positions == PositionKind::kRope && target.positions == PositionKind::kRope;
  if (!rotates || source.rope.interleaved == target.rope.interleaved) {
    return {};
  }
  Rows order(static_cast<std::size_t>(source.head_dim));
  std::iota(order.begin(), order.end(), 0);
  const std::int64_t half = source.rope.rotary_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const bool pairs = target.rope.interleaved;
    order[static_cast<std::size_t>(pairs ? 2 * i : i)] = pairs ? i : 2 * i;
    order[static_cast<std::size_t>(pairs ? 2 * i + 1 : i + half)] = pairs ? i + half : 2 * i + 1;
  }
  return order;
}

// Element order[i] of `all` in place i.
template <typename T>
std::vector<T> taken(const std::vector<T>& all, const Rows& order) {
  std::vector<T> result;
  for (const std::int64_t i : order) {
    result.push_back(all[static_cast<std::size_t>(i)]);
  }
  return result;
}

// Collects the steps of one model.
class Transcriber {
 public:
  explicit Transcriber(const Transcription& models)
      : source_(models.source),
        grouped_(models.grouped),
        target_(models.target),
        checkpoint_(models.checkpoint),
        pooling_(models.pooling),
        order_(models.order),
        rope_order_(rope_order(source_, target_)) {}

  void embeddings();
  void encoder();
  void stack(AttentionRole self);
  void attention(AttentionRole role, std::size_t layer, const NormFold* fold = nullptr);
  void head();
  void relative_bias(AttentionRole self, std::size_t layer);

  std::vector<TensorStep> take() { return std::move(steps_); }

 private:
  TensorStep& step(const std::string& name, DType dtype, Shape shape);
  void place(const std::string& from, bool from_columns, const std::string& to, bool to_columns,
             const Features& features);
  void linear(const LinearTensors& from, const LinearTensors& to, const Features& features,
              const NormFold* fold = nullptr);
  void linear(const LinearTensors& from, const LinearTensors& to, const NormFold* fold = nullptr);
  void fold_into(const LinearTensors& to, const NormFold& fold);
  void norm(const NormTensors& from, const NormTensors& to);
  void identity_norm(const NormTensors& to, const NormTensors& like);
  void vector(const std::string& from, const std::string& to, const Features& features);
  void outputs(const AttentionLayout& from, const AttentionLayout& to, const Rows& heads);
  void head_norms(const std::vector<NormTensors>& from, const std::vector<NormTensors>& to,
                  const Features& heads);
  void layer(AttentionRole self, std::size_t i);
  std::int64_t rows_of(const std::string& name) const { return checkpoint_.at(name).shape.at(0); }

  const ModelSpec& source_;
  const ModelSpec& grouped_;
  const ModelSpec& target_;
  const Checkpoint& checkpoint_;
  Pooling pooling_;
  const HeadOrder& order_;
  Rows rope_order_;
  std::vector<TensorStep> steps_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

TensorStep& Transcriber::step(const std::string& name, DType dtype, Shape shape) {
  const auto [place, is_new] = by_name_.emplace(name, steps_.size());
  if (is_new) {
    steps_.push_back({{name, dtype, std::move(shape)}, {}, {}, 0.0, {}, {}});
  }
  return steps_[place->second];
}

// One tensor of a linear map. In fused packings several calls fill the same result.
void Transcriber::place(const std::string& from, bool from_columns, const std::string& to,
                        bool to_columns, const Features& features) {
  const TensorInfo& tensor = checkpoint_.at(from);
  Shape shape = tensor.shape;
  const bool matrix = shape.size() == 2;
  if (matrix && from_columns != to_columns) {
    std::swap(shape[0], shape[1]);
  }
  shape[matrix && to_columns ? 1 : 0] = features.total;
  HeadBlocks blocks = head_blocks(tensor.shape, from_columns, features.from, features.rows);
  if (features.pooled && matrix) {  // always [out, in]
    blocks = head_blocks({features.rows, tensor.shape[from_columns ? 0 : 1]}, false, features.from,
                         features.rows);
  }
  HeadMove move = copy_of_heads(from, std::move(blocks),
                                head_blocks(shape, to_columns, features.to, features.rows));
  move.pooled = features.pooled;
  if (move.pooled) {
    move.pooled->bias = !matrix;
  }
  if (!features.mean_of.empty()) {
    move.mean_of = features.mean_of;
  }
  move.row_order = features.row_order;
  if ((move.pools() || move.pooled) && !can_decode(tensor.dtype)) {
    throw_bad_input("tensor {}: dtype {} cannot be pooled; allowed: F16, BF16, F32, F64",
                    printable(tensor.name), name_of(tensor.dtype));
  }
  step(to, tensor.dtype, std::move(shape)).moves.push_back(std::move(move));
}

void Transcriber::linear(const LinearTensors& from, const LinearTensors& to,
                         const Features& features, const NormFold* fold) {
  if (!to.present()) {
    return;
  }
  place(from.weight, from.input_major, to.weight, to.input_major, features);
  if (!to.bias.empty() && !from.bias.empty()) {
    place(from.bias, false, to.bias, false, features);
  } else if (!to.bias.empty()) {
    step(to.bias, checkpoint_.at(from.weight).dtype, {features.total});  // zeros
  }
  if (fold != nullptr) {
    fold_into(to, *fold);
  }
}

void Transcriber::linear(const LinearTensors& from, const LinearTensors& to, const NormFold* fold) {
  if (from.present()) {
    const Shape& shape = checkpoint_.at(from.weight).shape;
    linear(from, to, Features::all(shape.at(from.input_major ? 1 : 0)), fold);
  }
}

// After all moves into the map are known: its weight takes the norm up, its bias the rest.
void Transcriber::fold_into(const LinearTensors& to, const NormFold& fold) {
  TensorStep& weight = steps_[by_name_.at(to.weight)];
  TensorStep& bias = steps_[by_name_.at(to.bias)];
  weight.fold = fold;
  bias.fold = fold;
  bias.fold->weight_moves = weight.moves;
  bias.fold->weight_shape = weight.output.shape;
}

void Transcriber::vector(const std::string& from, const std::string& to, const Features& features) {
  if (!from.empty() && !to.empty()) {
    place(from, false, to, false, features);
  }
}

void Transcriber::norm(const NormTensors& from, const NormTensors& to) {
  if (!from.present() || !to.present()) {
    return;
  }
  const Features all = Features::all(rows_of(from.weight));
  vector(from.weight, to.weight, all);
  steps_.back().add = source_.norm_weight_offset - target_.norm_weight_offset;
  if (from.bias.empty() && !to.bias.empty()) {
    step(to.bias, checkpoint_.at(from.weight).dtype, {all.total});  // zeros
  }
  vector(from.bias, to.bias, all);
}

void Transcriber::identity_norm(const NormTensors& to, const NormTensors& like) {
  const TensorInfo& tensor = checkpoint_.at(like.weight);
  step(to.weight, tensor.dtype, tensor.shape).add = 1.0 - target_.norm_weight_offset;
  step(to.bias, tensor.dtype, tensor.shape);
}

// Norms of queries or keys: weights of the whole projection move with its heads; weights for every
// head alike keep to the order of its features.
void Transcriber::head_norms(const std::vector<NormTensors>& from,
                             const std::vector<NormTensors>& to, const Features& heads) {
  for (std::size_t i = 0; i < std::min(from.size(), to.size()); ++i) {
    Features features = heads;
    if (source_.qk_norm != QkNorm::kProjection) {
      features = Features::all(source_.head_dim);
      features.row_order = heads.row_order;
    }
    vector(from[i].weight, to[i].weight, features);
    vector(from[i].bias, to[i].bias, features);
  }
}

// One column per query head, in their new places.
void Transcriber::relative_bias(AttentionRole self, std::size_t layer) {
  const std::string& from = source_.stack(self)[layer].relative_bias;
  const std::string& to = target_.stack(self)[layer].relative_bias;
  if (from.empty() || to.empty()) {
    return;
  }
  const Rows heads = order_.heads(self, layer, source_.query_heads);
  const Rows places = HeadOrder().heads(self, layer, source_.query_heads);
  place(from, true, to, true, {heads, places, 1, std::ssize(heads), {}, {}});
}

// The output projection with its columns where query heads `heads` come to stand.
void Transcriber::outputs(const AttentionLayout& from, const AttentionLayout& to,
                          const Rows& heads) {
  const std::int64_t d = source_.head_dim;
  const TensorInfo& tensor = checkpoint_.at(from.o.weight);
  if (is_block_type(tensor.dtype)) {
    throw_usage(
        "tensor {} is {}: heads change places in it only where --pool aligned or lowrank "
        "computes it anew",
        printable(tensor.name), name_of(tensor.dtype));
  }
  Features columns{{}, {}, d, d * std::ssize(heads), {}, {}};
  for (const std::int64_t head : heads) {
    columns.to.push_back(d * std::ssize(columns.from));
    columns.from.push_back(d * head);
  }
  place(from.o.weight, !from.o.input_major, to.o.weight, !to.o.input_major, columns);
  const std::int64_t outputs = tensor.shape.at(from.o.input_major ? 1 : 0);
  if (!to.o.bias.empty() && from.o.bias.empty()) {
    step(to.o.bias, tensor.dtype, {outputs});  // zeros
  } else {
    vector(from.o.bias, to.o.bias, Features::all(outputs));
  }
}

void Transcriber::attention(AttentionRole role, std::size_t layer, const NormFold* fold) {
  const AttentionLayout& from = source_.attention(role, layer);
  const AttentionLayout& to = target_.attention(role, layer);
  if (!from.present()) {
    return;
  }
  const std::int64_t before = source_.kv_heads_of(role)[layer];
  const std::int64_t groups = grouped_.kv_heads_of(role)[layer];
  const std::int64_t after = target_.kv_heads_of(role)[layer];
  const std::int64_t head_dim = source_.head_dim;
  const HeadFeatures old_heads = head_features(from.packing, source_.query_heads, before, head_dim);
  const HeadFeatures new_heads = head_features(to.packing, source_.query_heads, after, head_dim);
  if (source_.qk_norm == QkNorm::kEachHead && before != after) {
    throw_bad_input(
        "{}: every key head has a norm of its own ({}); heads that are normalised differently have "
        "no mean that a loader could compute with",
        printable(source_.architecture), printable(from.k_norms.front().weight));
  }
  const bool computed = pooling_.looks_at_weights() && before != groups;
  const Pooling named = pooling_.looks_at_weights() ? Pooling{} : pooling_;
  auto kv = heads_to_average(named, before, groups, after, stream_of(role, layer));
  const Rows kv_order = order_.heads(role, layer, before);
  const Rows q_order = order_.heads(role, layer, source_.query_heads);
  for (std::vector<std::int64_t>& heads : kv) {
    heads = taken(kv_order, heads);
  }
  Features q{taken(old_heads.q, q_order), new_heads.q, head_dim,
             new_heads.q_total,           {},          rope_order_};
  Features k{old_heads.k, new_heads.k, head_dim, new_heads.k_total, kv, rope_order_};
  Features v{old_heads.v, new_heads.v, head_dim, new_heads.v_total, kv, {}};
  Features o = Features::all(checkpoint_.at(from.o.weight).shape.at(from.o.input_major ? 1 : 0));
  const bool own_norms = source_.qk_norm == QkNorm::kEachHead;
  head_norms(own_norms ? taken(from.q_norms, q_order) : from.q_norms, to.q_norms, q);
  head_norms(own_norms ? taken(from.k_norms, kv_order) : from.k_norms, to.k_norms, k);
  if (computed) {
    k.mean_of = v.mean_of = heads_of_groups(groups, groups, after);
    k = k.out_of({role, layer, AttentionPart::kKey}, static_cast<std::size_t>(groups));
    v = v.out_of({role, layer, AttentionPart::kValue}, static_cast<std::size_t>(groups));
  }
  if (computed && pooling_.changes_readers()) {
    q = q.out_of({role, layer, AttentionPart::kQuery}, q.from.size());
    o = o.out_of({role, layer, AttentionPart::kOutput}, 1);
  }
  linear(from.q, to.q, q, fold);
  linear(from.k, to.k, k, fold);
  linear(from.v, to.v, v, fold);
  if (order_.moves(role, layer) && !o.pooled) {
    outputs(from, to, q_order);
  } else {
    linear(from.o, to.o, o);
  }
}

void Transcriber::layer(AttentionRole self, std::size_t i) {
  const LayerTensors& from = source_.stack(self)[i];
  const LayerTensors& to = target_.stack(self)[i];
  std::optional<NormFold> attention_fold, mlp_fold;
  if (source_.parallel_residual && from.mlp_norm.present() && !to.mlp_norm.present()) {
    // Two norms become one: the MLP's goes into its first map, unless that would divide by
    // something close to zero; then both go.
    mlp_fold = {from.mlp_norm, from.attention_norm, {}, {}};
    if (!can_fold(checkpoint_, *mlp_fold, source_.norm_weight_offset)) {
      attention_fold = {from.attention_norm, {}, {}, {}};
      mlp_fold->to = {};
    }
  }
  const auto pointer = [](const std::optional<NormFold>& fold) { return fold ? &*fold : nullptr; };
  if (attention_fold) {
    identity_norm(to.attention_norm, from.attention_norm);
  } else {
    norm(from.attention_norm, to.attention_norm);
  }
  attention(self, i, pointer(attention_fold));
  relative_bias(self, i);
  norm(from.cross_norm, to.cross_norm);
  if (source_.has_encoder() && self == AttentionRole::kSelf) {
    attention(AttentionRole::kCross, i);
  }
  norm(from.mlp_norm, to.mlp_norm);
  linear(from.gate, to.gate, pointer(mlp_fold));
  linear(from.up, to.up, pointer(mlp_fold));
  linear(from.down, to.down);
}

void Transcriber::stack(AttentionRole self) {
  for (std::size_t i = 0; i < source_.stack(self).size(); ++i) {
    layer(self, i);
  }
}

void Transcriber::encoder() {
  if (source_.has_encoder()) {
    stack(AttentionRole::kEncoder);
    norm(source_.encoder_final_norm, target_.encoder_final_norm);
  }
}

void Transcriber::embeddings() {
  const auto whole = [&](const std::string& from, const std::string& to) {
    if (!from.empty() && !to.empty()) {
      linear({from, "", false}, {to, "", false});
    }
  };
  whole(source_.token_embedding, target_.token_embedding);
  if (!source_.position_embedding.empty() && !target_.position_embedding.empty()) {
    const std::int64_t rows = rows_of(source_.position_embedding);
    const std::int64_t skip = source_.position_offset - target_.position_offset;
    place(source_.position_embedding, false, target_.position_embedding, false,
          {{skip}, {0}, rows - skip, rows - skip, {}, {}});
  }
  whole(source_.token_type_embedding, target_.token_type_embedding);
  linear(source_.project_in, target_.project_in);
  norm(source_.embedding_norm, target_.embedding_norm);
}

void Transcriber::head() {
  norm(source_.final_norm, target_.final_norm);
  linear(source_.project_out, target_.project_out);
  linear(source_.head_transform, target_.head_transform);
  norm(source_.head_norm, target_.head_norm);
  const std::string& output = source_.lm_head.empty() ? source_.token_embedding : source_.lm_head;
  if (!target_.lm_head.empty()) {
    linear({output, source_.lm_head_bias, false}, {target_.lm_head, target_.lm_head_bias, false});
  } else if (!source_.lm_head_bias.empty()) {
    vector(source_.lm_head_bias, target_.lm_head_bias,
           Features::all(rows_of(source_.lm_head_bias)));
  }
}

}  // namespace

std::vector<TensorStep> transcribe_attention(const Transcription& models) {
  Transcriber transcriber(models);
  for (const AttentionRole role : models.source.roles()) {
    for (std::size_t i = 0; i < models.source.stack(role).size(); ++i) {
      transcriber.attention(role, i);
      if (role != AttentionRole::kCross) {
        transcriber.relative_bias(role, i);
      }
    }
  }
  return transcriber.take();
}

std::vector<TensorStep> transcribe_model(const Transcription& models) {
  Transcriber transcriber(models);
  transcriber.embeddings();
  transcriber.encoder();
  transcriber.stack(AttentionRole::kSelf);
  transcriber.head();
  return transcriber.take();
}

}  // namespace regroup
