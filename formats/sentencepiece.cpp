#include "formats/sentencepiece.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "formats/error.h"

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

// The fields of one message, one after the other. Messages inside it are bytes to be walked by a
// walker of their own, so that nothing recurses.
class FieldWalker {
 public:
  FieldWalker(std::string_view message, std::string_view where) : rest_(message), where_(where) {}

  bool next(Field& field) {
    if (rest_.empty()) {
      return false;
    }
    const std::uint64_t tag = varint();
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

// The number in one field of a message, `absent` where it is not there.
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
  // Numbers of the fields in ModelProto, and in the messages inside it.
  constexpr std::uint64_t kPieces = 1;
  constexpr std::uint64_t kTrainerSpec = 2;
  constexpr std::uint64_t kNormalizerSpec = 3;
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
      model.pieces.push_back(parse_piece(field.bytes, where));
    } else if (field.number == kTrainerSpec) {
      model.unigram = number_in(field.bytes, kModelType, kUnigram, where) == kUnigram;
    } else if (field.number == kNormalizerSpec) {
      model.adds_space_prefix = number_in(field.bytes, kAddDummyPrefix, 1, where) != 0;
      model.removes_extra_spaces = number_in(field.bytes, kRemoveExtraSpaces, 1, where) != 0;
    }
  }
  if (model.pieces.empty()) {
    throw_bad_input("{}: not a SentencePiece model: it holds no pieces", where);
  }
  return model;
}

}  // namespace regroup
