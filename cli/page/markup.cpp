#include "cli/page/markup.h"

#include "formats/base/printable.h"

namespace regroup {

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char byte : printable(text, 0)) {
    switch (byte) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      case '\'': safe += "&#39;"; break;
      default: safe += byte;
    }
  }
  return safe;
}

}  // namespace regroup
