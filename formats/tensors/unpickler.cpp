#include "formats/tensors/unpickler.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"

namespace regroup {

namespace {

constexpr std::size_t kMaxSteps = 500'000;  // 15,000 tensors take fewer
constexpr Unpickler::Ref kForgotten = 0xffffffff;
constexpr std::uint64_t kHighestProtocol = 4;
constexpr std::size_t kMaxPickledTensors = 50'000;  // many may share one storage

constexpr std::size_t kMaxDimensions = 64;  // torch's own limit
constexpr std::size_t kMaxStorageKey = 255;
constexpr std::string_view kUntyped = "UntypedStorage";
constexpr std::string_view kSize = "Size";  // of a shape: a tuple

// Names of torch.dtype objects, used for element types without a storage class.
bool is_dtype_name(std::string_view name) {
  constexpr std::array<std::string_view, 4> kPrefixes{"float8_", "float4_", "uint", "bits"};
  return std::ranges::any_of(kPrefixes,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// Allows everything that a state dict needs, and nothing with side effects.
bool is_allowed(std::string_view module, std::string_view name) {
  if (module == "collections") {
    return name == "OrderedDict";
  }
  if (module == "torch._utils") {
    return name == "_rebuild_tensor_v2" || name == "_rebuild_tensor_v3" ||
           name == "_rebuild_parameter";
  }
  if (module == "torch.storage") {
    return name == kUntyped;
  }
  return module == "torch" && (name.ends_with("Storage") || name == kSize || is_dtype_name(name));
}

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
  append(held, items);
}

// --- opcodes -------------------------------------------------------------------------------------

Unpickler::Ref Unpickler::load() {
  steps_ = 0;
  values_.clear();
  tensors_.clear();
  stack_.clear();
  memo_.clear();
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
  const auto integer = [&](std::int64_t number) { push({Kind::kInteger, number}); };
  const auto string = [&](std::string_view read) { push({Kind::kText, 0, read}); };
  switch (opcode) {
    case 'N': push({}); return true;                                                // NONE
    case 0x88: push({Kind::kBool, 1}); return true;                                 // NEWTRUE
    case 0x89: push({Kind::kBool, 0}); return true;                                 // NEWFALSE
    case 'K': integer(byte()); return true;                                         // BININT1
    case 'M': integer(static_cast<std::int64_t>(unsigned_number(2))); return true;  // BININT2
    case 'J': integer(long_number(4)); return true;                                 // BININT
    case 0x8a: integer(long_number(byte())); return true;                           // LONG1
    case 'G':
      text(8);
      push({Kind::kReal});
      return true;                                            // BINFLOAT
    case 'X': string(text(unsigned_number(4))); return true;  // BINUNICODE
    case 0x8c: string(text(byte())); return true;             // SHORT_BINUNICODE
    case 'U': string(text(byte())); return true;              // SHORT_BINSTRING
    default: return false;
  }
}

bool Unpickler::run_container(std::uint8_t opcode) {
  switch (opcode) {
    case '(': push({Kind::kMark}); return true;  // MARK
    case ')':
    case ']': push_sequence({}); return true;    // EMPTY_TUPLE, EMPTY_LIST
    case '}': push({Kind::kDict}); return true;  // EMPTY_DICT
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

// Implements the globals that a pickle may name: those of a state dict.

void Unpickler::push_global(std::string_view module, std::string_view name) {
  if (!is_allowed(module, name)) {
    reject(fmt::format("the global {}.{} is not among those allowed (tensors need no other)",
                       printable(module, 80), printable(name, 80)));
  }
  push({Kind::kGlobal, 0, module, name});
}

// Calls one of the allowed globals.
void Unpickler::reduce() {
  const Ref arguments = pop();
  const Ref callable = pop();
  if (values_[callable].kind != Kind::kGlobal || values_[arguments].kind != Kind::kSequence) {
    reject("a call of something that is not a function");
  }
  const std::string_view name = values_[callable].name;
  const std::vector<Ref>& given = values_[arguments].items;
  if (name == "OrderedDict" && given.empty()) {
    push({Kind::kDict});
  } else if (name == "_rebuild_tensor_v2") {
    make_tensor(given, /*names_dtype=*/false);
  } else if (name == "_rebuild_tensor_v3") {
    make_tensor(given, /*names_dtype=*/true);
  } else if (name == "_rebuild_parameter" && !given.empty() &&
             values_[given.front()].kind == Kind::kTensor) {
    push_again(given.front());
  } else if (name == kSize && given.size() == 1 && values_[given.front()].kind == Kind::kSequence) {
    push_again(given.front());
  } else {
    reject(fmt::format("{} is called with invalid arguments", printable(name, 80)));
  }
}

// A persistent id is ("storage", class, key, device, elements). Old files have a sixth item for
// storages that are part of another one; it is None in all known weight files.
void Unpickler::make_storage() {
  const Value& sequence = values_[pop()];
  const std::vector<Ref>& id = sequence.items;
  if (sequence.kind != Kind::kSequence || id.size() < 5 || values_[id[0]].kind != Kind::kText ||
      values_[id[0]].text != "storage" || values_[id[1]].kind != Kind::kGlobal ||
      values_[id[2]].kind != Kind::kText || values_[id[2]].text.size() > kMaxStorageKey) {
    reject("a persistent id that does not name a storage");
  }
  if (id.size() > 5 && values_[id[5]].kind != Kind::kNone) {
    reject("a storage that is part of another one");
  }
  PickledTensor storage;
  storage.storage_type = values_[id[1]].name;
  storage.storage_key = values_[id[2]].text;
  storage.storage_elements = integer(id[4], "number of elements");
  tensors_.push_back(std::move(storage));
  push({Kind::kStorage, static_cast<std::int64_t>(tensors_.size() - 1)});
}

// _rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks); v3 also has a dtype.
void Unpickler::make_tensor(const std::vector<Ref>& arguments, bool names_dtype) {
  if (arguments.size() < 4 || values_[arguments[0]].kind != Kind::kStorage) {
    reject("a tensor without a storage");
  }
  PickledTensor tensor = this->tensor(values_[arguments[0]]);
  if (names_dtype) {
    if (arguments.size() < 7 || values_[arguments[6]].kind != Kind::kGlobal ||
        !is_dtype_name(values_[arguments[6]].name) || tensor.storage_type != kUntyped) {
      reject("a tensor without a dtype");
    }
    tensor.dtype = values_[arguments[6]].name;
  }
  tensor.offset = integer(arguments[1], "offset");
  tensor.shape = integers(arguments[2], "shape");
  tensor.strides = integers(arguments[3], "strides");
  if (tensor.shape.size() != tensor.strides.size()) {
    reject("a tensor whose shape and strides differ in length");
  }
  tensors_.push_back(std::move(tensor));
  push({Kind::kTensor, static_cast<std::int64_t>(tensors_.size() - 1)});
}

std::int64_t Unpickler::integer(Ref ref, std::string_view what) const {
  if (values_[ref].kind != Kind::kInteger || values_[ref].number < 0) {
    reject(fmt::format("{} that is not an integer", what));
  }
  return values_[ref].number;
}

std::vector<std::int64_t> Unpickler::integers(Ref ref, std::string_view what) {
  const Value& sequence = values_[ref];
  if (sequence.kind != Kind::kSequence || sequence.items.size() > kMaxDimensions) {
    reject(fmt::format("{} that is not a list of at most {} numbers", what, kMaxDimensions));
  }
  spend(sequence.items.size());
  std::vector<std::int64_t> numbers;
  numbers.reserve(sequence.items.size());
  for (const Ref item : sequence.items) {
    numbers.push_back(integer(item, what));
  }
  return numbers;
}

NamedPickledTensors read_state_dict(std::string_view pickle, std::string_view where) {
  Unpickler unpickler(pickle, where);
  const Unpickler::Ref root = unpickler.load();
  return tensors_of(unpickler, unpickler.value(root), where);
}

NamedPickledTensors tensors_of(const Unpickler& unpickler, const Unpickler::Value& root,
                               std::string_view where) {
  const Unpickler::Value* dict = &root;
  for (std::size_t i = 0; dict->kind == Unpickler::Kind::kDict && i < dict->items.size(); i += 2) {
    const std::string_view key = unpickler.value(dict->items[i]).text;
    const Unpickler::Value& inner = unpickler.value(dict->items[i + 1]);
    const bool named =
        key == "state_dict" || key == "model" || key == "module" || key == "model_state_dict";
    if (named && inner.kind == Unpickler::Kind::kDict) {
      dict = &inner;
      break;
    }
  }
  NamedPickledTensors tensors;
  std::unordered_set<std::string_view> names;
  for (std::size_t i = 0; dict->kind == Unpickler::Kind::kDict && i < dict->items.size(); i += 2) {
    const Unpickler::Value& key = unpickler.value(dict->items[i]);
    const Unpickler::Value& item = unpickler.value(dict->items[i + 1]);
    if (key.kind == Unpickler::Kind::kText && item.kind == Unpickler::Kind::kTensor) {
      if (!names.insert(key.text).second) {
        throw_bad_input("{}: pickle: tensor {} appears twice", where, printable(key.text));
      }
      if (tensors.size() == kMaxPickledTensors) {
        throw_bad_input("{}: pickle: more than {} tensors", where, kMaxPickledTensors);
      }
      tensors.emplace_back(key.text, unpickler.tensor(item));
    }
  }
  if (tensors.empty()) {
    throw_bad_input("{}: pickle: it holds no dict of tensors", where);
  }
  return tensors;
}

}  // namespace regroup
