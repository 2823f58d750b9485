#include "tokens/hf/byte_trie.h"

#include <algorithm>
#include <cstddef>

namespace regroup {
namespace {

// Sorted keys that share their first bytes: those of one node, or of all keys.
struct SharedStart {
  std::uint32_t begin = 0, end = 0;
};

}  // namespace

ByteTrie::ByteTrie(std::vector<Key> keys) {
  first_.fill(kNone);
  std::stable_sort(keys.begin(), keys.end(),
                   [](const Key& left, const Key& right) { return left.first < right.first; });
  std::vector<SharedStart> level{{0, static_cast<std::uint32_t>(keys.size())}}, next;
  for (std::size_t depth = 0; !level.empty(); ++depth, level.swap(next)) {
    next.clear();
    for (const SharedStart& parent : level) {
      if (depth > 0) {
        children_.push_back(static_cast<std::uint32_t>(values_.size()));
      }
      std::uint32_t at = parent.begin;
      while (at < parent.end && keys[at].first.size() == depth) {
        ++at;  // these end at the parent
      }
      while (at < parent.end) {
        const char byte = keys[at].first[depth];
        const std::uint32_t begin = at;
        while (at < parent.end && keys[at].first[depth] == byte) {
          ++at;
        }
        const auto node = static_cast<std::uint32_t>(values_.size());
        first_[index_of(byte)] = depth == 0 ? node : first_[index_of(byte)];
        values_.push_back(keys[begin].first.size() == depth + 1 ? keys[begin].second : kNone);
        bytes_.push_back(static_cast<unsigned char>(byte));
        next.push_back({begin, at});
      }
    }
  }
  children_.push_back(static_cast<std::uint32_t>(values_.size()));
}

}  // namespace regroup
