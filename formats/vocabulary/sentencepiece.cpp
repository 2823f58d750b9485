#include "formats/vocabulary/sentencepiece.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

// One field of a message: its number, and its value as a number or as bytes.
struct Field {
  std::uint64_t number = 0;
  int wire_type = 0;
  std::uint64_t value = 0;  // of types 0, 1 and 5
  std::string_view bytes;   // of type 2
};

constexpr int kVarint = 0, kEightBytes = 1, kLengthDelimited = 2, kFourBytes = 5;
constexpr std::uint64_t kMaxTag = 0xffff'ffff;

// Limits of the library, which crashes beyond them.
constexpr std::size_t kMaxPieces = 1U << 21;  // for its memory; published models have up to 1M
constexpr std::size_t kMaxPieceBytes = 4096;  // the library recurses once per byte
constexpr std::size_t kMaxNestedPieces = 64;  // user-defined pieces that match at one position
constexpr int kUserDefined = 4;

// Iterates over the fields of one message. Nested messages are byte ranges for another walker, so
// that nothing recurses.
class FieldWalker {
 public:
  FieldWalker(std::string_view message, std::string_view where) : rest_(message), where_(where) {}

  bool next(Field& field) {
    if (rest_.empty()) {
      return false;
    }
    const std::uint64_t tag = varint();
    if (tag > kMaxTag) {
      refuse();  // protobuf would truncate it to 32 bits and read another field
    }
    field = {tag >> 3, static_cast<int>(tag & 7), 0, {}};
    switch (field.wire_type) {
      case kVarint: field.value = varint(); break;
      case kEightBytes: field.value = number_at<std::uint64_t>(take(8)); break;
      case kFourBytes: field.value = number_at<std::uint32_t>(take(4)); break;
      case kLengthDelimited: field.bytes = take(varint()); break;
      default: refuse();
    }
    if (field.number == 0) {
      refuse();
    }
    return true;
  }

 private:
  [[noreturn]] void refuse() const {
    throw_bad_input("{}: not a SentencePiece model: its protobuf message is malformed or cut short",
                    where_);
  }

  std::string_view take(std::uint64_t count) {
    if (count > rest_.size()) {
      refuse();
    }
    const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(count));
    rest_.remove_prefix(taken.size());
    return taken;
  }

  std::uint64_t varint() {
    constexpr unsigned kMostBits = 64;
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < kMostBits; shift += 7) {
      const std::uint64_t byte = static_cast<unsigned char>(take(1).front());
      value |= (byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) {
        return value;
      }
    }
    refuse();
  }

  std::string_view rest_;
  std::string_view where_;
};

SentencePiece parse_piece(std::string_view message, std::string_view where) {
  SentencePiece piece;
  FieldWalker walker(message, where);
  for (Field field; walker.next(field);) {
    if (field.number == 1 && field.wire_type == kLengthDelimited) {
      piece.text = field.bytes;
    } else if (field.number == 2 && field.wire_type == kFourBytes) {
      piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
    } else if (field.number == 3 && field.wire_type == kVarint) {
      if (field.value < 1 || field.value > 6) {
        throw_bad_input("{}: a piece is of type {}, 1 to 6 are known", where, field.value);
      }
      piece.type = static_cast<int>(field.value);
    }
  }
  return piece;
}

void check_piece(const SentencePiece& piece, std::string_view where) {
  if (piece.text.size() > kMaxPieceBytes) {
    throw_bad_input("{}: a piece has {} bytes, at most {} allowed", where, piece.text.size(),
                    kMaxPieceBytes);
  }
  if (piece.text.find('\0') != std::string::npos) {
    throw_bad_input("{}: piece \"{}\" contains a NUL byte", where, printable(piece.text));
  }
  if (std::isnan(piece.score)) {
    throw_bad_input("{}: the score of piece \"{}\" is not a number", where, printable(piece.text));
  }
}

// Limits the number of user-defined pieces that can match at the same position of a text.
void check_nesting(const std::vector<SentencePiece>& pieces, std::string_view where) {
  std::vector<std::string_view> texts;
  for (const SentencePiece& piece : pieces) {
    if (piece.type == kUserDefined) {
      texts.push_back(piece.text);
    }
  }
  std::ranges::sort(texts);
  std::vector<std::string_view> prefixes;  // of `text`; each is a prefix of the next
  for (const std::string_view text : texts) {
    while (!prefixes.empty() && !text.starts_with(prefixes.back())) {
      prefixes.pop_back();
    }
    prefixes.push_back(text);
    if (prefixes.size() > kMaxNestedPieces) {
      throw_bad_input(
          "{}: more than {} user-defined pieces are prefixes of one another, up to \"{}\"", where,
          kMaxNestedPieces, printable(text, 40));
    }
  }
}

// Checks every precompiled_charsmap in a normaliser's settings. The library uses the last one.
void check_normalizer(std::string_view message, std::string_view where) {
  constexpr std::uint64_t kCharsmap = 2;
  FieldWalker walker(message, where);
  for (Field field; walker.next(field);) {
    if (field.number == kCharsmap && field.wire_type == kLengthDelimited) {
      check_charsmap(field.bytes, where);
    }
  }
}

// The number in one field of a message, or `absent`.
std::uint64_t number_in(std::string_view message, std::uint64_t number, std::uint64_t absent,
                        std::string_view where) {
  std::uint64_t value = absent;
  FieldWalker walker(message, where);
  for (Field field; walker.next(field);) {
    if (field.number == number && field.wire_type == kVarint) {
      value = field.value;
    }
  }
  return value;
}

constexpr std::size_t kUnitBytes = 4;
constexpr std::size_t kBlock = 256;          // units that one byte of text chooses from
constexpr std::size_t kMaxBytes = 4U << 20;  // the library's own maps have 300 KB
// The library stores the rules that match at a position in an array of 32. If it finds more, it
// reads past the end of the array.
constexpr int kMaxNestedRules = 31;
constexpr std::size_t kMaxReplacement = 255;  // Unicode's longest has 33 bytes

class Trie {
 public:
  Trie(std::string_view units, std::string_view replacements, std::string_view where)
      : units_(units.size() / kUnitBytes), replacements_(replacements), where_(where) {
    for (std::size_t i = 0; i < units_.size(); ++i) {
      units_[i].bits = number_at<std::uint32_t>(units, kUnitBytes * i);
    }
  }

  // Visits every reachable node once.
  void check() {
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

 private:
  struct Node {
    std::uint32_t base = 0;
    std::uint32_t next_child = 0;  // the place in children_
  };
  enum Visit : std::uint8_t { kUnseen, kOpen, kDone };

  void group_by_parent() {
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
    std::partial_sum(first_child_.begin(), first_child_.end(), first_child_.begin());
    children_.resize(first_child_.back());
    std::vector<std::uint32_t> next(first_child_.begin(), first_child_.end() - 1);
    for (std::size_t i = 0; i < units_.size(); ++i) {
      if (!units_[i].is_value()) {
        children_[next[parent_of(i)]++] = static_cast<std::uint32_t>(i);
      }
    }
  }

  void enter(std::uint32_t base) {
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
  void leave(std::uint32_t base) {
    int most = 0;
    for (std::uint32_t i = first_child_[base]; i < first_child_[base + 1]; ++i) {
      const std::uint32_t place = children_[i];
      const CharsmapUnit child = units_[place];
      most = std::max(most, nested_[place ^ child.offset()] + (child.ends_rule() ? 1 : 0));
    }
    if (most > kMaxNestedRules) {
      refuse(fmt::format("more than {} of its rules share a prefix", kMaxNestedRules));
    }
    nested_[base] = static_cast<std::uint8_t>(most);
    visits_[base] = kDone;
  }

  void check_replacement(std::uint32_t base) const {
    const std::size_t begin = units_[base].value();
    if (begin >= replacements_.size()) {
      refuse("a rule's replacement is outside the replacement text");
    }
    const std::size_t room = std::min(replacements_.size() - begin, kMaxReplacement + 1);
    if (std::memchr(replacements_.data() + begin, '\0', room) == nullptr) {
      refuse(fmt::format("a rule's replacement does not end within {} bytes", kMaxReplacement));
    }
  }

  [[noreturn]] void refuse(std::string_view why) const {
    throw_bad_input("{}: precompiled_charsmap: {}", where_, why);
  }

  std::vector<CharsmapUnit> units_;
  std::string_view replacements_, where_;
  // Entries sorted by the base of the only node that can be their parent. The children of `base`
  // are children_[first_child_[base]] up to first_child_[base + 1].
  std::vector<std::uint32_t> children_, first_child_;
  std::vector<Visit> visits_;
  std::vector<std::uint8_t> nested_;  // the most rules on a path down from each node
  std::vector<Node> path_;
};

}  // namespace

SentencePieceModel parse_sentencepiece_model(std::string_view bytes, std::string_view where) {
  // Field numbers in ModelProto and in its nested messages.
  constexpr std::uint64_t kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3, kDenormalizerSpec = 5;
  constexpr std::uint64_t kModelType = 3, kAddDummyPrefix = 3, kRemoveExtraSpaces = 4;
  constexpr std::uint64_t kUnigram = 1;

  SentencePieceModel model;
  FieldWalker walker(bytes, where);
  for (Field field; walker.next(field);) {
    if (field.wire_type != kLengthDelimited) {
      continue;
    }
    if (field.number == kPieces) {
      if (model.pieces.size() == kMaxPieces) {
        throw_bad_input("{}: more than {} pieces", where, kMaxPieces);
      }
      model.pieces.push_back(parse_piece(field.bytes, where));
      check_piece(model.pieces.back(), where);
    } else if (field.number == kTrainerSpec) {
      model.unigram = number_in(field.bytes, kModelType, kUnigram, where) == kUnigram;
    } else if (field.number == kDenormalizerSpec) {
      check_normalizer(field.bytes, where);
    } else if (field.number == kNormalizerSpec) {
      check_normalizer(field.bytes, where);
      model.adds_space_prefix = number_in(field.bytes, kAddDummyPrefix, 1, where) != 0;
      model.removes_extra_spaces = number_in(field.bytes, kRemoveExtraSpaces, 1, where) != 0;
    }
  }
  if (model.pieces.empty()) {
    throw_bad_input("{}: not a SentencePiece model: it has no pieces", where);
  }
  check_nesting(model.pieces, where);
  return model;
}

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
  const auto trie_bytes = number_at<std::uint32_t>(charsmap);
  charsmap.remove_prefix(sizeof(trie_bytes));
  if (trie_bytes > charsmap.size() || trie_bytes % kUnitBytes != 0) {
    refuse(fmt::format("a trie of {} bytes, a multiple of {} up to {} is needed", trie_bytes,
                       kUnitBytes, charsmap.size()));
  }
  Trie(charsmap.substr(0, trie_bytes), charsmap.substr(trie_bytes), where).check();
}

}  // namespace regroup
