#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "converter/pooling/parallel_for.h"
#include "formats/base/error.h"
#include "uptrain/ops/attention.h"
#include "uptrain/ops/attention_tile.h"

namespace regroup {
namespace {

using c10::BFloat16;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Sizes and options of one call.
struct TiledShape {
  std::int64_t batch, heads, groups, queries, keys, width;
  float scale;
  bool causal;
  std::int64_t before;  // keys before the first query, if causal
  const float* bias;    // [H, S], or null

  TiledShape(const Heads& all, const TiledAttention& attention)
      : batch(all.q.size(0)),
        heads(all.q.size(1)),
        groups(all.k.size(1)),
        queries(all.q.size(2)),
        keys(all.k.size(2)),
        width(all.q.size(3)),
        scale(static_cast<float>(attention.scale)),
        causal(attention.causal),
        before(causal ? keys - queries : 0),
        bias(attention.bias.defined() ? attention.bias.const_data_ptr<float>() : nullptr) {}

  std::int64_t tiles() const { return (queries + kTileQueries - 1) / kTileQueries; }
};

struct TilePlace {
  std::int64_t batch, head, group, first, count;
  std::int64_t query;  // the first one, counted over all heads of all sequences

  // Tile number `tile` of head number `index`, counted over all sequences.
  TilePlace(const TiledShape& shape, std::int64_t index, std::int64_t tile)
      : batch(index / shape.heads),
        head(index % shape.heads),
        group(head / (shape.heads / shape.groups)),
        first(tile * kTileQueries),
        count(std::min(kTileQueries, shape.queries - first)),
        query(index * shape.queries + first) {}
};

// A tensor [B, n, T, d] with contiguous rows.
template <typename Number>
struct TiledTensor {
  Number* data;
  std::array<std::int64_t, 3> strides;

  MatrixRows<Number> rows(std::int64_t batch, std::int64_t head, std::int64_t position) const {
    return {data + batch * strides[0] + head * strides[1] + position * strides[2], strides[2]};
  }
  MatrixRows<Number> queries(const TilePlace& place) const {
    return rows(place.batch, place.head, place.first);
  }
  // The rows that have a dimension each, from the key `begin` on.
  MatrixRows<Number> dimensions(const TilePlace& place, std::int64_t begin) const {
    const MatrixRows<Number> all = rows(place.batch, place.group, 0);
    return {all.data + begin, all.stride};
  }
};

template <typename Number>
TiledTensor<Number> written(const at::Tensor& x) {
  return {x.mutable_data_ptr<Number>(), {x.stride(0), x.stride(1), x.stride(2)}};
}

TiledTensor<const BFloat16> read(const at::Tensor& x) {
  return {x.const_data_ptr<BFloat16>(), {x.stride(0), x.stride(1), x.stride(2)}};
}

// Calls the function for each tile of keys that a tile of queries sees.
template <typename Function>
void for_each_tile(const TiledShape& shape, const TilePlace& place, float* products,
                   const Function& function) {
  const std::int64_t seen = shape.causal ? shape.before + place.first + place.count : shape.keys;
  for (std::int64_t begin = 0; begin < seen; begin += kTileKeys) {
    const float* const bias =
        shape.bias == nullptr ? nullptr : shape.bias + place.head * shape.keys + begin;
    function(begin, TileScores{products, std::min(kTileKeys, seen - begin),
                               shape.causal ? begin - shape.before - place.first : -kTileKeys,
                               shape.scale, bias});
  }
}

struct TiledForward {
  TiledShape shape;
  TiledTensor<const BFloat16> q, k, turned_v;
  TiledTensor<BFloat16> output;
  float* log_sum;  // [B, H, T]
};

class ForwardTile {
 public:
  explicit ForwardTile(const TiledForward& forward)
      : forward_(forward),
        width_(forward.shape.width),
        queries_(static_cast<std::size_t>(width_ / 2 * kTileQueries)),
        scores_(kTileKeys * kTileQueries),
        weights_(kTileKeys / 2 * kTileQueries),
        sums_(static_cast<std::size_t>(width_ * kTileQueries)) {}

  void compute(const TilePlace& place) {
    pack_dimensions(forward_.q.queries(place), place.count, width_, queries_.data());
    std::ranges::fill(sums_, 0.0F);
    softmax_.largest.fill(-std::numeric_limits<float>::infinity());
    softmax_.sum.fill(0.0F);
    for_each_tile(forward_.shape, place, scores_.data(),
                  [&](std::int64_t begin, const TileScores& scores) { add(place, begin, scores); });
    write(place);
  }

 private:
  void add(const TilePlace& place, std::int64_t begin, const TileScores& scores) {
    multiply({scores.keys, kTileQueries, width_}, forward_.k.rows(place.batch, place.group, begin),
             queries_.data(), {scores.products, kTileQueries, false});
    add_tile(scores, softmax_, weights_.data());
    scale_queries(sums_.data(), width_, softmax_.factor);
    multiply({width_, kTileQueries, scores.keys + scores.keys % 2},
             forward_.turned_v.dimensions(place, begin), weights_.data(),
             {sums_.data(), kTileQueries, true});
  }

  void write(const TilePlace& place) const {
    QueryNumbers inverse;
    std::ranges::transform(softmax_.sum, inverse.begin(), [](float sum) { return 1.0F / sum; });
    write_queries(sums_.data(), place.count, width_, inverse, forward_.output.queries(place));
    for (std::int64_t i = 0; i < place.count; ++i) {
      const auto query = static_cast<std::size_t>(i);
      forward_.log_sum[place.query + i] = softmax_.largest[query] + std::log(softmax_.sum[query]);
    }
  }

  const TiledForward& forward_;
  std::int64_t width_;
  std::vector<Pair> queries_;
  std::vector<float> scores_;
  std::vector<Pair> weights_;
  std::vector<float> sums_;  // [d, 64]
  RunningSoftmax softmax_;
};

void attend_forward(const TiledForward& forward) {
  const TiledShape& shape = forward.shape;
  const std::int64_t tiles = shape.tiles();
  const std::atomic<bool>* const stop = StopScope::current();  // that of this thread
  at::parallel_for(0, shape.batch * shape.heads * tiles, 1,
                   [&](std::int64_t begin, std::int64_t end) {
                     ForwardTile tile(forward);
                     for (std::int64_t i = begin; i < end && !(stop != nullptr && *stop); ++i) {
                       tile.compute({shape, i / tiles, i % tiles});
                     }
                     release_products();
                   });
  check_stop();
}

// The number of dimensions of the second factor that kernels process at a time.
std::int64_t block_of(std::int64_t width) {
  for (const std::int64_t block : {64, 48, 32}) {
    if (width % block == 0) {
      return block;
    }
  }
  return 16;
}

struct TiledBackward {
  TiledShape shape;
  TiledTensor<const BFloat16> q, k, v, turned_k, output, outer;
  const float* log_sum;  // [B, H, T]
  TiledTensor<BFloat16> by_q;
  TiledTensor<float> by_k, by_v;  // [B, H, S, d], of zeros
};

class BackwardTile {
 public:
  explicit BackwardTile(const TiledBackward& backward)
      : backward_(backward),
        width_(backward.shape.width),
        block_(block_of(width_)),
        packed_(static_cast<std::size_t>(4 * packed_size())),
        products_(2 * kTileKeys * kTileQueries),
        narrow_(2 * kTileKeys * kTileQueries),
        pairs_(kTileKeys / 2 * kTileQueries),
        by_q_(static_cast<std::size_t>(width_ * kTileQueries)) {}

  void compute(const TilePlace& place) {
    prepare(place);
    for_each_tile(
        backward_.shape, place, products_.data(),
        [&](std::int64_t begin, const TileScores& scores) { differentiate(place, begin, scores); });
    QueryNumbers one;
    one.fill(1.0F);
    write_queries(by_q_.data(), place.count, width_, one, backward_.by_q.queries(place));
  }

 private:
  std::int64_t packed_size() const { return width_ / 2 * kTileQueries; }
  Pair* packed(std::int64_t which) { return packed_.data() + which * packed_size(); }
  Pair* queries() { return packed(0); }
  Pair* outer() { return packed(1); }
  Pair* query_pairs() { return packed(2); }
  Pair* outer_pairs() { return packed(3); }

  void prepare(const TilePlace& place) {
    const ProductRows q = backward_.q.queries(place);
    const ProductRows from = backward_.outer.queries(place);
    pack_dimensions(q, place.count, width_, queries());
    pack_dimensions(from, place.count, width_, outer());
    pack_queries(q, place.count, width_, block_, query_pairs());
    pack_queries(from, place.count, width_, block_, outer_pairs());
    std::ranges::fill(by_q_, 0.0F);
    multiply_rows(from, backward_.output.queries(place), place.count, width_, along_);
    log_sum_.fill(std::numeric_limits<float>::infinity());
    std::copy_n(backward_.log_sum + place.query, place.count, log_sum_.begin());
  }

  void differentiate(const TilePlace& place, std::int64_t begin, const TileScores& scores) {
    const std::int64_t keys = scores.keys;
    float* const by_weights = products_.data() + kTileKeys * kTileQueries;
    BFloat16* const weights = narrow_.data();
    BFloat16* const by_products = narrow_.data() + kTileKeys * kTileQueries;
    multiply({keys, kTileQueries, width_}, backward_.k.rows(place.batch, place.group, begin),
             queries(), {scores.products, kTileQueries, false});
    multiply({keys, kTileQueries, width_}, backward_.v.rows(place.batch, place.group, begin),
             outer(), {by_weights, kTileQueries, false});
    differentiate_tile(scores, {by_weights, log_sum_, along_, weights, by_products, pairs_.data()});
    multiply({width_, kTileQueries, keys + keys % 2}, backward_.turned_k.dimensions(place, begin),
             pairs_.data(), {by_q_.data(), kTileQueries, true});
    add_products(weights, keys, outer_pairs(), backward_.by_v.rows(place.batch, place.head, begin));
    add_products(by_products, keys, query_pairs(),
                 backward_.by_k.rows(place.batch, place.head, begin));
  }

  // [keys, 64] times [64, d].
  void add_products(const BFloat16* tile, std::int64_t keys, const Pair* pairs,
                    const MatrixRows<float>& sums) const {
    for (std::int64_t dimension = 0; dimension < width_; dimension += block_) {
      multiply({keys, block_, kTileQueries}, {tile, kTileQueries},
               pairs + dimension * kTileQueries / 2, {sums.data + dimension, sums.stride, true});
    }
  }

  const TiledBackward& backward_;
  std::int64_t width_, block_;
  std::vector<Pair> packed_;
  std::vector<float> products_;   // queries times keys, then outer gradients times values
  std::vector<BFloat16> narrow_;  // the softmax, then the gradient by the products
  std::vector<Pair> pairs_;
  std::vector<float> by_q_;  // [d, 64]
  QueryNumbers log_sum_, along_;
};

// One thread computes a whole head, because its tiles add to the same gradients of keys.
void attend_backward(const TiledBackward& backward) {
  const TiledShape& shape = backward.shape;
  at::parallel_for(0, shape.batch * shape.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    BackwardTile tile(backward);
    for (std::int64_t head = begin; head < end; ++head) {
      for (std::int64_t i = 0; i < shape.tiles(); ++i) {
        tile.compute({shape, head, i});
      }
    }
    release_products();
  });
}

at::Tensor with_whole_rows(const at::Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); }

// [B, G, S, d] -> [B, G, d, S'], padded with zeros to an even S'.
at::Tensor dimensions_first(const at::Tensor& x) {
  const std::int64_t length = x.size(2);
  at::Tensor turned =
      at::zeros({x.size(0), x.size(1), x.size(3), length + length % 2}, x.options());
  turned.narrow(-1, 0, length).copy_(x.transpose(2, 3));
  return turned;
}

// The sum over the query heads of each group: [B, S, H, d] -> [B, G, S, d].
at::Tensor sum_groups(const at::Tensor& by_heads, const at::Tensor& like) {
  const std::int64_t groups = like.size(1);
  return by_heads.unflatten(2, {groups, by_heads.size(2) / groups})
      .sum(3)
      .to(like.scalar_type())
      .transpose(1, 2);
}

struct TiledAttentionFunction : torch::autograd::Function<TiledAttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& queries,
                            const at::Tensor& keys, const at::Tensor& values,
                            const TiledAttention& attention) {
    const Heads heads = {with_whole_rows(queries), with_whole_rows(keys), with_whole_rows(values)};
    const TiledShape shape(heads, attention);
    const at::Tensor output = empty_heads(heads.q);
    const at::Tensor log_sum =
        at::empty({shape.batch, shape.heads, shape.queries}, heads.q.options().dtype(at::kFloat));
    const at::Tensor turned_v = dimensions_first(heads.v);
    attend_forward({shape, read(heads.q), read(heads.k), read(turned_v), written<BFloat16>(output),
                    log_sum.mutable_data_ptr<float>()});
    context->save_for_backward({heads.q, heads.k, heads.v, output, log_sum, attention.bias});
    context->saved_data["scale"] = attention.scale;
    context->saved_data["causal"] = attention.causal;
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Heads heads = {saved[0], saved[1], saved[2]};
    const TiledAttention attention = {context->saved_data["scale"].toDouble(),
                                      context->saved_data["causal"].toBool(), saved[5]};
    const TiledShape shape(heads, attention);
    const at::Tensor outer = with_whole_rows(gradients.front());
    const at::Tensor turned_k = dimensions_first(heads.k);
    const at::Tensor by_q = empty_heads(heads.q);
    const at::Tensor by_k = at::zeros({shape.batch, shape.keys, shape.heads, shape.width},
                                      heads.q.options().dtype(at::kFloat));
    const at::Tensor by_v = at::zeros(by_k.sizes(), by_k.options());
    attend_backward({shape, read(heads.q), read(heads.k), read(heads.v), read(turned_k),
                     read(saved[3]), read(outer), saved[4].const_data_ptr<float>(),
                     written<BFloat16>(by_q), written<float>(by_k.transpose(1, 2)),
                     written<float>(by_v.transpose(1, 2))});
    return {by_q, sum_groups(by_k, heads.k), sum_groups(by_v, heads.v), at::Tensor()};
  }
};

}  // namespace

bool can_attend_in_tiles(const Heads& heads) {
  const auto fits = [](const at::Tensor& x) {
    return x.is_cpu() && x.scalar_type() == at::kBFloat16;
  };
  const std::int64_t width = heads.q.size(3);
  if (!fits(heads.q) || !fits(heads.k) || !fits(heads.v) || heads.q.size(2) < kTileQueries ||
      width % 16 != 0 || heads.v.size(3) != width || heads.k.size(2) == 0) {
    return false;
  }
  return can_multiply_pairs();
}

at::Tensor attend_in_tiles(const Heads& heads, const TiledAttention& attention) {
  return TiledAttentionFunction::apply(heads.q, heads.k, heads.v, attention);
}

}  // namespace regroup
