// The one place that decides which name a result may carry.
#pragma once

#include <string_view>

#include "converter/target/target.h"

namespace regroup {

/// Gives `target` names of regroup's own, which stock loaders refuse.
void use_own_names(Target& target);

/// Keeps stock loaders from computing something else than `target` without a word, whatever history
/// led to it: where they would derive ALiBi's slopes otherwise than its spec has them, it gets
/// names of regroup's own. Throws kUsage where the result would be of no use under such a name: it
/// was `asked` for as "expanded", its container has no such names, or loaders would take its heads.
void keep_from_stock_loaders(Target& target, Container container, std::string_view asked);

}  // namespace regroup
