#include "formats/json/printable_json.h"

#include "formats/base/printable.h"

namespace regroup {

std::string printable_json(const Json& value, std::size_t limit) {
  return printable(value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace),
                   limit);
}

}  // namespace regroup
