#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <ATen/ops/empty.h>

#include "converter/pooling/parallel_for.h"
#include "uptrain/ops/attention.h"
#include "uptrain/ops/device_kernels.h"
#include "uptrain/ops/row_arithmetic.h"

namespace regroup {
namespace {

// Tensors of one call. The stride of a head's numbers is 1.
struct DecodeCall {
  const void *q, *k, *v;     // [B, G, n, d], [B, G, S, d], [B, G, S, d]
  void* y;                   // [B, G, n, d], contiguous
  const float* bias;         // [1, 1 or G, n, S], the last two contiguous, or null
  std::int64_t bias_stride;  // of G
  std::int64_t groups, rows, keys, width;
  std::int64_t room;                        // of the scores of a row
  std::int64_t q_sequence, q_group, q_row;  // strides
  std::int64_t k_sequence, k_group, k_slot;
  std::int64_t v_sequence, v_group, v_slot;
  std::int64_t parts;  // that the rows of a group are divided into
  float scale;
  float softcap;  // 0: none
};

// Some rows of one group.
struct RowPart {
  std::int64_t sequence, group, first, count;
};

RowPart part_of(const DecodeCall& call, std::int64_t item) {
  const std::int64_t part = item % call.parts, head = item / call.parts;
  const std::int64_t first = part * call.rows / call.parts;
  return {head / call.groups, head % call.groups, first,
          (part + 1) * call.rows / call.parts - first};
}

// Keys and values that are read together. Scores have room for a multiple of these.
constexpr std::int64_t kBlock = 4;

std::int64_t room_for(std::int64_t keys) { return (keys + kBlock - 1) / kBlock * kBlock; }

template <typename Number>
REGROUP_INLINE void widen(const Number* from, std::int64_t count, float* to) {
#pragma omp simd
  for (std::int64_t c = 0; c < count; ++c) {
    to[c] = wide(from[c]);
  }
}

// The next keys or values as fp32 [kBlock, d], with zeros after the last.
template <typename Number>
REGROUP_INLINE void widen_block(const Number* slots, std::int64_t stride, std::int64_t left,
                                std::int64_t width, float* block) {
  for (std::int64_t i = 0; i < kBlock; ++i) {
    if (i < left) {
      widen(slots + i * stride, width, block + i * width);
    } else {
      std::fill_n(block + i * width, width, 0.0F);
    }
  }
}

// Products of the part's queries [count, d] and the keys: [count, S].
template <typename Number>
REGROUP_INLINE void multiply_by_keys(const DecodeCall& call, const RowPart& part,
                                     const float* queries, float* block, float* scores) {
  const Number* const slots = static_cast<const Number*>(call.k) + part.sequence * call.k_sequence +
                              part.group * call.k_group;
  const std::int64_t width = call.width;
  for (std::int64_t j = 0; j < call.keys; j += kBlock) {
    widen_block(slots + j * call.k_slot, call.k_slot, call.keys - j, width, block);
    for (std::int64_t row = 0; row < part.count; ++row) {
      const float* const query = queries + row * width;
      float sum0 = 0.0F, sum1 = 0.0F, sum2 = 0.0F, sum3 = 0.0F;
#pragma omp simd reduction(+ : sum0, sum1, sum2, sum3)
      for (std::int64_t c = 0; c < width; ++c) {
        sum0 += query[c] * block[c];
        sum1 += query[c] * block[width + c];
        sum2 += query[c] * block[2 * width + c];
        sum3 += query[c] * block[3 * width + c];
      }
      float* const score = scores + row * call.room + j;
      score[0] = sum0;
      score[1] = sum1;
      score[2] = sum2;
      score[3] = sum3;
    }
  }
}

// Overwrites the products of one row with softmax(softcapped(scale · products) + bias).
REGROUP_INLINE void weigh(const DecodeCall& call, const float* bias, float* scores) {
  const std::int64_t keys = call.keys;
  const float scale = call.scale;
#pragma omp simd
  for (std::int64_t j = 0; j < keys; ++j) {
    scores[j] *= scale;
  }
  for (std::int64_t j = 0; call.softcap > 0.0F && j < keys; ++j) {
    scores[j] = call.softcap * std::tanh(scores[j] / call.softcap);
  }
  if (bias != nullptr) {
#pragma omp simd
    for (std::int64_t j = 0; j < keys; ++j) {
      scores[j] += bias[j];
    }
  }
  float largest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : largest)
  for (std::int64_t j = 0; j < keys; ++j) {
    largest = scores[j] > largest ? scores[j] : largest;
  }
  float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < keys; ++j) {
    const float weight = exponential(scores[j] - largest);
    scores[j] = weight;
    sum += weight;
  }
  const float share = 1.0F / sum;
#pragma omp simd
  for (std::int64_t j = 0; j < keys; ++j) {
    scores[j] *= share;
  }
  std::fill(scores + keys, scores + call.room, 0.0F);
}

// Sums of the values, weighted for each row: [count, d].
template <typename Number>
REGROUP_INLINE void add_values(const DecodeCall& call, const RowPart& part, const float* weights,
                               float* block, float* sums) {
  const Number* const slots = static_cast<const Number*>(call.v) + part.sequence * call.v_sequence +
                              part.group * call.v_group;
  const std::int64_t width = call.width;
  std::fill_n(sums, part.count * width, 0.0F);
  for (std::int64_t j = 0; j < call.keys; j += kBlock) {
    widen_block(slots + j * call.v_slot, call.v_slot, call.keys - j, width, block);
    for (std::int64_t row = 0; row < part.count; ++row) {
      const float* const weight = weights + row * call.room + j;
      const float weight0 = weight[0], weight1 = weight[1], weight2 = weight[2],
                  weight3 = weight[3];
      float* const sum = sums + row * width;
#pragma omp simd
      for (std::int64_t c = 0; c < width; ++c) {
        sum[c] += weight0 * block[c] + weight1 * block[width + c] + weight2 * block[2 * width + c] +
                  weight3 * block[3 * width + c];
      }
    }
  }
}

template <typename Number>
REGROUP_VECTORISED void attend_part(const DecodeCall& call, const RowPart& part, float* scratch) {
  const std::int64_t width = call.width;
  float* const block = scratch;
  float* const rows = block + kBlock * width;
  float* const scores = rows + part.count * width;
  const Number* const q = static_cast<const Number*>(call.q) + part.sequence * call.q_sequence +
                          part.group * call.q_group + part.first * call.q_row;
  for (std::int64_t row = 0; row < part.count; ++row) {
    widen(q + row * call.q_row, width, rows + row * width);
  }
  multiply_by_keys<Number>(call, part, rows, block, scores);
  for (std::int64_t row = 0; row < part.count; ++row) {
    const float* const bias = call.bias == nullptr ? nullptr
                                                   : call.bias + part.group * call.bias_stride +
                                                         (part.first + row) * call.keys;
    weigh(call, bias, scores + row * call.room);
  }
  add_values<Number>(call, part, scores, block, rows);
  Number* const y = static_cast<Number*>(call.y) +
                    ((part.sequence * call.groups + part.group) * call.rows + part.first) * width;
#pragma omp simd
  for (std::int64_t c = 0; c < part.count * width; ++c) {
    y[c] = narrow<Number>(rows[c]);
  }
}

bool has_rows(const at::Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16) &&
         x.stride(3) == 1;
}

}  // namespace

bool can_decode_on_cpu(const Heads& heads) {
  return has_rows(heads.q) && has_rows(heads.k) && has_rows(heads.v) &&
         heads.q.scalar_type() == heads.k.scalar_type() &&
         heads.q.scalar_type() == heads.v.scalar_type();
}

at::Tensor decode_on_cpu(const Heads& heads, const at::Tensor& bias, double scale,
                         std::optional<double> softcap) {
  const auto& [q, k, v] = heads;
  const std::int64_t sequences = q.size(0), groups = q.size(1), rows = q.size(2);
  const at::Tensor y = at::empty(q.sizes(), q.options());
  const at::Tensor added = bias.defined() ? bias.to(at::kFloat).contiguous() : bias;
  const std::int64_t heads_in_all = sequences * groups;
  const std::int64_t parts =
      std::clamp<std::int64_t>(at::get_num_threads() / heads_in_all, 1, rows);
  const DecodeCall call = {
      .q = q.const_data_ptr(),
      .k = k.const_data_ptr(),
      .v = v.const_data_ptr(),
      .y = y.mutable_data_ptr(),
      .bias = added.defined() ? added.const_data_ptr<float>() : nullptr,
      .bias_stride = added.defined() && added.size(1) > 1 ? added.stride(1) : 0,
      .groups = groups,
      .rows = rows,
      .keys = k.size(2),
      .width = q.size(3),
      .room = room_for(k.size(2)),
      .q_sequence = q.stride(0),
      .q_group = q.stride(1),
      .q_row = q.stride(2),
      .k_sequence = k.stride(0),
      .k_group = k.stride(1),
      .k_slot = k.stride(2),
      .v_sequence = v.stride(0),
      .v_group = v.stride(1),
      .v_slot = v.stride(2),
      .parts = parts,
      .scale = static_cast<float>(scale),
      .softcap = static_cast<float>(softcap.value_or(0.0))};
  with_row_number(number_type(q), [&](auto number) {
    at::parallel_for(0, heads_in_all * parts, 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> scratch(static_cast<std::size_t>(
          kBlock * call.width + (rows / parts + 1) * (call.width + call.room)));
      for (std::int64_t item = begin; item < end; ++item) {
        attend_part<decltype(number)>(call, part_of(call, item), scratch.data());
      }
    });
  });
  return y;
}

}  // namespace regroup
