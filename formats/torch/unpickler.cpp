#include "formats/torch/unpickler.h"

#include <algorithm>

#include "formats/base/error.h"

namespace regroup {
namespace {

constexpr std::size_t kMaxSteps = 500'000;  // 15,000 tensors take fewer
constexpr Unpickler::Ref kForgotten = 0xffffffff;
constexpr std::uint64_t kHighestProtocol = 4;

}  // namespace

void Unpickler::reject(std::string_view fault) const {
  throw_bad_input("{}: pickle: {} at byte {}", where_, fault, at_);
}

// --- reading bytes -------------------------------------------------------------------------------

std::uint8_t Unpickler::byte() { return static_cast<std::uint8_t>(text(1).front()); }

std::string_view Unpickler::text(std::uint64_t length) {
  if (length > bytes_.size() - at_) {
    reject("cut off");
  }
  const std::string_view read = bytes_.substr(at_, length);
  at_ += length;
  return read;
}

std::string_view Unpickler::line() {
  const std::size_t end = bytes_.find('\n', at_);
  if (end == std::string_view::npos) {
    reject("cut off");
  }
  const std::string_view read = bytes_.substr(at_, end - at_);
  at_ = end + 1;
  return read;
}

std::uint64_t Unpickler::unsigned_number(std::size_t bytes) {
  std::uint64_t number = 0;
  std::size_t shift = 0;
  for (const char digit : text(bytes)) {
    number |= static_cast<std::uint64_t>(static_cast<unsigned char>(digit)) << shift;
    shift += 8;
  }
  return number;
}

// A number in two's complement, little-endian, of any length up to 8 bytes.
std::int64_t Unpickler::long_number(std::size_t bytes) {
  if (bytes > 8) {
    reject("a number over 64 bits");
  }
  const std::uint64_t number = unsigned_number(bytes);
  const std::size_t unused = 64 - 8 * bytes;
  return bytes == 0 ? 0 : static_cast<std::int64_t>(number << unused) >> unused;
}

// --- stack and memo ------------------------------------------------------------------------------

void Unpickler::spend(std::size_t steps) {
  if (steps > kMaxSteps - steps_) {
    reject(fmt::format("more than {} steps", kMaxSteps));
  }
  steps_ += steps;
}

void Unpickler::push(Value value) {
  values_.push_back(std::move(value));
  push_again(static_cast<Ref>(values_.size() - 1));
}

void Unpickler::push_again(Ref ref) {
  spend(1);
  stack_.push_back(ref);
}

Unpickler::Ref Unpickler::pop() {
  if (stack_.empty() || values_[stack_.back()].kind == Kind::kMark) {
    reject("a value is missing");
  }
  const Ref ref = stack_.back();
  stack_.pop_back();
  return ref;
}

std::vector<Unpickler::Ref> Unpickler::pop_to_mark() {
  const auto mark = std::find_if(stack_.rbegin(), stack_.rend(),
                                 [&](Ref ref) { return values_[ref].kind == Kind::kMark; });
  if (mark == stack_.rend()) {
    reject("a mark is missing");
  }
  std::vector<Ref> items(mark.base(), stack_.end());
  stack_.erase(mark.base() - 1, stack_.end());
  return items;
}

void Unpickler::remember(std::uint64_t slot) {
  const Ref ref = pop();
  stack_.push_back(ref);
  if (slot >= kMaxSteps) {
    reject(fmt::format("a memo slot over {}", kMaxSteps));
  }
  if (slot >= memo_.size()) {
    memo_.resize(slot + 1, kForgotten);
  }
  memo_[slot] = ref;
}

void Unpickler::recall(std::uint64_t slot) {
  if (slot >= memo_.size() || memo_[slot] == kForgotten) {
    reject("an unknown memo slot");
  }
  push_again(memo_[slot]);
}

void Unpickler::push_sequence(std::vector<Ref> items) {
  push({Kind::kSequence, 0, {}, {}, std::move(items)});
}

void Unpickler::extend(Kind kind, const std::vector<Ref>& items) {
  const Ref container = pop();
  stack_.push_back(container);
  if (values_[container].kind != kind || (kind == Kind::kDict && items.size() % 2 != 0)) {
    reject("items added to something that is not such a container");
  }
  std::vector<Ref>& held = values_[container].items;
  held.insert(held.end(), items.begin(), items.end());
}

// --- opcodes -------------------------------------------------------------------------------------

Unpickler::Ref Unpickler::load() {
  while (true) {
    const std::uint8_t opcode = byte();
    if (opcode == '.') {
      return pop();
    }
    if (!run_constant(opcode) && !run_container(opcode) && !run_memo(opcode) &&
        !run_object(opcode)) {
      --at_;
      reject(fmt::format("opcode 0x{:02x} is not among those allowed", opcode));
    }
  }
}

bool Unpickler::run_constant(std::uint8_t opcode) {
  const auto integer = [&](std::int64_t number) { push({Kind::kInteger, number, {}, {}, {}}); };
  const auto string = [&](std::string_view read) { push({Kind::kText, 0, read, {}, {}}); };
  switch (opcode) {
    case 'N': push({}); return true;                                                // NONE
    case 0x88: push({Kind::kBool, 1, {}, {}, {}}); return true;                     // NEWTRUE
    case 0x89: push({Kind::kBool, 0, {}, {}, {}}); return true;                     // NEWFALSE
    case 'K': integer(byte()); return true;                                         // BININT1
    case 'M': integer(static_cast<std::int64_t>(unsigned_number(2))); return true;  // BININT2
    case 'J': integer(long_number(4)); return true;                                 // BININT
    case 0x8a: integer(long_number(byte())); return true;                           // LONG1
    case 'G':
      text(8);
      push({Kind::kReal, 0, {}, {}, {}});
      return true;                                            // BINFLOAT
    case 'X': string(text(unsigned_number(4))); return true;  // BINUNICODE
    case 0x8c: string(text(byte())); return true;             // SHORT_BINUNICODE
    case 'U': string(text(byte())); return true;              // SHORT_BINSTRING
    default: return false;
  }
}

bool Unpickler::run_container(std::uint8_t opcode) {
  switch (opcode) {
    case '(': push({Kind::kMark, 0, {}, {}, {}}); return true;  // MARK
    case ')':
    case ']': push_sequence({}); return true;                   // EMPTY_TUPLE, EMPTY_LIST
    case '}': push({Kind::kDict, 0, {}, {}, {}}); return true;  // EMPTY_DICT
    case 't':
    case 'l': push_sequence(pop_to_mark()); return true;  // TUPLE, LIST
    case 0x85:
    case 0x86:
    case 0x87: {  // TUPLE1, TUPLE2, TUPLE3
      std::vector<Ref> items(static_cast<std::size_t>(opcode - 0x84));
      std::generate(items.rbegin(), items.rend(), [&] { return pop(); });
      push_sequence(std::move(items));
      return true;
    }
    case 'a': extend(Kind::kSequence, {pop()}); return true;        // APPEND
    case 'e': extend(Kind::kSequence, pop_to_mark()); return true;  // APPENDS
    case 's': {                                                     // SETITEM
      const Ref item = pop();
      extend(Kind::kDict, {pop(), item});
      return true;
    }
    case 'u': extend(Kind::kDict, pop_to_mark()); return true;  // SETITEMS
    default: return false;
  }
}

bool Unpickler::run_memo(std::uint8_t opcode) {
  switch (opcode) {
    case 'q': remember(byte()); return true;              // BINPUT
    case 'r': remember(unsigned_number(4)); return true;  // LONG_BINPUT
    case 0x94: remember(memo_.size()); return true;       // MEMOIZE
    case 'h': recall(byte()); return true;                // BINGET
    case 'j': recall(unsigned_number(4)); return true;    // LONG_BINGET
    default: return false;
  }
}

bool Unpickler::run_object(std::uint8_t opcode) {
  switch (opcode) {
    case 0x80:  // PROTO
      if (byte() > kHighestProtocol) {
        reject("an unknown protocol");
      }
      return true;
    case 0x95: text(8); return true;  // FRAME
    case 'c': {                       // GLOBAL
      const std::string_view module = line();
      push_global(module, line());
      return true;
    }
    case 0x93: {  // STACK_GLOBAL
      const Ref name = pop();
      const Ref module = pop();
      if (values_[module].kind != Kind::kText || values_[name].kind != Kind::kText) {
        reject("a global whose name is not a string");
      }
      push_global(values_[module].text, values_[name].text);
      return true;
    }
    case 'R': reduce(); return true;        // REDUCE
    case 'b': pop(); return true;           // BUILD: its attributes are not needed
    case 'Q': make_storage(); return true;  // BINPERSID
    default: return false;
  }
}

}  // namespace regroup
