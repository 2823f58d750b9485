#include "tokens/hf/unicode.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <utf8proc.h>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {

namespace {

// Tables of ranges are in order.
struct Range {
  char32_t first = 0, last = 0;
};

struct NewerRange {
  char32_t first = 0, last = 0;
  std::string_view category;
};

// Characters on which the libraries here and those of Python's `tokenizers` disagree, because each
// library knows another version of Unicode. Without these tables, new emoji would get other ids.

// All tables are measured: each character went through the tokenizers package (0.23) and through
// the libraries of Debian 12.

// Characters that Unicode 15 and 16 added. PCRE2 10.42 knows Unicode 14, utf8proc 2.8 Unicode 15.
constexpr std::array kNewer = std::to_array<NewerRange>(
    {{0x897, 0x897, "Mn"},     {0xcf3, 0xcf3, "Mc"},     {0xece, 0xece, "Mn"},
     {0x1b4e, 0x1b4f, "Po"},   {0x1b7f, 0x1b7f, "Po"},   {0x1c89, 0x1c89, "Lu"},
     {0x1c8a, 0x1c8a, "Ll"},   {0x2427, 0x2429, "So"},   {0x2ffc, 0x2fff, "So"},
     {0x31e4, 0x31e5, "So"},   {0x31ef, 0x31ef, "So"},   {0xa7cb, 0xa7cc, "Lu"},
     {0xa7cd, 0xa7cd, "Ll"},   {0xa7da, 0xa7da, "Lu"},   {0xa7db, 0xa7db, "Ll"},
     {0xa7dc, 0xa7dc, "Lu"},   {0x105c0, 0x105f3, "Lo"}, {0x10d40, 0x10d49, "Nd"},
     {0x10d4a, 0x10d4d, "Lo"}, {0x10d4e, 0x10d4e, "Lm"}, {0x10d4f, 0x10d4f, "Lo"},
     {0x10d50, 0x10d65, "Lu"}, {0x10d69, 0x10d6d, "Mn"}, {0x10d6e, 0x10d6e, "Pd"},
     {0x10d6f, 0x10d6f, "Lm"}, {0x10d70, 0x10d85, "Ll"}, {0x10d8e, 0x10d8f, "Sm"},
     {0x10ec2, 0x10ec4, "Lo"}, {0x10efc, 0x10eff, "Mn"}, {0x1123f, 0x11240, "Lo"},
     {0x11241, 0x11241, "Mn"}, {0x11380, 0x11389, "Lo"}, {0x1138b, 0x1138b, "Lo"},
     {0x1138e, 0x1138e, "Lo"}, {0x11390, 0x113b5, "Lo"}, {0x113b7, 0x113b7, "Lo"},
     {0x113b8, 0x113ba, "Mc"}, {0x113bb, 0x113c0, "Mn"}, {0x113c2, 0x113c2, "Mc"},
     {0x113c5, 0x113c5, "Mc"}, {0x113c7, 0x113ca, "Mc"}, {0x113cc, 0x113cd, "Mc"},
     {0x113ce, 0x113ce, "Mn"}, {0x113cf, 0x113cf, "Mc"}, {0x113d0, 0x113d0, "Mn"},
     {0x113d1, 0x113d1, "Lo"}, {0x113d2, 0x113d2, "Mn"}, {0x113d3, 0x113d3, "Lo"},
     {0x113d4, 0x113d5, "Po"}, {0x113d7, 0x113d8, "Po"}, {0x113e1, 0x113e2, "Mn"},
     {0x116d0, 0x116e3, "Nd"}, {0x11b00, 0x11b09, "Po"}, {0x11bc0, 0x11be0, "Lo"},
     {0x11be1, 0x11be1, "Po"}, {0x11bf0, 0x11bf9, "Nd"}, {0x11f00, 0x11f01, "Mn"},
     {0x11f02, 0x11f02, "Lo"}, {0x11f03, 0x11f03, "Mc"}, {0x11f04, 0x11f10, "Lo"},
     {0x11f12, 0x11f33, "Lo"}, {0x11f34, 0x11f35, "Mc"}, {0x11f36, 0x11f3a, "Mn"},
     {0x11f3e, 0x11f3f, "Mc"}, {0x11f40, 0x11f40, "Mn"}, {0x11f41, 0x11f41, "Mc"},
     {0x11f42, 0x11f42, "Mn"}, {0x11f43, 0x11f4f, "Po"}, {0x11f50, 0x11f59, "Nd"},
     {0x11f5a, 0x11f5a, "Mn"}, {0x1342f, 0x1342f, "Lo"}, {0x13439, 0x1343f, "Cf"},
     {0x13440, 0x13440, "Mn"}, {0x13441, 0x13446, "Lo"}, {0x13447, 0x13455, "Mn"},
     {0x13460, 0x143fa, "Lo"}, {0x16100, 0x1611d, "Lo"}, {0x1611e, 0x16129, "Mn"},
     {0x1612a, 0x1612c, "Mc"}, {0x1612d, 0x1612f, "Mn"}, {0x16130, 0x16139, "Nd"},
     {0x16d40, 0x16d42, "Lm"}, {0x16d43, 0x16d6a, "Lo"}, {0x16d6b, 0x16d6c, "Lm"},
     {0x16d6d, 0x16d6f, "Po"}, {0x16d70, 0x16d79, "Nd"}, {0x18cff, 0x18cff, "Lo"},
     {0x1b132, 0x1b132, "Lo"}, {0x1b155, 0x1b155, "Lo"}, {0x1cc00, 0x1ccef, "So"},
     {0x1ccf0, 0x1ccf9, "Nd"}, {0x1cd00, 0x1ceb3, "So"}, {0x1d2c0, 0x1d2d3, "No"},
     {0x1df25, 0x1df2a, "Ll"}, {0x1e030, 0x1e06d, "Lm"}, {0x1e08f, 0x1e08f, "Mn"},
     {0x1e4d0, 0x1e4ea, "Lo"}, {0x1e4eb, 0x1e4eb, "Lm"}, {0x1e4ec, 0x1e4ef, "Mn"},
     {0x1e4f0, 0x1e4f9, "Nd"}, {0x1e5d0, 0x1e5ed, "Lo"}, {0x1e5ee, 0x1e5ef, "Mn"},
     {0x1e5f0, 0x1e5f0, "Lo"}, {0x1e5f1, 0x1e5fa, "Nd"}, {0x1e5ff, 0x1e5ff, "Po"},
     {0x1f6dc, 0x1f6dc, "So"}, {0x1f774, 0x1f776, "So"}, {0x1f77b, 0x1f77f, "So"},
     {0x1f7d9, 0x1f7d9, "So"}, {0x1f8b2, 0x1f8bb, "So"}, {0x1f8c0, 0x1f8c1, "So"},
     {0x1fa75, 0x1fa77, "So"}, {0x1fa87, 0x1fa89, "So"}, {0x1fa8f, 0x1fa8f, "So"},
     {0x1faad, 0x1faaf, "So"}, {0x1fabb, 0x1fabf, "So"}, {0x1fac6, 0x1fac6, "So"},
     {0x1face, 0x1facf, "So"}, {0x1fada, 0x1fadc, "So"}, {0x1fadf, 0x1fadf, "So"},
     {0x1fae8, 0x1fae9, "So"}, {0x1faf7, 0x1faf8, "So"}, {0x1fbcb, 0x1fbef, "So"},
     {0x2b739, 0x2b739, "Lo"}, {0x2ebf0, 0x2ee5d, "Lo"}, {0x31350, 0x323af, "Lo"}});

// Marks, signs and control characters that are newer than Unicode 8, which BERT's normalizer and
// pre-tokenizer know: for them they have no category.
constexpr std::array kUnknownToBert = std::to_array<Range>(
    {{0x61d, 0x61d},     {0x7fd, 0x7fd},     {0x890, 0x891},     {0x897, 0x89f},
     {0x8ca, 0x8e2},     {0x9fd, 0x9fe},     {0xa76, 0xa76},     {0xafa, 0xaff},
     {0xb55, 0xb55},     {0xc04, 0xc04},     {0xc3c, 0xc3c},     {0xc77, 0xc77},
     {0xc84, 0xc84},     {0xd00, 0xd00},     {0xd3b, 0xd3c},     {0xd81, 0xd81},
     {0xeba, 0xeba},     {0xece, 0xece},     {0x180f, 0x180f},   {0x1885, 0x1886},
     {0x1abf, 0x1ace},   {0x1b4e, 0x1b4f},   {0x1b7d, 0x1b7f},   {0x1df6, 0x1dfb},
     {0x2e43, 0x2e4f},   {0x2e52, 0x2e5d},   {0xa82c, 0xa82c},   {0xa8c5, 0xa8c5},
     {0xa8ff, 0xa8ff},   {0xa9bd, 0xa9bd},   {0x10d24, 0x10d27}, {0x10d69, 0x10d6e},
     {0x10eab, 0x10ead}, {0x10efc, 0x10eff}, {0x10f46, 0x10f50}, {0x10f55, 0x10f59},
     {0x10f82, 0x10f89}, {0x11070, 0x11070}, {0x11073, 0x11074}, {0x110c2, 0x110c2},
     {0x110cd, 0x110cd}, {0x111c9, 0x111c9}, {0x111cf, 0x111cf}, {0x1123e, 0x1123e},
     {0x11241, 0x11241}, {0x1133b, 0x1133b}, {0x113bb, 0x113c0}, {0x113ce, 0x113ce},
     {0x113d0, 0x113d0}, {0x113d2, 0x113d2}, {0x113d4, 0x113d5}, {0x113d7, 0x113d8},
     {0x113e1, 0x113e2}, {0x11438, 0x1143f}, {0x11442, 0x11444}, {0x11446, 0x11446},
     {0x1144b, 0x1144f}, {0x1145a, 0x1145b}, {0x1145d, 0x1145e}, {0x11660, 0x1166c},
     {0x116b9, 0x116b9}, {0x1182f, 0x11837}, {0x11839, 0x1183b}, {0x1193b, 0x1193c},
     {0x1193e, 0x1193e}, {0x11943, 0x11946}, {0x119d4, 0x119d7}, {0x119da, 0x119db},
     {0x119e0, 0x119e0}, {0x119e2, 0x119e2}, {0x11a01, 0x11a0a}, {0x11a33, 0x11a38},
     {0x11a3b, 0x11a47}, {0x11a51, 0x11a56}, {0x11a59, 0x11a5b}, {0x11a8a, 0x11a96},
     {0x11a98, 0x11a9c}, {0x11a9e, 0x11aa2}, {0x11b00, 0x11b09}, {0x11be1, 0x11be1},
     {0x11c30, 0x11c36}, {0x11c38, 0x11c3d}, {0x11c3f, 0x11c3f}, {0x11c41, 0x11c45},
     {0x11c70, 0x11c71}, {0x11c92, 0x11ca7}, {0x11caa, 0x11cb0}, {0x11cb2, 0x11cb3},
     {0x11cb5, 0x11cb6}, {0x11d31, 0x11d36}, {0x11d3a, 0x11d3a}, {0x11d3c, 0x11d3d},
     {0x11d3f, 0x11d45}, {0x11d47, 0x11d47}, {0x11d90, 0x11d91}, {0x11d95, 0x11d95},
     {0x11d97, 0x11d97}, {0x11ef3, 0x11ef4}, {0x11ef7, 0x11ef8}, {0x11f00, 0x11f01},
     {0x11f36, 0x11f3a}, {0x11f40, 0x11f40}, {0x11f42, 0x11f4f}, {0x11f5a, 0x11f5a},
     {0x11fff, 0x11fff}, {0x12ff1, 0x12ff2}, {0x13430, 0x13440}, {0x13447, 0x13455},
     {0x1611e, 0x16129}, {0x1612d, 0x1612f}, {0x16d6d, 0x16d6f}, {0x16e97, 0x16e9a},
     {0x16f4f, 0x16f4f}, {0x16fe2, 0x16fe2}, {0x16fe4, 0x16fe4}, {0x1cf00, 0x1cf2d},
     {0x1cf30, 0x1cf46}, {0x1e000, 0x1e006}, {0x1e008, 0x1e018}, {0x1e01b, 0x1e021},
     {0x1e023, 0x1e024}, {0x1e026, 0x1e02a}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136},
     {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef}, {0x1e5ee, 0x1e5ef},
     {0x1e5ff, 0x1e5ff}, {0x1e944, 0x1e94a}, {0x1e95e, 0x1e95f}});

// Characters that are newer than the normal forms of the tokenizers package (Unicode 10 to 12): for
// them they are no marks and do not decompose.
constexpr std::array kUnknownToNormalForms = std::to_array<Range>(
    {{0x7fd, 0x7fd},     {0x897, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},
     {0xafa, 0xaff},     {0xb55, 0xb55},     {0xc04, 0xc04},     {0xc3c, 0xc3c},
     {0xcf3, 0xcf3},     {0xd00, 0xd00},     {0xd3b, 0xd3c},     {0xd81, 0xd81},
     {0xeba, 0xeba},     {0xece, 0xece},     {0x1715, 0x1715},   {0x180f, 0x180f},
     {0x1abf, 0x1ace},   {0x1cf7, 0x1cf7},   {0x1df6, 0x1dfa},   {0x32ff, 0x32ff},
     {0xa7f2, 0xa7f4},   {0xa82c, 0xa82c},   {0xa8ff, 0xa8ff},   {0xab69, 0xab69},
     {0x10781, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba}, {0x10d24, 0x10d27},
     {0x10d69, 0x10d6d}, {0x10eab, 0x10eac}, {0x10efc, 0x10eff}, {0x10f46, 0x10f50},
     {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x11073, 0x11074}, {0x110c2, 0x110c2},
     {0x11145, 0x11146}, {0x111c9, 0x111c9}, {0x111ce, 0x111cf}, {0x11241, 0x11241},
     {0x1133b, 0x1133b}, {0x113b8, 0x113c0}, {0x113c2, 0x113c2}, {0x113c5, 0x113c5},
     {0x113c7, 0x113ca}, {0x113cc, 0x113d0}, {0x113d2, 0x113d2}, {0x113e1, 0x113e2},
     {0x1145e, 0x1145e}, {0x1182c, 0x1183a}, {0x11930, 0x11935}, {0x11937, 0x11938},
     {0x1193b, 0x1193e}, {0x11940, 0x11940}, {0x11942, 0x11943}, {0x119d1, 0x119d7},
     {0x119da, 0x119e0}, {0x119e4, 0x119e4}, {0x11a01, 0x11a0a}, {0x11a33, 0x11a39},
     {0x11a3b, 0x11a3e}, {0x11a47, 0x11a47}, {0x11a51, 0x11a5b}, {0x11a8a, 0x11a99},
     {0x11d31, 0x11d36}, {0x11d3a, 0x11d3a}, {0x11d3c, 0x11d3d}, {0x11d3f, 0x11d45},
     {0x11d47, 0x11d47}, {0x11d8a, 0x11d8e}, {0x11d90, 0x11d91}, {0x11d93, 0x11d97},
     {0x11ef3, 0x11ef6}, {0x11f00, 0x11f01}, {0x11f03, 0x11f03}, {0x11f34, 0x11f3a},
     {0x11f3e, 0x11f42}, {0x11f5a, 0x11f5a}, {0x13440, 0x13440}, {0x13447, 0x13455},
     {0x1611e, 0x1612f}, {0x16f4f, 0x16f4f}, {0x16f7f, 0x16f87}, {0x16fe4, 0x16fe4},
     {0x16ff0, 0x16ff1}, {0x1cf00, 0x1cf2d}, {0x1cf30, 0x1cf46}, {0x1e030, 0x1e06d},
     {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef},
     {0x1e4ec, 0x1e4ef}, {0x1e5ee, 0x1e5ef}, {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9}});

constexpr std::array<Range, 3> kNewerHan{
    {{0x2b739, 0x2b739}, {0x2ebf0, 0x2ee5d}, {0x31350, 0x323af}}};

// The range that holds the character, or null.
template <typename Ranges>
const typename Ranges::value_type* range_of(const Ranges& ranges, char32_t character) {
  const auto found =
      std::lower_bound(ranges.begin(), ranges.end(), character,
                       [](const auto& range, char32_t value) { return range.last < value; });
  return found != ranges.end() && character >= found->first ? &*found : nullptr;
}

template <typename Ranges>
bool is_in(const Ranges& ranges, char32_t character) {
  return range_of(ranges, character) != nullptr;
}

// Symbols (So) that are alphabetic: letters in circles and squares.
constexpr std::array<Range, 4> kLetterSymbols{
    {{0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}}};
constexpr std::array<Range, 8> kChinese{{{0x3400, 0x4dbf},
                                         {0x4e00, 0x9fff},
                                         {0xf900, 0xfaff},
                                         {0x20000, 0x2a6df},
                                         {0x2a700, 0x2b73f},
                                         {0x2b740, 0x2b81f},
                                         {0x2b920, 0x2ceaf},
                                         {0x2f800, 0x2fa1f}}};

// Two letters, such as "Lu".
std::string_view category_of(char32_t character) {
  const auto code_point = static_cast<utf8proc_int32_t>(character);
  if (utf8proc_category(code_point) == UTF8PROC_CATEGORY_CN) {
    const NewerRange* range = range_of(kNewer, character);
    return range == nullptr ? std::string_view() : range->category;
  }
  return utf8proc_category_string(code_point);
}

utf8proc_option_t options_of(NormalForm form) {
  int options = UTF8PROC_STABLE;
  options |=
      form == NormalForm::kNfc || form == NormalForm::kNfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  options |= form == NormalForm::kNfkc || form == NormalForm::kNfkd ? UTF8PROC_COMPAT : 0;
  return static_cast<utf8proc_option_t>(options);
}

void append_normal_form(std::string& result, std::string_view text, NormalForm form) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &mapped, options_of(form));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (length < 0) {
    throw_environment("utf8proc: {}", utf8proc_errmsg(length));
  }
  result.append(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(length));
}

// Characters that stay as they are and divide the text: those that the reference does not know, and
// one that utf8proc 2.8 takes for a final consonant of Hangul and drops.
bool is_inert(char32_t character) {
  constexpr char32_t kBeforeFinalConsonants = 0x11a7;
  return character == kBeforeFinalConsonants || is_in(kUnknownToNormalForms, character);
}

std::string class_range(char32_t first, char32_t last) {
  return fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", static_cast<std::uint32_t>(first),
                     static_cast<std::uint32_t>(last));
}

}  // namespace

char32_t next_character(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) {
    ++at;
    return first;
  }
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  char32_t character = first & (0x7fU >> length);
  for (std::size_t i = 1; i < length && at + i < text.size(); ++i) {
    character = character << 6 | (byte(at + i) & 0x3fU);
  }
  at += std::min(length, text.size() - at);
  return character;
}

bool is_white_space(char32_t character) {
  return character == ' ' || (character >= 9 && character <= 13) || character == 0x85 ||
         character == 0xa0 || character == 0x1680 || (character >= 0x2000 && character <= 0x200a) ||
         character == 0x2028 || character == 0x2029 || character == 0x202f || character == 0x205f ||
         character == 0x3000;
}

bool is_word_character(char32_t character) {
  const std::string_view category = category_of(character);
  return category.starts_with('L') || category.starts_with('M') || category == "Nd" ||
         category == "Nl" || category == "Pc" || character == 0x200c || character == 0x200d ||
         is_in(kLetterSymbols, character);
}

bool is_numeric(char32_t character) { return category_of(character).starts_with('N'); }

bool is_punctuation(char32_t character) {
  if (character < 0x80) {
    return (character > ' ' && character < '0') || (character > '9' && character < 'A') ||
           (character > 'Z' && character < 'a') || (character > 'z' && character < 0x7f);
  }
  constexpr char32_t kOnceSign = 0x166d, kOnceMark = 0x111c9;  // by Unicode 8
  return character == kOnceSign || character == kOnceMark ||
         (category_of(character).starts_with('P') && !is_in(kUnknownToBert, character));
}

bool is_mark(char32_t character) {
  const bool once = character == 0x1cf2 || character == 0x1cf3;  // by Unicode 11
  return once ||
         (category_of(character).starts_with('M') && !is_in(kUnknownToNormalForms, character));
}

bool is_nonspacing_mark(char32_t character) {
  constexpr char32_t kOnce = 0x1734;  // by Unicode 13
  return character == kOnce ||
         (category_of(character) == "Mn" && !is_in(kUnknownToBert, character));
}

bool is_control_character(char32_t character) {
  if (character == '\t' || character == '\n' || character == '\r') {
    return false;
  }
  const std::string_view category = category_of(character);
  return (category == "Cc" || category == "Cf" || category == "Co") &&
         !is_in(kUnknownToBert, character);
}

bool is_chinese_character(char32_t character) { return is_in(kChinese, character); }

// ASCII is its own normal form and never composes with what precedes it. Only the other parts, each
// with the ASCII character before it, go through the library.
std::string normal_form(const std::string& text, NormalForm form) {
  std::string result;
  result.reserve(text.size() + text.size() / 8);
  std::size_t done = 0;
  while (done < text.size()) {
    std::size_t at = done;
    while (at < text.size() && is_ascii(text[at])) {
      ++at;
    }
    if (at == text.size()) {
      break;
    }
    const std::size_t begin = at > done ? at - 1 : at;
    result.append(text, done, begin - done);
    std::size_t end = at;
    bool inert = false;
    while (at < text.size() && !is_ascii(text[at]) && !inert) {
      end = at;
      inert = is_inert(next_character(text, at));
    }
    end = inert ? end : at;
    append_normal_form(result, std::string_view(text).substr(begin, end - begin), form);
    result.append(text, end, at - end);
    done = at;
  }
  return result.append(text, done);
}

std::string lower_case(const std::string& text) {
  constexpr char32_t kDottedI = 0x130;  // the only one whose lower case is two characters
  std::string lower;
  lower.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    if (is_ascii(text[at])) {
      const char byte = text[at++];
      lower += byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte + 32) : byte;
      continue;
    }
    const char32_t character = next_character(text, at);
    if (character == kDottedI) {
      lower += "i\u0307";
    } else {
      append_utf8(
          lower, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character))));
    }
  }
  return lower;
}

std::size_t first_grapheme(std::string_view text) {
  std::size_t at = 0;
  auto before = static_cast<utf8proc_int32_t>(next_character(text, at));
  for (utf8proc_int32_t state = 0; at < text.size();) {
    std::size_t next = at;
    const auto character = static_cast<utf8proc_int32_t>(next_character(text, next));
    if (utf8proc_grapheme_break_stateful(before, character, &state)) {
      break;
    }
    before = character;
    at = next;
  }
  return at;
}

std::string newer_characters(std::string_view property) {
  std::string ranges;
  for (const auto& [first, last] :
       property == "Han" ? std::span<const Range>(kNewerHan) : std::span<const Range>()) {
    ranges += class_range(first, last);
  }
  for (const auto& [first, last, category] : kNewer) {
    ranges += category.starts_with(property) ? class_range(first, last) : "";
  }
  return ranges;
}

}  // namespace regroup
