#include "formats/torch/pickled_state_dict.h"

#include <unordered_set>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

constexpr std::size_t kMaxPickledTensors =
    50'000;  // a limit, since many tensors may share one storage

}  // namespace

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
    if ((key == "state_dict" || key == "model") && inner.kind == Unpickler::Kind::kDict) {
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
