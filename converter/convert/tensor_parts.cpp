#include "converter/convert/tensor_parts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "formats/base/checksum.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/model/tensor_comparison.h"
#include "formats/tensors/dtype.h"
#include "formats/tensors/tensor_reader.h"

namespace regroup {

bool may_hold_nonfinite(const OutputTensor& result, bool allow_nonfinite) {
  return allow_nonfinite && !is_block_type(result.dtype);
}

void refuse_numbers(const Checkpoint& checkpoint, const TensorInfo& source,
                    const OutputTensor& result) {
  const TensorStatistics found = statistics_of(checkpoint, source);
  const double largest = largest_number(result.dtype);
  if (!found.finite()) {
    throw_bad_input("{}: {} NaN and {} infinite of {} elements; {}", place_of(checkpoint, source),
                    found.nan, found.infinite, found.elements,
                    is_block_type(result.dtype)
                        ? fmt::format("{} holds neither, --dtype fp32 and bf16 do with "
                                      "--allow-nonfinite",
                                      name_of(result.dtype))
                        : "--allow-nonfinite converts them anyway");
  }
  if (found.largest > largest) {
    throw_bad_input("{}: holds {:.6g}, {} at most {:.6g}; --dtype bf16 or fp32 holds it",
                    place_of(checkpoint, source), found.largest, name_of(result.dtype), largest);
  }
  if (largest >= largest_number(DType::kBF16)) {
    throw_bad_input(
        "{}: tensor {}: what is computed for it is not finite; statistics of a text that hardly "
        "varies do this: take one with more different words",
        place_of(checkpoint), printable(result.name));
  }
  throw_bad_input(
      "{}: tensor {}: what is computed for it does not fit {}, which holds at most {:.6g}; --dtype "
      "bf16 or fp32 holds more",
      place_of(checkpoint), printable(result.name), name_of(result.dtype), largest);
}

bool has_checksum(const ConversionPlan& plan, const TensorStep& step) {
  return step.solved() != nullptr && plan.request.pooling.needs_checksums();
}

TensorChecksums checksums_to_come(const ConversionPlan& plan) {
  TensorChecksums checksums;
  for (const TensorStep& step : plan.steps) {
    if (has_checksum(plan, step)) {
      checksums[step.output.name] = checksum_of("");
    }
  }
  return checksums;
}

GgufMetadata gguf_with_checksums(GgufMetadata metadata, const TensorChecksums& checksums) {
  ConversionRecord facts;
  if (!checksums.empty()) {
    facts.checksums = checksums;
  }
  return metadata_with_facts(std::move(metadata), facts);
}

std::string stored_checksum(const Checkpoint& checkpoint, const TensorInfo& tensor) {
  std::vector<std::byte> bytes(tensor.bytes());
  checkpoint.read(tensor, bytes);
  return checksum_of(bytes);
}

namespace {

const std::vector<std::int64_t>& sources_of(const TensorPart& part) {
  return part.move->mean_of[part.head];
}

std::int64_t first_element(const TensorPart& part) {
  return part.move->to.first[part.head] + part.begin;
}

std::uint64_t source_bytes(const TensorPart& part, DType type) {
  return sources_of(part).size() * bytes_of_elements(type, static_cast<std::size_t>(part.length));
}

// Whether the sources can be read piece by piece and are large enough to do so.
bool is_worth_cutting(const TensorStep& step, const Checkpoint& checkpoint,
                      std::uint64_t part_bytes) {
  std::uint64_t bytes = 0;
  for (const HeadMove& move : step.moves) {
    const TensorInfo& source = checkpoint.at(move.source);
    if (move.pooled || !move.from.dense() || !move.to.dense() || ranges_of(source).empty()) {
      return false;
    }
    bytes = std::max(bytes, source.bytes());
  }
  return bytes > part_bytes;
}

// Adds the parts of one head.
void add_head(std::vector<TensorPart>& parts, const HeadMove& move, std::size_t head,
              const TensorStep& step, const Checkpoint& checkpoint, std::uint64_t part_bytes) {
  const DType type = checkpoint.at(move.source).dtype;
  const std::int64_t elements = move.to.rows * move.to.columns;
  const bool whole = step.unit_rows || !move.row_order.empty() || block_elements(type) > 1 ||
                     block_elements(step.output.dtype) > 1;
  const auto fits = [&] {
    return static_cast<std::int64_t>(part_bytes / bytes_of_elements(type, 1) /
                                     move.mean_of[head].size());
  };
  const std::int64_t at_once = whole ? elements : std::max<std::int64_t>(1, fits());
  for (std::int64_t begin = 0; begin < elements; begin += at_once) {
    parts.push_back({&move, head, begin, std::min(at_once, elements - begin)});
  }
}

// Whether the parts, in this order, make up the whole tensor.
bool fill(const std::vector<TensorPart>& parts, const Shape& shape) {
  std::int64_t next = 0;
  for (const TensorPart& part : parts) {
    if (first_element(part) != next) {
      return false;
    }
    next += part.length;
  }
  return next == element_count(shape);
}

// The move that computes one part from its heads, which have been read contiguously.
HeadMove move_of(const TensorPart& part) {
  const HeadMove& whole = *part.move;
  const bool cut = part.length != whole.to.rows * whole.to.columns;
  HeadMove move = whole;
  move.from.rows = move.to.rows = cut ? 1 : whole.to.rows;
  move.from.columns = move.to.columns = cut ? part.length : whole.to.columns;
  move.from.row_stride = move.to.row_stride = move.to.columns;
  move.to.first = {0};
  move.from.first.clear();
  move.mean_of = {{}};
  for (std::size_t i = 0; i < sources_of(part).size(); ++i) {
    move.from.first.push_back(static_cast<std::int64_t>(i) * part.length);
    move.mean_of.front().push_back(static_cast<std::int64_t>(i));
  }
  return move;
}

void read_heads(const TensorPart& part, const TensorReader& reader, std::span<std::byte> out) {
  const DType type = reader.tensor().dtype;
  const std::size_t bytes = bytes_of_elements(type, static_cast<std::size_t>(part.length));
  for (const std::int64_t head : sources_of(part)) {
    const std::int64_t first = part.move->from.first[static_cast<std::size_t>(head)] + part.begin;
    reader.read_at(bytes_of_elements(type, static_cast<std::size_t>(first)), out.first(bytes));
    out = out.subspan(bytes);
  }
}

}  // namespace

void divide_by_norms(std::span<double> values, std::size_t row) {
  constexpr double kLeastNorm = 1e-12;  // so that rows of zeros stay zeros
  for (std::size_t first = 0; first < values.size(); first += row) {
    const std::span<double> part = values.subspan(first, row);
    const double squares = std::inner_product(part.begin(), part.end(), part.begin(), 0.0);
    const double norm = std::max(std::sqrt(squares), kLeastNorm);
    for (double& value : part) {
      value /= norm;
    }
  }
}

std::vector<TensorPart> parts_of(const TensorStep& step, const Checkpoint& checkpoint,
                                 std::uint64_t part_bytes) {
  if (step.fold || step.add != 0.0 || !is_worth_cutting(step, checkpoint, part_bytes)) {
    return {};
  }
  std::vector<TensorPart> parts;
  for (const HeadMove& move : step.moves) {
    for (std::size_t head = 0; head < move.mean_of.size(); ++head) {
      add_head(parts, move, head, step, checkpoint, part_bytes);
    }
  }
  std::ranges::sort(parts, {}, first_element);
  return fill(parts, step.output.shape) ? parts : std::vector<TensorPart>{};
}

std::uint64_t bytes_at_once(const std::vector<TensorPart>& parts, const TensorStep& step,
                            const Checkpoint& checkpoint) {
  std::uint64_t most = 0;
  for (const TensorPart& part : parts) {
    most = std::max(
        most, source_bytes(part, checkpoint.at(part.move->source).dtype) +
                  bytes_of_elements(step.output.dtype, static_cast<std::size_t>(part.length)));
  }
  return most;
}

void make_parts(const std::vector<TensorPart>& parts, const TensorStep& step,
                const Checkpoint& checkpoint, const TensorSink& sink,
                const std::function<void(const TensorInfo&)>& non_finite) {
  std::map<std::string, TensorReader> readers;
  for (const HeadMove& move : step.moves) {
    readers.try_emplace(move.source, checkpoint, checkpoint.at(move.source)).first->second.start();
  }
  std::vector<std::byte> sources, result;
  std::vector<double> row;
  for (const TensorPart& part : parts) {
    const TensorReader& reader = readers.at(part.move->source);
    sources.resize(source_bytes(part, reader.tensor().dtype));
    result.resize(bytes_of_elements(step.output.dtype, static_cast<std::size_t>(part.length)));
    read_heads(part, reader, sources);
    row.resize(step.unit_rows ? static_cast<std::size_t>(part.length) : 0);
    const std::span<std::byte> moved =
        step.unit_rows ? std::as_writable_bytes(std::span(row)) : result;
    if (!move_heads(move_of(part), reader.tensor().dtype, sources,
                    step.unit_rows ? DType::kF64 : step.output.dtype, moved)) {
      non_finite(reader.tensor());
    }
    if (step.unit_rows) {
      divide_by_norms(row, row.size());
      encode_numbers(step.output.dtype, row, result);
    }
    sink(result);
  }
}

}  // namespace regroup
