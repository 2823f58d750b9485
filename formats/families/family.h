// The supported families. To add one: a file here, a row in registry.cpp, and tests.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/json.h"
#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

/// The spec of the model that `config` describes, with tensor names as in `checkpoint`. Error
/// messages begin with `where` (the config's file name). Throws kBadInput for an unknown
/// architecture (see refusal_of_architecture()) and for missing or invalid config values. Does not
/// check tensor shapes; check_tensors() and check_all_shapes() do.
ModelSpec describe_model(const Json& config, const Checkpoint& checkpoint, std::string_view where);

/// `config_text` with regroup's own model_type and architecture, such as "regroup_alibi_llama", and
/// without "auto_map". Stock loaders must not recognise the name: they would compute the original
/// positions, or derive slopes from the head index. describe_model() recognises it and returns an
/// ALiBi model of the family with the recorded slopes.
std::string with_alibi_names(const std::string& config_text);

/// The model_type of `config` without regroup's own prefix; empty if there is none.
std::string stock_model_type(const Json& config);

/// `config_text` with transformers' name of the architecture, if it is that of a class in loaders/
/// that only adds grouped heads.
std::string with_stock_architecture(const std::string& config_text);

/// Whether `config` has such names, which stock loaders reject.
bool has_alibi_names(const Json& config);

/// Reads the ALiBi slopes that an earlier conversion recorded in `config`, if any. Throws kBadInput
/// if they are not a list of numbers.
void read_recorded_slopes(ModelSpec& spec, const Json& config, std::string_view where);

/// The first of a config's architectures; empty if there is none.
std::string architecture_of(const Json& config);

/// The architecture of a config's model_type; empty for an unknown one.
std::string_view architecture_of_model_type(std::string_view model_type);

/// regroup's family name of an architecture; "unknown" if there is none.
std::string_view family_of_architecture(std::string_view architecture);

/// Sentences on the tensors of the model that are missing or whose shape disagrees with `spec`.
/// Where a setting that is not computable may replace tensors by others, only on shapes.
std::vector<std::string> tensor_faults(const ModelSpec& spec, const Checkpoint& checkpoint);

/// The layers whose number of kv heads is another by the tensors' shapes than by the config, a
/// sentence each, or one if all differ alike. Throws as kv_heads_from_shapes() does.
std::vector<std::string> kv_head_faults(const ModelSpec& spec, const Checkpoint& checkpoint);

/// Throws kBadInput if there are any, or if attention tensors are missing.
void check_tensors(const ModelSpec& spec, const Checkpoint& checkpoint);

/// Throws kBadInput listing all attention tensors that are missing or whose shape disagrees with
/// `spec`.
void check_attention_shapes(const ModelSpec& spec, const Checkpoint& checkpoint);

/// The same for every tensor the model uses.
void check_all_shapes(const ModelSpec& spec, const Checkpoint& checkpoint);

/// A tensor the model uses and its required shape. Fused tensors are listed once.
struct ExpectedTensor {
  std::string name;
  Shape shape;
};
std::vector<ExpectedTensor> expected_attention_tensors(const ModelSpec& spec);
std::vector<ExpectedTensor> expected_tensors(const ModelSpec& spec);

// Models of unsupported architectures, described by a small JSON file from the user: which config
// keys hold the sizes, and the names of the attention tensors. See docs/layout.md.

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

// Llama in Meta's convention, with params.json as the config.

/// The spec of the model that `params` (the contents of params.json) describes. Sizes it lacks are
/// derived from tensor shapes. Error messages begin with `where` (its file name). Throws kBadInput
/// for missing or invalid values and for quantised weights. An unknown key, or a RoPE scaling with
/// an unknown factor, makes the model not computable.
ModelSpec describe_meta(const Json& params, const Checkpoint& checkpoint, std::string_view where);

}  // namespace regroup
