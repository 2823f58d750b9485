#include <cmath>
#include <limits>
#include <vector>

#include "converter/pooling/parallel_for.h"
#include "formats/base/error.h"
#include "uptrain/ops/tile_products.h"
#include "uptrain/ops/tiled_passes.h"

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

}  // namespace regroup
