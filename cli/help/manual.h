// The manual page, in the macros of man(7).
#pragma once

#include <string>

#include "cli/help/command_line.h"

namespace regroup {

std::string manual_page(const CommandFacts& program);

}  // namespace regroup
