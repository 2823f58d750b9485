// Decides which architecture name a result may carry.
#pragma once

#include <string_view>

#include "converter/target/target.h"

namespace regroup {

/// Gives `target` names of regroup's own, which stock loaders refuse.
void use_own_names(Target& target);

/// Prevents stock loaders from silently computing something other than `target`. If they would
/// derive other ALiBi slopes than those of its spec, `target` gets regroup's own names, which
/// loaders refuse. Throws kUsage if the result would be useless under such a name: `asked`, the
/// requested target, is "expanded", its container has no such names, or loaders support its heads.
void keep_from_stock_loaders(Target& target, Container container, std::string_view asked);

}  // namespace regroup
