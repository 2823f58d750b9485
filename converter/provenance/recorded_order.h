// Where the heads of a converted model stood in its source, out of what it records of itself.
#pragma once

#include "converter/heads/head_order.h"
#include "formats/json/json.h"
#include "formats/model/model.h"

namespace regroup {

/// The order in `recorded`, the "query_order" of a result's record: null, per layer which of the
/// source's query heads stands where, or that by role. Throws kBadInput, naming `where`, unless
/// each is a permutation that moves whole kv heads of `source` with their queries.
HeadOrder recorded_order(const Json& recorded, const ModelSpec& source, const std::string& where);

}  // namespace regroup
