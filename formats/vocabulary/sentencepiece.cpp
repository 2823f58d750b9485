#include "formats/vocabulary/sentencepiece.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/vocabulary/charsmap.h"

namespace regroup {
namespace {

// One field of a message: its number, and its value as a number or as bytes.
struct Field {
  std::uint64_t number = 0;
  int wire_type = 0;
  std::uint64_t value = 0;  // of types 0, 1 and 5
  std::string_view bytes;   // of type 2
};

constexpr int kVarint = 0;
constexpr int kEightBytes = 1;
constexpr int kLengthDelimited = 2;
constexpr int kFourBytes = 5;
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
      case kEightBytes: field.value = fixed(8); break;
      case kFourBytes: field.value = fixed(4); break;
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

  // Little-endian.
  std::uint64_t fixed(std::uint64_t count) {
    std::uint64_t value = 0;
    const std::string_view bytes = take(count);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    }
    return value;
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
  std::sort(texts.begin(), texts.end());
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

}  // namespace

SentencePieceModel parse_sentencepiece_model(std::string_view bytes, std::string_view where) {
  // Field numbers in ModelProto and in its nested messages.
  constexpr std::uint64_t kPieces = 1;
  constexpr std::uint64_t kTrainerSpec = 2;
  constexpr std::uint64_t kNormalizerSpec = 3;
  constexpr std::uint64_t kDenormalizerSpec = 5;
  constexpr std::uint64_t kModelType = 3;
  constexpr std::uint64_t kAddDummyPrefix = 3;
  constexpr std::uint64_t kRemoveExtraSpaces = 4;
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

}  // namespace regroup
