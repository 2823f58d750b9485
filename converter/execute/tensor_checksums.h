// Checksums of tensors that are not recomputed for verification: refitted ones, and those solved
// for on another device than the CPU, which rounds differently.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "converter/plan/conversion_plan.h"
#include "formats/json/json.h"
#include "formats/record/conversion_record.h"

namespace regroup {

/// checksum_of() a tensor's stored bytes, by its name.
using TensorChecksums = std::map<std::string, std::string>;

/// Whether the result of that step is verified by its checksum.
bool has_checksum(const ConversionPlan& plan, const TensorStep& step);

/// Placeholders of the same length as the checksums of the plan's tensors, for a header.
TensorChecksums checksums_to_come(const ConversionPlan& plan);

/// `config_text` with them in its "regroup" block; unchanged if there are none.
std::string config_with_checksums(const std::string& config_text, const TensorChecksums& checksums);

/// The same for the metadata of a GGUF file.
GgufMetadata gguf_with_checksums(GgufMetadata metadata, const TensorChecksums& checksums);

/// The checksums in a record, `facts`; none if it has no such member. Throws kBadInput, prefixed
/// with `where`, unless it is an object of checksums.
std::optional<TensorChecksums> recorded_checksums(const Json& facts, const std::string& where);

/// The checksum of a tensor as it is stored; holds it in memory.
std::string stored_checksum(const Checkpoint& checkpoint, const TensorInfo& tensor);

}  // namespace regroup
