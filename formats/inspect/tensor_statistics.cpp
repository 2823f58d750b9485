#include "formats/inspect/tensor_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "formats/base/callback.h"
#include "formats/checkpoint/tensor_reader.h"
#include "formats/dtype/element_values.h"
#include "formats/dtype/numbers.h"

namespace regroup {
namespace {

void count_in(TensorStatistics& total, double& squares, double value) {
  if (std::isnan(value)) {
    ++total.nan;
  } else if (std::isinf(value)) {
    ++total.infinite;
  } else {
    total.minimum = std::min(total.minimum, value);
    total.maximum = std::max(total.maximum, value);
    squares += value * value;
  }
}

}  // namespace

TensorStatistics statistics_of(const Checkpoint& checkpoint, const TensorInfo& tensor,
                               const std::function<void(std::uint64_t)>& progress) {
  TensorStatistics total;
  total.elements = static_cast<std::uint64_t>(tensor.elements());
  total.readable = can_read_values(tensor.dtype);
  if (!total.readable || total.elements == 0) {
    return total;
  }
  total.minimum = std::numeric_limits<double>::infinity();
  total.maximum = -total.minimum;
  double squares = 0.0;
  std::vector<double> values;
  for_each_part(TensorReader(checkpoint, tensor),
                [&](std::uint64_t first, std::span<const std::byte> bytes) {
                  values.resize(std::min<std::uint64_t>(kElementsAtATime, total.elements - first));
                  read_values(tensor.dtype, bytes, values);
                  for (const double value : values) {
                    count_in(total, squares, value);
                  }
                  call_if_given(progress, bytes.size());
                });
  if (total.nan + total.infinite == total.elements) {
    total.minimum = total.maximum = 0.0;
  }
  total.largest = std::max(std::fabs(total.minimum), std::fabs(total.maximum));
  total.norm = std::sqrt(squares);
  return total;
}

}  // namespace regroup
