#include "formats/vocabulary/charsmap.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "formats/base/error.h"

namespace regroup {
namespace {

constexpr std::size_t kUnitBytes = 4;
constexpr std::size_t kBlock = 256;          // units that one byte of text chooses from
constexpr std::size_t kMaxBytes = 4U << 20;  // the library's own maps have 300 KB
// The library stores the rules that match at a position in an array of 32. If it finds more, it
// reads past the end of the array.
constexpr int kMaxNestedRules = 31;
constexpr std::size_t kMaxReplacement = 255;  // Unicode's longest has 33 bytes

// One entry of the double array. A node is identified by its base. The entry of its child for byte
// c is at base ^ c and has the label c. The entry of its value is at the base itself.
struct Unit {
  std::uint32_t bits = 0;

  bool is_value() const { return bits >> 31 != 0; }
  std::uint32_t label() const { return bits & 0xff; }
  bool ends_rule() const { return (bits >> 8 & 1) != 0; }
  std::uint32_t offset() const { return bits >> 10 << ((bits & 1U << 9) >> 6); }
  std::uint32_t value() const { return bits & 0x7fffffff; }
};

class Trie {
 public:
  Trie(std::string_view units, std::string_view replacements, std::string_view where);

  // Visits every reachable node once.
  void check();

 private:
  struct Node {
    std::uint32_t base = 0;
    std::uint32_t next_child = 0;  // the place in children_
  };
  enum Visit : std::uint8_t { kUnseen, kOpen, kDone };

  void group_by_parent();
  void enter(std::uint32_t base);
  void leave(std::uint32_t base);
  void check_replacement(std::uint32_t base) const;
  [[noreturn]] void refuse(std::string_view why) const {
    throw_bad_input("{}: precompiled_charsmap: {}", where_, why);
  }

  std::vector<Unit> units_;
  std::string_view replacements_, where_;
  // Entries sorted by the base of the only node that can be their parent. The children of `base`
  // are children_[first_child_[base]] up to first_child_[base + 1].
  std::vector<std::uint32_t> children_, first_child_;
  std::vector<Visit> visits_;
  std::vector<std::uint8_t> nested_;  // the most rules on a path down from each node
  std::vector<Node> path_;
};

Trie::Trie(std::string_view units, std::string_view replacements, std::string_view where)
    : units_(units.size() / kUnitBytes), replacements_(replacements), where_(where) {
  for (std::size_t i = 0; i < units_.size(); ++i) {
    std::uint32_t bits = 0;
    for (std::size_t byte = 0; byte < kUnitBytes; ++byte) {
      bits |= std::uint32_t{static_cast<unsigned char>(units[kUnitBytes * i + byte])} << (8 * byte);
    }
    units_[i].bits = bits;
  }
}

void Trie::group_by_parent() {
  const auto parent_of = [&](std::size_t place) {
    return static_cast<std::uint32_t>(place) ^ units_[place].label();
  };
  // Parents lie in the same block as their children; the last block may be cut short.
  first_child_.assign(units_.size() + kBlock + 1, 0);
  for (std::size_t i = 0; i < units_.size(); ++i) {
    if (!units_[i].is_value()) {
      ++first_child_[parent_of(i) + 1];
    }
  }
  for (std::size_t i = 1; i < first_child_.size(); ++i) {
    first_child_[i] += first_child_[i - 1];
  }
  children_.resize(first_child_.back());
  std::vector<std::uint32_t> next(first_child_.begin(), first_child_.end() - 1);
  for (std::size_t i = 0; i < units_.size(); ++i) {
    if (!units_[i].is_value()) {
      children_[next[parent_of(i)]++] = static_cast<std::uint32_t>(i);
    }
  }
}

void Trie::enter(std::uint32_t base) {
  // The library may look up any byte here, whether there is a child for it or not.
  if ((base | (kBlock - 1)) >= units_.size()) {
    refuse("its trie points outside its array");
  }
  if (visits_[base] == kOpen) {
    refuse("its trie has a cycle");
  }
  if (visits_[base] == kUnseen) {
    visits_[base] = kOpen;
    path_.push_back({base, first_child_[base]});
  }
}

// Called when all children are done. Takes the maximum of their nested rules.
void Trie::leave(std::uint32_t base) {
  int most = 0;
  for (std::uint32_t i = first_child_[base]; i < first_child_[base + 1]; ++i) {
    const std::uint32_t place = children_[i];
    const Unit child = units_[place];
    most = std::max(most, nested_[place ^ child.offset()] + (child.ends_rule() ? 1 : 0));
  }
  if (most > kMaxNestedRules) {
    refuse(fmt::format("more than {} of its rules share a prefix", kMaxNestedRules));
  }
  nested_[base] = static_cast<std::uint8_t>(most);
  visits_[base] = kDone;
}

void Trie::check_replacement(std::uint32_t base) const {
  const std::size_t begin = units_[base].value();
  if (begin >= replacements_.size()) {
    refuse("a rule's replacement is outside the replacement text");
  }
  const std::size_t room = std::min(replacements_.size() - begin, kMaxReplacement + 1);
  if (std::memchr(replacements_.data() + begin, '\0', room) == nullptr) {
    refuse(fmt::format("a rule's replacement does not end within {} bytes", kMaxReplacement));
  }
}

void Trie::check() {
  if (units_.empty()) {
    refuse("its trie is empty");
  }
  group_by_parent();
  visits_.assign(units_.size(), kUnseen);
  nested_.assign(units_.size(), 0);
  enter(units_.front().offset());
  while (!path_.empty()) {
    Node& node = path_.back();
    if (node.next_child == first_child_[node.base + 1]) {
      leave(node.base);
      path_.pop_back();
      continue;
    }
    const std::uint32_t place = children_[node.next_child++];
    const std::uint32_t base = place ^ units_[place].offset();
    const bool ends_rule = units_[place].ends_rule();
    enter(base);  // `node` may be gone
    if (ends_rule) {
      check_replacement(base);
    }
  }
}

}  // namespace

void check_charsmap(std::string_view charsmap, std::string_view where) {
  if (charsmap.empty()) {
    return;
  }
  const auto refuse = [&](std::string_view why) {
    throw_bad_input("{}: precompiled_charsmap: {}", where, why);
  };
  if (charsmap.size() > kMaxBytes) {
    refuse(fmt::format("{} bytes, at most {} allowed", charsmap.size(), kMaxBytes));
  }
  if (charsmap.size() <= kUnitBytes) {
    refuse("too short to hold a trie");
  }
  std::uint32_t trie_bytes = 0;
  std::memcpy(&trie_bytes, charsmap.data(), sizeof(trie_bytes));
  charsmap.remove_prefix(sizeof(trie_bytes));
  if (trie_bytes > charsmap.size() || trie_bytes % kUnitBytes != 0) {
    refuse(fmt::format("a trie of {} bytes, a multiple of {} up to {} is needed", trie_bytes,
                       kUnitBytes, charsmap.size()));
  }
  Trie(charsmap.substr(0, trie_bytes), charsmap.substr(trie_bytes), where).check();
}

}  // namespace regroup
