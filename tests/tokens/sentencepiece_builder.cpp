#include "tests/tokens/sentencepiece_builder.h"

#include <bit>
#include <cstdint>

#include <fmt/format.h>

namespace regroup {
namespace {

std::string varint(std::uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) {
    bytes += static_cast<char>(0x80 | (number & 0x7f));
  }
  return bytes + static_cast<char>(number);
}

std::string message(int field, const std::string& bytes) {
  return varint(static_cast<std::uint64_t>(field) << 3 | 2) + varint(bytes.size()) + bytes;
}

std::string number(int field, std::uint64_t value) {
  return varint(static_cast<std::uint64_t>(field) << 3) + varint(value);
}

std::string real(int field, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return varint(static_cast<std::uint64_t>(field) << 3 | 5) +
         std::string(reinterpret_cast<const char*>(&bits), sizeof bits);
}

bool has_bytes(const BuiltSentencePiece& model) {
  for (const BuiltPiece& piece : model.pieces) {
    if (piece.type == 6) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string BuiltSentencePiece::bytes() const {
  std::string model;
  for (const BuiltPiece& piece : pieces) {
    model += message(1, message(1, piece.text) + real(2, piece.score) + number(3, piece.type));
  }
  // TrainerSpec: model_type, byte_fallback. NormalizerSpec: add_dummy_prefix, then
  // remove_extra_whitespaces.
  return model + message(2, number(3, unigram ? 1 : 2) + number(35, has_bytes(*this) ? 1 : 0)) +
         message(3, number(3, adds_space_prefix ? 1 : 0) + number(4, removes_extra_spaces ? 1 : 0) +
                        (charsmap.empty() ? "" : message(2, charsmap)));
}

BuiltSentencePiece llama_like(const std::vector<std::string>& pieces) {
  BuiltSentencePiece model;
  model.pieces = {{"<unk>", 0, 2}, {"<s>", 0, 3}, {"</s>", 0, 3}};
  for (int byte = 0; byte < 256; ++byte) {
    model.pieces.push_back({fmt::format("<0x{:02X}>", byte), 0, 6});
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    model.pieces.push_back({pieces[i], -static_cast<float>(i), 1});
  }
  return model;
}

}  // namespace regroup
