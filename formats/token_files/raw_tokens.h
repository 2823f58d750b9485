// Whether bytes that say nothing of themselves look like token ids of 16 bits.
#pragma once

#include "formats/base/file.h"

namespace regroup {

/// Looks at the first 64 KiB. Throws kBadInput for what is no raw u16 token file: text, ids of 32
/// bits or of the other byte order, archives and weight files; the message says what to do.
void check_raw_tokens(const File& file);

}  // namespace regroup
