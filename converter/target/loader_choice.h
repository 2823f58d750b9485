// Decides whether a result carries the Python code by which transformers loads it.
#pragma once

#include "converter/target/target.h"

namespace regroup {

enum class LoaderChoice {
  kAuto,          ///< code if no stock loader supports the heads, and the source has no code itself
  kTransformers,  ///< code, also in place of the source's own
  kNone,          ///< no code
};

/// Adds the code and its auto_map to `target`, and removes that of `source` if the result does not
/// need it. `container` is the result's. Throws kUsage if kTransformers is impossible or would have
/// no effect, and if a file of the source has the name of one to be written.
void choose_loader_code(Target& target, const Model& source, Container container,
                        LoaderChoice choice);

/// Whether --loader makes a difference for a result with this config and spec.
bool has_loader_choice(const std::string& config_text, const ModelSpec& spec, Container container);

}  // namespace regroup
