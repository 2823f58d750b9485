// Models of architectures regroup does not know, described by a small JSON file of the user's:
// where the sizes stand, and what the tensors of the attention are called. See docs/layout.md.
#pragma once

#include <filesystem>
#include <string_view>

#include "formats/checkpoint/checkpoint.h"
#include "formats/json/json.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// What `layout` makes of the model: its attention and nothing else, so that it can be inspected
/// and converted but not computed. `where` (the layout's file name) opens error messages. Throws
/// kBadInput listing all faults of the layout together: keys that are missing, unknown or of the
/// wrong kind, config keys that are not there, tensors the checkpoint does not have.
ModelSpec describe_with_layout(const Json& config, const Checkpoint& checkpoint, const Json& layout,
                               std::string_view where);

/// describe_with_layout() with the file at `layout`, describe_model() where that path is empty.
/// `where` is the config's file name.
ModelSpec describe_model_or_layout(const Json& config, const Checkpoint& checkpoint,
                                   std::string_view where, const std::filesystem::path& layout);

}  // namespace regroup
