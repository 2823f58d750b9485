// Implements the globals that a pickle may name: those of a state dict.
#include <algorithm>
#include <array>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/torch/unpickler.h"

namespace regroup {
namespace {

constexpr std::size_t kMaxDimensions = 64;  // torch's own limit
constexpr std::size_t kMaxStorageKey = 255;
constexpr std::string_view kUntyped = "UntypedStorage";

// Names of torch.dtype objects, used for element types without a storage class.
bool is_dtype_name(std::string_view name) {
  constexpr std::array<std::string_view, 4> kPrefixes{"float8_", "float4_", "uint", "bits"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
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
  return module == "torch" && (name.ends_with("Storage") || is_dtype_name(name));
}

}  // namespace

void Unpickler::push_global(std::string_view module, std::string_view name) {
  if (!is_allowed(module, name)) {
    reject(fmt::format("the global {}.{} is not among those allowed (tensors need no other)",
                       printable(module, 80), printable(name, 80)));
  }
  push({Kind::kGlobal, 0, module, name, {}});
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
    push({Kind::kDict, 0, {}, {}, {}});
  } else if (name == "_rebuild_tensor_v2") {
    make_tensor(given, /*names_dtype=*/false);
  } else if (name == "_rebuild_tensor_v3") {
    make_tensor(given, /*names_dtype=*/true);
  } else if (name == "_rebuild_parameter" && !given.empty() &&
             values_[given.front()].kind == Kind::kTensor) {
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
  push({Kind::kStorage, static_cast<std::int64_t>(tensors_.size() - 1), {}, {}, {}});
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
  push({Kind::kTensor, static_cast<std::int64_t>(tensors_.size() - 1), {}, {}, {}});
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

}  // namespace regroup
