// A small file that is yet to be written.
#pragma once

#include <string>

namespace regroup {

struct NamedText {
  std::string name;  ///< of the file, without a folder
  std::string text;  ///< its bytes
};

}  // namespace regroup
