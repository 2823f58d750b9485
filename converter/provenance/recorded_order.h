// Reads the head order from the record of a converted model.
#pragma once

#include "converter/heads/head_order.h"
#include "formats/json/json.h"
#include "formats/model/model.h"

namespace regroup {

/// The order in `recorded`, the "query_order" of a result's record: null, or the permutation of
/// query heads per layer, or an object of these by role. Throws kBadInput, naming `where`, unless
/// each permutation moves whole kv heads of `source` with their queries.
HeadOrder recorded_order(const Json& recorded, const ModelSpec& source, const std::string& where);

}  // namespace regroup
