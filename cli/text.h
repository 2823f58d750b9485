// Numbers as people read them, and reports as machines do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/json.h"

namespace regroup {

/// "512 B", "13.5 GB" (powers of 1000, as disks and downloads are labelled).
std::string text_of_bytes(double bytes);
/// "512 KiB", "2.5 MiB" (powers of 1024, as memory and caches are counted).
std::string text_of_memory(double bytes);
/// "6.74 B", "124 M", "812 K": a count of parameters or tokens.
std::string text_of_count(double count);
/// "12,345".
std::string with_thousands(std::uint64_t number);
/// "42 s", "3 min 20 s", "2 h 05 min".
std::string text_of_duration(double seconds);
/// Kv heads per layer: "8" where all agree, else runs of layers, "8 x 30, 4 x 2 (heads x layers)";
/// where there are many runs, each number once with all its layers.
std::string text_of_heads(const std::vector<std::int64_t>& heads);
/// A report for machines, in ASCII: names out of files reach a terminal escaped, and paths that are
/// no UTF-8 with their odd bytes replaced.
std::string text_of_json(const Json& report);

}  // namespace regroup
