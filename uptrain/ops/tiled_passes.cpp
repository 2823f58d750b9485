#include "uptrain/ops/tiled_passes.h"

#include <cmath>
#include <limits>
#include <vector>

#include "converter/pooling/parallel_for.h"
#include "formats/base/error.h"

namespace regroup {
namespace {

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
    const std::int64_t group = forward_.shape.group_of(place.head);
    pack_dimensions(forward_.q.row(place.batch, place.head, place.first), forward_.q.strides[2],
                    place.count, width_, queries_.data());
    std::ranges::fill(sums_, 0.0F);
    softmax_.largest.fill(-std::numeric_limits<float>::infinity());
    softmax_.sum.fill(0.0F);
    for_each_tile(
        forward_.shape, place, scores_.data(), [&](std::int64_t begin, const TileScores& scores) {
          multiply({scores.keys, kTileQueries, width_},
                   {forward_.k.row(place.batch, group, begin), forward_.k.strides[2]},
                   queries_.data(), {scores.products, kTileQueries, false});
          add_tile(scores, softmax_, weights_.data());
          scale_queries(sums_.data(), width_, softmax_.factor);
          multiply(
              {width_, kTileQueries, scores.keys + scores.keys % 2},
              {forward_.turned_v.row(place.batch, group, 0) + begin, forward_.turned_v.strides[2]},
              weights_.data(), {sums_.data(), kTileQueries, true});
        });
    write(place);
  }

 private:
  void write(const TilePlace& place) const {
    const TiledShape& shape = forward_.shape;
    float* const log_sum =
        forward_.log_sum + (place.batch * shape.heads + place.head) * shape.queries + place.first;
    QueryNumbers inverse;
    for (std::size_t i = 0; i < inverse.size(); ++i) {
      inverse[i] = 1.0F / softmax_.sum[i];
    }
    write_queries(sums_.data(), place.count, width_, inverse,
                  forward_.output.row(place.batch, place.head, place.first),
                  forward_.output.strides[2]);
    for (std::int64_t i = 0; i < place.count; ++i) {
      const auto query = static_cast<std::size_t>(i);
      log_sum[i] = softmax_.largest[query] + std::log(softmax_.sum[query]);
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

}  // namespace

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

namespace {

// The number of dimensions of the second factor that kernels process at a time.
std::int64_t block_of(std::int64_t width) {
  for (const std::int64_t block : {64, 48, 32}) {
    if (width % block == 0) {
      return block;
    }
  }
  return 16;
}

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
    const std::int64_t group = backward_.shape.group_of(place.head);
    prepare(place);
    for_each_tile(backward_.shape, place, products_.data(),
                  [&](std::int64_t begin, const TileScores& scores) {
                    differentiate(place, group, begin, scores);
                  });
    write(place);
  }

 private:
  std::int64_t packed_size() const { return width_ / 2 * kTileQueries; }
  Pair* packed(std::int64_t which) { return packed_.data() + which * packed_size(); }
  Pair* queries() { return packed(0); }
  Pair* outer() { return packed(1); }
  Pair* query_pairs() { return packed(2); }
  Pair* outer_pairs() { return packed(3); }

  void prepare(const TilePlace& place) {
    const c10::BFloat16* const q = backward_.q.row(place.batch, place.head, place.first);
    const c10::BFloat16* const from = backward_.outer.row(place.batch, place.head, place.first);
    pack_dimensions(q, backward_.q.strides[2], place.count, width_, queries());
    pack_dimensions(from, backward_.outer.strides[2], place.count, width_, outer());
    pack_queries(q, backward_.q.strides[2], place.count, width_, block_, query_pairs());
    pack_queries(from, backward_.outer.strides[2], place.count, width_, block_, outer_pairs());
    std::ranges::fill(by_q_, 0.0F);
    multiply_rows(from, backward_.outer.strides[2],
                  backward_.output.row(place.batch, place.head, place.first),
                  backward_.output.strides[2], place.count, width_, along_);
    const TiledShape& shape = backward_.shape;
    const float* const log_sum =
        backward_.log_sum + (place.batch * shape.heads + place.head) * shape.queries + place.first;
    log_sum_.fill(std::numeric_limits<float>::infinity());
    std::copy(log_sum, log_sum + place.count, log_sum_.begin());
  }

  void differentiate(const TilePlace& place, std::int64_t group, std::int64_t begin,
                     const TileScores& scores) {
    const std::int64_t keys = scores.keys;
    float* const by_weights = products_.data() + kTileKeys * kTileQueries;
    c10::BFloat16* const weights = narrow_.data();
    c10::BFloat16* const by_products = narrow_.data() + kTileKeys * kTileQueries;
    multiply({keys, kTileQueries, width_},
             {backward_.k.row(place.batch, group, begin), backward_.k.strides[2]}, queries(),
             {scores.products, kTileQueries, false});
    multiply({keys, kTileQueries, width_},
             {backward_.v.row(place.batch, group, begin), backward_.v.strides[2]}, outer(),
             {by_weights, kTileQueries, false});
    differentiate_tile(scores, {by_weights, log_sum_, along_, weights, by_products, pairs_.data()});
    multiply({width_, kTileQueries, keys + keys % 2},
             {backward_.turned_k.row(place.batch, group, 0) + begin, backward_.turned_k.strides[2]},
             pairs_.data(), {by_q_.data(), kTileQueries, true});
    add_products(weights, keys, outer_pairs(), backward_.by_v, place, begin);
    add_products(by_products, keys, query_pairs(), backward_.by_k, place, begin);
  }

  // [keys, 64] times [64, d].
  void add_products(const c10::BFloat16* tile, std::int64_t keys, const Pair* pairs,
                    const TiledTensor<float>& sums, const TilePlace& place,
                    std::int64_t begin) const {
    float* const to = sums.row(place.batch, place.head, begin);
    for (std::int64_t dimension = 0; dimension < width_; dimension += block_) {
      multiply({keys, block_, kTileQueries}, {tile, kTileQueries},
               pairs + dimension * kTileQueries / 2, {to + dimension, sums.strides[2], true});
    }
  }

  void write(const TilePlace& place) const {
    QueryNumbers one;
    one.fill(1.0F);
    write_queries(by_q_.data(), place.count, width_, one,
                  backward_.by_q.row(place.batch, place.head, place.first),
                  backward_.by_q.strides[2]);
  }

  const TiledBackward& backward_;
  std::int64_t width_, block_;
  std::vector<Pair> packed_;
  std::vector<float> products_;        // queries times keys, then outer gradients times values
  std::vector<c10::BFloat16> narrow_;  // the softmax, then the gradient by the products
  std::vector<Pair> pairs_;
  std::vector<float> by_q_;  // [d, 64]
  QueryNumbers log_sum_, along_;
};

}  // namespace

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

}  // namespace regroup
