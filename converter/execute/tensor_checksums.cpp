#include "converter/execute/tensor_checksums.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "formats/base/checksum.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/json/printable_json.h"

namespace regroup {
namespace {

constexpr std::size_t kDigits = 16;

bool is_checksum(const Json& value) {
  if (!value.is_string()) {
    return false;
  }
  const auto& text = value.get_ref<const std::string&>();
  return text.size() == kDigits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

bool has_checksum(const ConversionPlan& plan, const TensorStep& step) {
  return step.solved() != nullptr && plan.pooling.needs_checksums();
}

TensorChecksums checksums_to_come(const ConversionPlan& plan) {
  TensorChecksums checksums;
  for (const TensorStep& step : plan.steps) {
    if (has_checksum(plan, step)) {
      checksums[step.output.name] = std::string(kDigits, '0');
    }
  }
  return checksums;
}

std::string config_with_checksums(const std::string& config_text,
                                  const TensorChecksums& checksums) {
  std::string lines;
  for (const auto& [tensor, checksum] : checksums) {
    lines += fmt::format("{}\n      {}: \"{}\"", lines.empty() ? "" : ",", Json(tensor).dump(),
                         checksum);
  }
  return lines.empty()
             ? config_text
             : with_member(config_text, {"regroup", kChecksumsKey}, "{" + lines + "\n    }");
}

GgufMetadata gguf_with_checksums(GgufMetadata metadata, const TensorChecksums& checksums) {
  if (!checksums.empty()) {
    metadata.set_string(std::string("regroup.") + kChecksumsKey, Json(checksums).dump());
  }
  return metadata;
}

std::optional<TensorChecksums> recorded_checksums(const Json& facts, const std::string& where) {
  const auto recorded = facts.find(kChecksumsKey);
  if (recorded == facts.end()) {
    return std::nullopt;
  }
  if (!recorded->is_object() || !std::all_of(recorded->begin(), recorded->end(), is_checksum)) {
    throw_bad_input(
        "{}: its recorded checksums are {}, an object of {} hexadecimal digits each is "
        "needed",
        where, printable_json(*recorded), kDigits);
  }
  return recorded->get<TensorChecksums>();
}

std::string stored_checksum(const Checkpoint& checkpoint, const TensorInfo& tensor) {
  std::vector<std::byte> bytes(tensor.bytes());
  checkpoint.read(tensor, bytes);
  return checksum_of(bytes);
}

}  // namespace regroup
