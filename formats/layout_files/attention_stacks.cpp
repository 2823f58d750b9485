#include "formats/layout_files/attention_stacks.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "formats/base/printable.h"
#include "formats/layout_files/layout_values.h"

namespace regroup {
namespace {

// Usual names of modules, by role. "o" may be in a module next to that of q, k and v.
struct Role {
  std::string_view role;
  std::vector<std::string_view> modules;
};
const std::array<Role, 7>& usual_names() {
  static const std::array<Role, 7> kNames{{
      {"q", {"q_proj", "q", "query", "wq", "q_lin", "to_q", "query_proj", "q_linear"}},
      {"k", {"k_proj", "k", "key", "wk", "k_lin", "to_k", "key_proj", "k_linear"}},
      {"v", {"v_proj", "v", "value", "wv", "v_lin", "to_v", "value_proj", "v_linear"}},
      {"qkv",
       {"qkv_proj", "qkv", "Wqkv", "wqkv", "c_attn", "query_key_value", "W_pack", "att_proj",
        "to_qkv", "linear_qkv"}},
      {"o",
       {"o_proj", "out_proj", "o", "dense", "wo", "out", "out_lin", "to_out", "c_proj", "attn_out",
        "output.dense", "linear_proj"}},
      {"q_norm", {"q_norm", "q_layernorm", "query_norm", "query_layernorm", "q_ln"}},
      {"k_norm", {"k_norm", "k_layernorm", "key_norm", "key_layernorm", "k_ln"}},
  }};
  return kNames;
}

// Every name with a number between dots: the same name in each layer.
struct Numbered {
  std::map<std::int64_t, Shape> shapes;  // by layer
};
using NumberedNames = std::map<std::string, Numbered>;  // by the name with the placeholder

// The name with the first number between dots replaced, and the number.
std::optional<std::pair<std::string, std::int64_t>> numbered(const std::string& name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    std::int64_t number = 0;
    const auto [stopped, fault] = std::from_chars(name.data() + begin, name.data() + end, number);
    const bool digits = name[begin] >= '0' && name[begin] <= '9';
    if (fault == std::errc() && digits && stopped == name.data() + end) {
      return std::pair(name.substr(0, begin) + std::string(kLayerPlaceholder) + name.substr(end),
                       number);
    }
    begin = end + 1;
  }
  return std::nullopt;
}

NumberedNames numbered_names(const Checkpoint& checkpoint) {
  NumberedNames found;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (printable(tensor.name, 0) != tensor.name) {
      continue;  // a layout file could not name it
    }
    if (auto name = numbered(tensor.name)) {
      found[std::move(name->first)].shapes.emplace(name->second, tensor.shape);
    }
  }
  return found;
}

// The shape in all layers from 0 on; none if layers are missing or differ.
std::optional<Shape> shape_in_all(const Numbered& tensors) {
  const auto last = static_cast<std::int64_t>(tensors.shapes.size()) - 1;
  const auto& first = *tensors.shapes.begin();
  const bool same = std::all_of(tensors.shapes.begin(), tensors.shapes.end(),
                                [&](const auto& each) { return each.second == first.second; });
  return same && first.first == 0 && tensors.shapes.rbegin()->first == last
             ? std::optional(first.second)
             : std::nullopt;
}

// Fills in one attention's tensors.
class StackFinder {
 public:
  StackFinder(const NumberedNames& names, std::string_view layer, std::string_view module)
      : names_(names) {
    stack_.layer = layer;
    stack_.module = module;
  }

  // Whether it has q, k and v or one tensor of all, and an output projection.
  bool find() {
    const std::string own = stack_.layer + stack_.module;
    for (const Role& role : usual_names()) {
      add(role, own);
    }
    if (!stack_.names.contains("o") && !stack_.module.empty()) {
      const std::string_view module(stack_.module.data(), stack_.module.size() - 1);
      const std::size_t dot = module.rfind('.');
      add(usual_names()[4], dot == std::string_view::npos
                                ? stack_.layer
                                : stack_.layer + std::string(module.substr(0, dot + 1)));
    }
    const bool separate =
        stack_.names.contains("q") && stack_.names.contains("k") && stack_.names.contains("v");
    return separate != stack_.fused() && stack_.names.contains("o") && !differing_;
  }

  AttentionStack take() { return std::move(stack_); }

 private:
  void add(const Role& role, const std::string& beginning) {
    std::size_t count = 0;
    for (const std::string_view module : role.modules) {
      count += add_tensor(role, beginning + std::string(module)) ? 1 : 0;
    }
    if (count > 1) {  // which of them it is cannot be told
      stack_.names.erase(std::string(role.role));
    }
  }

  bool add_tensor(const Role& role, const std::string& name) {
    const auto weight = names_.find(name + ".weight");
    const auto shape = weight == names_.end() ? std::nullopt : shape_in_all(weight->second);
    const bool norm = role.role.ends_with("norm");
    if (!shape || shape->size() != (norm ? 1U : 2U)) {
      return false;
    }
    put(std::string(role.role), weight->first, *shape);
    const std::int64_t layers = std::ssize(weight->second.shapes);
    differing_ = differing_ || (stack_.layers > 0 && stack_.layers != layers);
    stack_.layers = layers;
    const auto bias = names_.find(name + ".bias");
    if (const auto width = bias == names_.end() ? std::nullopt : shape_in_all(bias->second)) {
      put(std::string(role.role) + "_bias", bias->first, *width);
    }
    return true;
  }

  void put(const std::string& role, const std::string& name, const Shape& shape) {
    stack_.names[role] = name;
    stack_.shapes[role] = shape;
  }

  const NumberedNames& names_;
  AttentionStack stack_;
  bool differing_ = false;  // whether its tensors are in different numbers of layers
};

// "…{layer}.a.b.q_proj.weight" -> "…{layer}." and "a.b.".
std::pair<std::string, std::string> modules_of(std::string_view name, std::string_view ending) {
  const std::size_t layer = name.find(kLayerPlaceholder) + kLayerPlaceholder.size() + 1;
  const std::size_t end = name.size() - ending.size();
  return {std::string(name.substr(0, layer)),
          end > layer ? std::string(name.substr(layer, end - layer)) : ""};
}

}  // namespace

std::vector<AttentionStack> find_attention_stacks(const Checkpoint& checkpoint) {
  const NumberedNames names = numbered_names(checkpoint);
  std::vector<AttentionStack> stacks;
  for (const auto& [name, tensors] : names) {
    for (const std::size_t first : {std::size_t{0}, std::size_t{3}}) {  // q and qkv
      for (const std::string_view module : usual_names()[first].modules) {
        const std::string ending = "." + std::string(module) + ".weight";
        if (!name.ends_with(ending) ||
            name.find(kLayerPlaceholder) + kLayerPlaceholder.size() + ending.size() > name.size()) {
          continue;
        }
        const auto [layer, inner] = modules_of(name, ending.substr(1));
        StackFinder finder(names, layer, inner);
        if (finder.find()) {
          stacks.push_back(finder.take());
        }
      }
    }
  }
  return stacks;
}

}  // namespace regroup
