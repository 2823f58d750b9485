#include "formats/model/tensor_comparison.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "formats/base/callback.h"
#include "formats/base/printable.h"
#include "formats/model/model_directory.h"
#include "formats/tensors/gguf.h"

namespace regroup {

namespace {

namespace fs = std::filesystem;

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

namespace {

// Compares two tensors part by part and sums up the differences.
class Comparer {
 public:
  Comparer(DType a, DType b) : a_dtype_(a), b_dtype_(b) {
    total_.readable = can_read_values(a) && can_read_values(b);
  }

  void add(std::span<const std::byte> a, std::span<const std::byte> b, std::size_t elements) {
    total_.elements += elements;
    const bool same = a_dtype_ == b_dtype_ && std::ranges::equal(a, b);
    total_.same_bytes = total_.same_bytes && same;
    if (!total_.readable) {
      return;
    }
    a_values_.resize(elements);
    b_values_.resize(elements);
    read_values(a_dtype_, a, a_values_);
    if (same) {
      b_values_ = a_values_;
    } else {
      read_values(b_dtype_, b, b_values_);
    }
    for (std::size_t i = 0; i < elements; ++i) {
      add(a_values_[i], b_values_[i]);
    }
  }

  TensorComparison total() const {
    TensorComparison total = total_;
    if (total.elements > 0) {
      total.mean = differences_ / static_cast<double>(total.elements);
    }
    const double norms = std::sqrt(a_squares_) * std::sqrt(b_squares_);
    const bool both_zero = a_squares_ == 0.0 && b_squares_ == 0.0;
    total.cosine = norms > 0.0 ? std::clamp(dot_ / norms, -1.0, 1.0) : both_zero ? 1.0 : 0.0;
    return total;
  }

 private:
  void add(double a, double b) {
    const bool same = a == b || (std::isnan(a) && std::isnan(b));
    total_.different += same ? 0 : 1;
    if (std::isfinite(a) && std::isfinite(b)) {
      total_.largest = std::max(total_.largest, std::fabs(a - b));
      differences_ += std::fabs(a - b);
      dot_ += a * b;
      a_squares_ += a * a;
      b_squares_ += b * b;
    } else if (!same) {
      total_.largest = differences_ = std::numeric_limits<double>::infinity();
    }
  }

  DType a_dtype_, b_dtype_;
  TensorComparison total_;
  std::vector<double> a_values_, b_values_;
  double differences_ = 0.0, dot_ = 0.0, a_squares_ = 0.0, b_squares_ = 0.0;
};

// Reads `elements` elements of a tensor, from number `first` on.
using Part = std::function<std::span<const std::byte>(std::uint64_t first, std::size_t elements)>;

Part parts_of(const TensorReader& reader, std::vector<std::byte>& buffer) {
  return [&](std::uint64_t first, std::size_t elements) {
    const DType dtype = reader.tensor().dtype;
    buffer.resize(bytes_of_elements(dtype, elements));
    reader.read_at(bytes_of_elements(dtype, first), buffer);
    return std::span<const std::byte>(buffer);
  };
}

Part parts_of(DType dtype, std::span<const std::byte> bytes) {
  return [=](std::uint64_t first, std::size_t elements) {
    return bytes.subspan(bytes_of_elements(dtype, first), bytes_of_elements(dtype, elements));
  };
}

// Identical parts are decoded only if other parts differ.
TensorComparison compare(DType a_dtype, const Part& a, DType b_dtype, const Part& b,
                         std::uint64_t elements,
                         const std::function<void(std::uint64_t)>& progress) {
  bool same = a_dtype == b_dtype;
  std::uint64_t told = 0;  // elements
  const auto for_parts = [&](const auto& visit) {
    for (std::uint64_t first = 0; first < elements; first += kElementsAtATime) {
      const auto count = std::min<std::uint64_t>(kElementsAtATime, elements - first);
      if (!visit(a(first, count), b(first, count), count)) {
        return;
      }
      if (first >= told) {
        call_if_given(progress, bytes_of_elements(a_dtype, count));
        told = first + count;
      }
    }
  };
  if (same) {
    for_parts([&](auto of_a, auto of_b, std::size_t) {
      same = std::ranges::equal(of_a, of_b);
      return same;
    });
  }
  if (same) {
    return {.elements = elements};
  }
  Comparer comparer(a_dtype, b_dtype);
  for_parts([&](auto of_a, auto of_b, std::size_t count) {
    comparer.add(of_a, of_b, count);
    return true;
  });
  return comparer.total();
}

// Returns nothing if the two are the same.
std::optional<TensorDifference> compare(const Checkpoint& before, const TensorInfo& a,
                                        const Checkpoint& after, const TensorInfo& b,
                                        const std::function<void(std::uint64_t)>& progress) {
  TensorDifference difference{a.name, &a, &b, std::nullopt};
  if (a.shape == b.shape) {
    difference.values = compare_tensors(TensorReader(before, a), TensorReader(after, b), progress);
    if (difference.values->same_bytes) {
      return std::nullopt;
    }
  } else {
    call_if_given(progress, a.bytes());
  }
  return difference;
}

Json json_of(const GgufArray& array) {
  if (const auto texts = array.strings()) {
    return *texts;
  }
  if (const auto whole = array.integers()) {
    return *whole;
  }
  if (const auto numbers = array.numbers()) {
    return *numbers;
  }
  return fmt::format("{} of {}", array.size(), name_of(array.type()));
}

Json json_of(const GgufMetadata& metadata, const GgufMetadata::Entry& entry) {
  switch (entry.type) {
    case GgufType::kString: return std::string(*metadata.text(entry.key));
    case GgufType::kBool: return *metadata.flag(entry.key);
    case GgufType::kArray: return json_of(*metadata.array(entry.key));
    case GgufType::kF32:
    case GgufType::kF64: return *metadata.number(entry.key);
    default: return static_cast<std::int64_t>(*metadata.number(entry.key));
  }
}

}  // namespace

TensorComparison compare_tensors(const TensorReader& a, const TensorReader& b,
                                 const std::function<void(std::uint64_t)>& progress) {
  std::vector<std::byte> of_a, of_b;
  return compare(a.tensor().dtype, parts_of(a, of_a), b.tensor().dtype, parts_of(b, of_b),
                 static_cast<std::uint64_t>(a.tensor().elements()), progress);
}

TensorComparison compare_tensors(DType dtype, std::span<const std::byte> a, const TensorReader& b) {
  std::vector<std::byte> of_b;
  return compare(dtype, parts_of(dtype, a), b.tensor().dtype, parts_of(b, of_b),
                 static_cast<std::uint64_t>(b.tensor().elements()), {});
}

std::vector<TensorDifference> differences_between(
    const Checkpoint& before, const Checkpoint& after,
    const std::function<bool(const std::string&)>& chosen, const ComparisonProgress& progress) {
  std::vector<TensorDifference> found;
  std::uint64_t done = 0;
  const auto skipped = [&](const TensorInfo& tensor) { return chosen && !chosen(tensor.name); };
  for (const TensorInfo& tensor : before.tensors()) {
    const auto count = [&](std::uint64_t bytes) {
      call_if_given(progress, done += bytes, tensor.name);
    };
    const TensorInfo* other = after.find(tensor.name);
    if (skipped(tensor)) {
      continue;
    }
    if (other == nullptr) {
      found.push_back({tensor.name, &tensor, nullptr, std::nullopt});
      count(tensor.bytes());
    } else if (auto difference = compare(before, tensor, after, *other, count)) {
      found.push_back(std::move(*difference));
    }
  }
  for (const TensorInfo& tensor : after.tensors()) {
    if (!skipped(tensor) && before.find(tensor.name) == nullptr) {
      found.push_back({tensor.name, nullptr, &tensor, std::nullopt});
    }
  }
  std::ranges::stable_sort(found, [](const auto& left, const auto& right) {
    return ::strverscmp(left.name.c_str(), right.name.c_str()) < 0;  // layer 2 before layer 10
  });
  return found;
}

Json json_of(const GgufMetadata& metadata) {
  Json object = Json::object();
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    object[entry.key] = json_of(metadata, entry);
  }
  return object;
}

Json settings_of(const fs::path& given) {
  const fs::path path = resolve_weights_path(given);
  if (is_gguf_file(path)) {
    return json_of(gguf_metadata_of(path));
  }
  const fs::path config = path / (is_meta_directory(path) ? kMetaParamsFile : "config.json");
  std::error_code fault;
  if (!fs::is_directory(path, fault) || !path_exists(config)) {
    return Json::object();
  }
  return parse_json_object(read_text(config, kMaxConfigBytes), printable_path(config));
}

}  // namespace regroup
