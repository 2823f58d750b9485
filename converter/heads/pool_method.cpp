#include "converter/heads/pool_method.h"

#include <algorithm>
#include <array>

#include "converter/heads/heads.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/spec/alibi.h"

namespace regroup {

HeadBasis free_basis(std::int64_t head_dim) {
  HeadBasis basis;
  basis.free = evenly_spaced(head_dim);
  return basis;
}

namespace {

HeadBasis basis_without_norms(const ModelSpec& spec, AttentionRole role, std::size_t layer) {
  if (spec.positions != PositionKind::kRope || role == AttentionRole::kCross ||
      spec.stack(role)[layer].without_rope) {
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

}  // namespace

HeadBasis key_basis(const ModelSpec& spec, AttentionRole role, std::size_t layer) {
  return spec.qk_norm == QkNorm::kNone ? basis_without_norms(spec, role, layer) : HeadBasis();
}

bool absorbs_qk_norms(const ModelSpec& spec) {
  const bool both = std::ranges::all_of(spec.layers, [](const LayerTensors& layer) {
    return layer.attention.q_norms.empty() == layer.attention.k_norms.empty();
  });
  return both && spec.norm == NormKind::kRmsNorm &&
         (spec.qk_norm == QkNorm::kProjection || spec.qk_norm == QkNorm::kSharedAcrossHeads);
}

HeadBasis solved_basis(const ModelSpec& spec, AttentionRole role, std::size_t layer) {
  return absorbs_qk_norms(spec) ? basis_without_norms(spec, role, layer)
                                : key_basis(spec, role, layer);
}

namespace {

// In the order of PoolMethod.
constexpr std::array<std::string_view, 4> kNames{"mean", "first", "random", "lowrank"};

// Hashes three numbers: splitmix64 (Steele et al. 2014), once per number.
std::uint64_t draw(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  std::uint64_t state = 0;
  for (const std::uint64_t number : {seed, stream, index}) {
    state = (state ^ number) + 0x9e3779b97f4a7c15U;
    state = (state ^ (state >> 30U)) * 0xbf58476d1ce4e5b9U;
    state = (state ^ (state >> 27U)) * 0x94d049bb133111ebU;
    state ^= state >> 31U;
  }
  return state;
}

}  // namespace

std::string_view name_of(PoolMethod method) { return kNames[static_cast<std::size_t>(method)]; }

PoolMethod parse_pool_method(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) {
    throw_usage("pooling method \"{}\" is none of mean, first, random, lowrank", printable(name));
  }
  return static_cast<PoolMethod>(found - kNames.begin());
}

Pooling::Pooling(PoolMethod used, std::uint64_t random_seed)
    : method(used), seed(random_seed), device("cpu") {}

bool needs_solver(PoolMethod method) { return method == PoolMethod::kLowrank; }

std::vector<std::vector<std::int64_t>> heads_to_average(const Pooling& pooling, std::int64_t before,
                                                        std::int64_t groups, std::int64_t after,
                                                        std::uint64_t stream) {
  if (needs_solver(pooling.method)) {
    throw_usage("pooling method {} needs a solver", name_of(pooling.method));
  }
  auto heads = heads_of_groups(before, groups, after);
  if (pooling.method == PoolMethod::kMean) {
    return heads;
  }
  for (std::vector<std::int64_t>& members : heads) {
    const bool random = pooling.method == PoolMethod::kRandom;
    // The group's first head seeds the group, so that its repeated copies agree.
    const std::uint64_t chosen =
        random ? draw(pooling.seed, stream, static_cast<std::uint64_t>(members.front())) %
                     members.size()
               : 0;
    members = {members[chosen]};
  }
  return heads;
}

}  // namespace regroup
