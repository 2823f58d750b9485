// Which loaders take the result.
#pragma once

#include <string_view>

#include "converter/convert/target.h"

namespace regroup {

/// Gives `target` names of regroup's own, which stock loaders refuse.
void use_own_names(Target& target);

/// Prevents stock loaders from silently computing something other than `target`. If they would
/// derive other ALiBi slopes than those of its spec, `target` gets regroup's own names, which
/// loaders refuse. Throws kUsage if the result would be useless under such a name: `asked`, the
/// requested target, is "expanded", its container has no such names, or loaders support its heads.
void keep_from_stock_loaders(Target& target, Container container, std::string_view asked);

// Decides whether a result carries the Python code by which transformers loads it.

enum class LoaderChoice {
  kAuto,          ///< code if no stock loader supports the heads, and the source has no code itself
  kTransformers,  ///< code, also in place of the source's own
  kNone,          ///< no code
};

/// Adds the code and its auto_map to `target`, and removes that of `source`. Adds notes that name
/// all other code that the result has (formats/families/loader_code.h). `container` is the
/// result's. Throws kUsage if kTransformers is impossible or would have no effect, and if a file of
/// the source has the name of one to be written.
void choose_loader_code(Target& target, const Model& source, Container container,
                        LoaderChoice choice);

/// A directory with the heads and the spec of `source` and this config, as after training: it has
/// the source's code, as this version writes it.
Target with_kept_code(const Model& source, const std::string& config_text);

/// Copies the source's other files, except those named in `left_out`, into `directory`, and writes
/// `code` next to them.
void write_companions(const Model& source, const std::filesystem::path& directory,
                      const std::vector<std::string>& left_out,
                      const std::vector<LoaderFile>& code);

/// Whether --loader makes a difference for a result with this config and spec.
bool has_loader_choice(const std::string& config_text, const ModelSpec& spec, Container container);

}  // namespace regroup
