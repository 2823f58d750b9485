// Whether a file without a header looks like 16-bit token ids.
#pragma once

#include "formats/base/file.h"

namespace regroup {

/// Examines the first 64 KiB. Throws kBadInput if the file is not raw u16 tokens: text, 32-bit or
/// big-endian ids, archives, weight files. The message says what to do.
void check_raw_tokens(const File& file);

}  // namespace regroup
