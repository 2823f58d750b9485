// Models of unsupported architectures, described by a small JSON file from the user: which config
// keys hold the sizes, and the names of the attention tensors. See docs/layout.md.
#pragma once

#include <filesystem>
#include <string_view>

#include "formats/base/json.h"
#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

/// The spec that `layout` describes. It has only the attention: the model can be inspected and
/// converted but not computed. Error messages begin with `where` (the layout's file name). Throws
/// kBadInput listing all errors of the layout: missing or unknown keys, values of the wrong type,
/// absent config keys, tensors missing from the checkpoint.
ModelSpec describe_with_layout(const Json& config, const Checkpoint& checkpoint, const Json& layout,
                               std::string_view where);

/// Calls describe_with_layout() with the file at `layout`, or describe_model() if that path is
/// empty. `where` is the config's file name.
ModelSpec describe_model_or_layout(const Json& config, const Checkpoint& checkpoint,
                                   std::string_view where, const std::filesystem::path& layout);

}  // namespace regroup
