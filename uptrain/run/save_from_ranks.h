// The result of a run, written by all its ranks at once.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "formats/model/model.h"
#include "uptrain/distributed/process_group.h"
#include "uptrain/model/state_tensor.h"

namespace regroup {

/// As save_model(), by all ranks, which see the same directories: each writes its `trained` tensors
/// into the same files, and the first also everything else. No rank holds a tensor of another. If
/// one fails, nothing is published and all throw.
void save_model_from_ranks(ProcessGroup& group, const Model& source,
                           std::span<const StateTensor> trained, const std::string& config_text,
                           const std::filesystem::path& destination);

}  // namespace regroup
