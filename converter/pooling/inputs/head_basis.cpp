#include "converter/pooling/inputs/head_basis.h"

#include <numeric>

#include "formats/spec/rope_frequencies.h"

namespace regroup {

HeadBasis free_basis(std::int64_t head_dim) {
  HeadBasis basis;
  basis.free.resize(static_cast<std::size_t>(head_dim));
  std::iota(basis.free.begin(), basis.free.end(), 0);
  return basis;
}

HeadBasis key_basis(const ModelSpec& spec, AttentionRole role, std::size_t layer) {
  if (spec.qk_norm != QkNorm::kNone) {
    return {};
  }
  if (spec.positions != PositionKind::kRope || role == AttentionRole::kCross) {
    return free_basis(spec.head_dim);
  }
  HeadBasis basis;
  const RopeSpec& rope = spec.rope_of(spec.stack(role)[layer]);
  basis.frequencies = rope_frequencies(rope);
  const std::int64_t half = rope.rotary_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    basis.rope_planes.push_back(rope.interleaved ? std::pair{2 * i, 2 * i + 1}
                                                 : std::pair{i, i + half});
  }
  for (std::int64_t i = 2 * half; i < spec.head_dim; ++i) {
    basis.free.push_back(i);
  }
  return basis;
}

}  // namespace regroup
