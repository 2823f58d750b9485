#include "uptrain/optim/master_weights.h"

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {

std::string_view name_of(MemoryMode mode) {
  switch (mode) {
    case MemoryMode::kFull: return "full";
    case MemoryMode::kCompact: return "compact";
    case MemoryMode::kHost: return "host";
  }
  return "full";
}

MemoryMode parse_memory_mode(std::string_view text) {
  for (const MemoryMode mode : {MemoryMode::kFull, MemoryMode::kCompact, MemoryMode::kHost}) {
    if (text == name_of(mode)) {
      return mode;
    }
  }
  throw_usage("memory is \"{}\", allowed are full, compact and host", printable(text));
}

}  // namespace regroup
