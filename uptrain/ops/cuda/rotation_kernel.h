// The rotation of heads by their positions (fused_ops.h). A block of threads has one position
// of one sequence, all heads of it.
#pragma once

#include "uptrain/ops/cuda/kernel_calls.h"

namespace regroup::kernels {

template <typename Number, int kWidth, bool kInterleaved>
struct Rotation {
  RotationCall call;

  std::int64_t blocks() const { return call.batch * call.length; }

  REGROUP_KERNEL void operator()(std::int64_t block, int thread) const {
    const std::int64_t sequence = block / call.length;
    const std::int64_t position = block % call.length;
    const Number* x = static_cast<const Number*>(call.x) + sequence * call.x_strides[0] +
                      position * call.x_strides[2];
    Number* y =
        static_cast<Number*>(call.y) + sequence * call.y_strides[0] + position * call.y_strides[2];
    const int turning = call.half / kWidth;
    const int packs = turning + (call.width - 2 * call.half) / kWidth;  // of a head
    const int all = static_cast<int>(call.heads) * packs;
    for (int i = thread; i < all; i += kBlockThreads) {
      const Number* const from = x + (i / packs) * call.x_strides[1];
      Number* const to = y + (i / packs) * call.y_strides[1];
      const int pack = i % packs;
      if (pack < turning) {
        turn(from, to, position, pack * kWidth);
      } else {
        const int rest = 2 * call.half + (pack - turning) * kWidth;
        store<kWidth>(to + rest, load<kWidth>(from + rest));
      }
    }
  }

  // Turns pairs first … first + kWidth - 1 of a head.
  REGROUP_KERNEL void turn(const Number* x, Number* y, std::int64_t position, int first) const {
    const int begin = kInterleaved ? 2 * first : first;
    const int other = kInterleaved ? begin + kWidth : first + call.half;
    const std::int64_t angle = position * call.half + first;
    const auto cosine = load<kWidth>(static_cast<const Number*>(call.cosine) + angle);
    const auto sine = load<kWidth>(static_cast<const Number*>(call.sine) + angle);
    Pack<Number, kWidth> numbers[2] = {load<kWidth>(x + begin), load<kWidth>(x + other)};
    REGROUP_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      const int one = kInterleaved ? 2 * i : i;  // places in the two packs
      const int two = kInterleaved ? one + 1 : i + kWidth;
      Number& a = numbers[one / kWidth].at[one % kWidth];
      Number& b = numbers[two / kWidth].at[two % kWidth];
      const float c = wide(cosine.at[i]);
      const float s = call.inverse ? -wide(sine.at[i]) : wide(sine.at[i]);
      const float turned = wide(a) * c - wide(b) * s;
      narrow(wide(b) * c + wide(a) * s, b);
      narrow(turned, a);
    }
    store<kWidth>(y + begin, numbers[0]);
    store<kWidth>(y + other, numbers[1]);
  }
};

/// Launches the rotation; returns null, or what went wrong. `Launcher`: see cuda_launcher.cuh.
template <typename Launcher>
const char* rotate(const RotationCall& call, const Launcher& launch) {
  const auto &x = call.x_strides, &y = call.y_strides;
  const bool aligned = are_aligned(call.type, call.x, call.y, call.cosine, call.sine, call.half,
                                   call.width, x[0], x[1], x[2], y[0], y[1], y[2]);
  return with_loads(call.type, aligned, [&](auto loads) {
    using Number = typename decltype(loads)::Number;
    constexpr int kWidth = decltype(loads)::kWidth;
    return call.interleaved ? launch.each(Rotation<Number, kWidth, true>{call})
                            : launch.each(Rotation<Number, kWidth, false>{call});
  });
}

}  // namespace regroup::kernels
