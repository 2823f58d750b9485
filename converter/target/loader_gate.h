// Decides which architecture name a result may carry.
#pragma once

#include <string_view>

#include "converter/target/target.h"

namespace regroup {

/// Gives `target` names of regroup's own, which stock loaders refuse.
void use_own_names(Target& target);

/// Keeps stock loaders from silently computing something else than `target`: if they would derive
/// other ALiBi slopes than those of its spec, `target` gets names of regroup's own. Throws kUsage
/// if the result would be useless under such a name: it was `asked` for as "expanded", its
/// container has no such names, or loaders support its heads.
void keep_from_stock_loaders(Target& target, Container container, std::string_view asked);

}  // namespace regroup
