#include "uptrain/ops/attention_parts.h"

#include <algorithm>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "formats/base/interruption.h"

namespace regroup {
namespace {

// Products of two numbers that a CPU adds up in about a tenth of a second.
constexpr double kShortWork = 5e9;

double work_of(const Heads& heads) {
  return static_cast<double>(heads.q.numel()) * static_cast<double>(heads.k.size(2));
}

bool can_be_stopped(const Heads& heads) { return heads.q.is_cpu() && !at::GradMode::is_enabled(); }

// A dimension of 1 is that of a mask which all share, or has one part.
at::Tensor part_of(const at::Tensor& x, int dimension, std::int64_t first, std::int64_t count) {
  return !x.defined() || x.size(dimension) == 1 ? x : x.narrow(dimension, first, count);
}

}  // namespace

at::Tensor attend_in_parts(
    const Heads& heads, const at::Tensor& mask,
    const std::function<at::Tensor(const Heads&, const at::Tensor& mask)>& attend) {
  check_stop();
  if (!can_be_stopped(heads) || work_of(heads) < kShortWork) {
    return attend(heads, mask);
  }
  const std::int64_t groups = heads.k.size(1);
  const std::int64_t queries = heads.q.size(1) / groups;
  const at::Tensor all =
      at::empty({heads.q.size(0), heads.q.size(2), heads.q.size(1), heads.v.size(3)},
                heads.q.options())
          .transpose(1, 2);
  for (std::int64_t i = 0; i < heads.q.size(0) * groups; ++i) {
    check_stop();
    const auto part = [&](const at::Tensor& x, std::int64_t per_group) {
      return part_of(part_of(x, 0, i / groups, 1), 1, i % groups * per_group, per_group);
    };
    part(all, queries)
        .copy_(attend({part(heads.q, queries), part(heads.k, 1), part(heads.v, 1)},
                      part(mask, queries)));
  }
  return all;
}

bool is_long(const Heads& heads) {
  constexpr double kLongWork = 4 * kShortWork;
  const auto heads_in_all = static_cast<double>(heads.q.size(0) * heads.q.size(1));
  return can_be_stopped(heads) && work_of(heads) > kLongWork * heads_in_all;
}

at::Tensor attend_in_order(const Heads& heads,
                           const std::function<at::Tensor(const Heads&)>& attend) {
  constexpr std::int64_t kLeastQueries = 64;
  const std::int64_t length = heads.q.size(2);
  const std::int64_t before = heads.k.size(2) - length;
  const double share = kShortWork / work_of(heads);
  const std::int64_t step =
      std::max(kLeastQueries, static_cast<std::int64_t>(share * static_cast<double>(length)));
  std::vector<at::Tensor> outputs;
  for (std::int64_t first = 0; first < length; first += step) {
    check_stop();
    const std::int64_t count = std::min(step, length - first);
    const std::int64_t seen = before + first + count;
    outputs.push_back(attend(
        {heads.q.narrow(2, first, count), heads.k.narrow(2, 0, seen), heads.v.narrow(2, 0, seen)}));
  }
  return at::cat(outputs, 2);
}

}  // namespace regroup
