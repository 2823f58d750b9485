#include "cli/measure/context_warning.h"

#include <string>

#include "formats/inspect/context_length.h"

namespace regroup {

void warn_of_context(const Model& model, std::int64_t context, const Console& console) {
  const std::string warning = warning_of_context(model, context);
  if (!warning.empty()) {
    console.note("warning: " + warning);
  }
}

}  // namespace regroup
