// Base64 with padding, RFC 4648.
#pragma once

#include <string>
#include <string_view>

namespace regroup {

std::string base64_of(std::string_view bytes);

}  // namespace regroup
