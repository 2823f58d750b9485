// Compressed text as a stream of bytes: gzip by zlib, zstd by libzstd, as far as the build has
// them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace regroup {

class Decompressor {
 public:
  virtual ~Decompressor() = default;

  /// Fills `room` from the front and returns how many bytes it wrote: 0 only at the end. Memory
  /// does not depend on what the data says. Throws kBadInput for data that is damaged, incomplete,
  /// needs a window above 128 MiB, or is a thousand times smaller than its text.
  virtual std::size_t read(std::span<char> room) = 0;
};

/// Gives the next compressed bytes: at most as many as there is room for, 0 at the end.
using ByteSource = std::function<std::size_t(std::span<char> room)>;

/// The decompressor for data that begins with `start`; none if it is not compressed in these ways.
/// `start` must not be empty and hold all that `source` has given. `name` is for messages. Throws
/// kUsage in a build without the library.
std::unique_ptr<Decompressor> decompressor_for(std::string_view start, ByteSource source,
                                               const std::string& name);

}  // namespace regroup
