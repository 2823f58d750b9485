#include "formats/layout_files/layout_guess.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/config/config_reader.h"
#include "formats/families/family.h"
#include "formats/families/quantised_weights.h"
#include "formats/families/unknown_architecture.h"
#include "formats/layout_files/attention_stacks.h"
#include "formats/layout_files/layout_file.h"

namespace regroup {
namespace {

using Names = std::vector<std::string_view>;

// Usual names of config keys.
const Names kLayerKeys{"num_hidden_layers", "n_layers", "n_layer", "num_layers", "depth"};
const Names kHiddenKeys{"hidden_size", "d_model", "n_embd", "dim", "model_dim", "n_embed"};
const Names kHeadKeys{"num_attention_heads", "n_heads", "n_head", "num_heads", "heads"};
const Names kHeadDimKeys{"head_dim", "head_size", "kv_channels", "d_kv", "attention_head_dim"};
const Names kKvHeadKeys{"num_key_value_heads", "num_kv_heads", "n_kv_heads",      "n_head_kv",
                        "kv_n_heads",          "kv_heads",     "num_query_groups"};

struct Found {
  std::string path;  // with dots
  std::int64_t value = 0;
};

bool holds(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    return text.find(word) != std::string_view::npos;
  });
}

bool is_of_other_input(std::string_view name) {
  return holds(name, {"vision", "visual", "image", "audio", "video", "speech"});
}

// The first of `keys` with a positive number: in the object of a language model, else at the top,
// else in any object that is not about other inputs.
std::optional<Found> find_number(const Json& config, const Names& keys,
                                 const std::string& path = "") {
  for (const char* part : {"text_config", "llm_config", "language_config"}) {
    const auto object = config.find(part);
    if (path.empty() && object != config.end() && object->is_object()) {
      if (auto found = find_number(*object, keys, std::string(part) + ".")) {
        return found;
      }
    }
  }
  for (const std::string_view key : keys) {
    const auto found = config.find(key);
    const bool usable =
        found != config.end() && found->is_number_integer() && *found > 0 && *found <= (1 << 24);
    if (usable) {
      return Found{path + std::string(key), found->get<std::int64_t>()};
    }
  }
  for (const auto& [key, object] : config.items()) {
    if (object.is_object() && path.empty() && !is_of_other_input(key)) {
      if (auto found = find_number(object, keys, key + ".")) {
        return found;
      }
    }
  }
  return std::nullopt;
}

class LayoutGuess {
 public:
  LayoutGuess(const Json& config, AttentionStack stack, std::string_view where)
      : config_(config), stack_(std::move(stack)), where_(where) {}

  Json make() {
    put_layers();
    put_sizes();
    put_kv_heads();
    put_names();
    put_alibi();
    layout_["comments"] = comments_;
    return layout_;
  }

  void note(const std::string& key, const std::string& comment) { comments_[key] = comment; }

 private:
  void put(const std::string& key, const Json& value, const std::string& comment) {
    layout_[key] = value;
    note(key, comment);
  }

  void put_layers() {
    const auto key = find_number(config_, kLayerKeys);
    const bool agrees = key && key->value == stack_.layers;
    put("layers", agrees ? Json(key->path) : Json(stack_.layers),
        agrees ? "certain: the tensors are in as many layers"
               : "certain: counted by the names of the tensors");
  }

  // The output projection is [D, H·d], or [H·d, D] if weights are input-major.
  void put_sizes();
  void put_direction(const Shape& out);
  void put_head_dim();
  void put_kv_heads();
  void put_names();
  void put_alibi();

  // Features of a projection, by its weight.
  std::int64_t features(const std::string& role) const {
    return stack_.shapes.at(role)[input_major_ ? 1 : 0];
  }

  const Json& config_;
  AttentionStack stack_;
  std::string where_;
  Json layout_ = Json::object(), comments_ = Json::object();
  std::int64_t hidden_ = 0, heads_ = 0, inner_ = 0, head_dim_ = 0;  // D, H, H·d, d
  bool input_major_ = false;
};

void LayoutGuess::put_sizes() {
  const Shape& out = stack_.shapes.at("o");
  const auto hidden = find_number(config_, kHiddenKeys);
  if (!hidden || std::find(out.begin(), out.end(), hidden->value) == out.end()) {
    throw_bad_input("{}: no key for the hidden size that fits {}, which is {}", where_,
                    stack_.names.at("o"), text_of(out));
  }
  hidden_ = hidden->value;
  put("hidden_size", hidden->path, "certain: a dimension of the output projection");
  put_direction(out);
  inner_ = out[input_major_ ? 0 : 1];
  const auto heads = find_number(config_, kHeadKeys);
  if (!heads || inner_ % heads->value != 0) {
    throw_bad_input(
        "{}: no key for the number of query heads that divides {}, which no tensor tells", where_,
        inner_);
  }
  heads_ = heads->value;
  put("query_heads", heads->path, "by its usual name; it divides the output projection's input");
  put_head_dim();
}

void LayoutGuess::put_direction(const Shape& out) {
  const Shape& first = stack_.shapes.at(stack_.fused() ? "qkv" : "k");
  if (out[0] != out[1]) {
    input_major_ = out[0] != hidden_;
  } else if (first[0] != first[1]) {
    input_major_ = first[0] == hidden_;
  } else {
    note("input_major", "guess: weights are [out, in], as torch's Linear; all are square");
    return;
  }
  put("input_major", input_major_, "certain: by the shapes of the weights");
}

void LayoutGuess::put_head_dim() {
  head_dim_ = inner_ / heads_;
  const auto key = find_number(config_, kHeadDimKeys);
  if (key && key->value == head_dim_) {
    put("head_dim", key->path, "certain, if query_heads is: the shapes agree");
  } else if (heads_ * head_dim_ != hidden_) {
    put("head_dim", head_dim_, "certain, if query_heads is: by the shape of the output projection");
  }
}

void LayoutGuess::put_kv_heads() {
  const std::int64_t wide = stack_.fused() ? features("qkv") - inner_ : 2 * features("k");
  const std::int64_t groups = wide / (2 * head_dim_);
  const bool whole = groups > 0 && groups * 2 * head_dim_ == wide && heads_ % groups == 0;
  if (!whole || (!stack_.fused() && features("q") != inner_)) {
    throw_bad_input("{}: {} query heads of {} numbers do not fit the shapes of {}", where_, heads_,
                    head_dim_, stack_.names.at(stack_.fused() ? "qkv" : "k"));
  }
  const auto key = find_number(config_, kKvHeadKeys);
  if (key && key->value == groups) {
    put("kv_heads_key", key->path, "certain: the shapes hold as many kv heads");
    return;
  }
  if (key) {
    throw_bad_input("{}: {} is {}, the shapes hold {} kv heads", where_, key->path, key->value,
                    groups);
  }
  if (groups != heads_) {
    put("kv_heads", groups, "certain, if query_heads is: by the shapes");
  }
  put("kv_heads_key", "num_key_value_heads",
      "guess: the config has no such key; name the one that your loader reads");
}

void LayoutGuess::put_names() {
  if (stack_.fused()) {
    const std::int64_t groups = (features("qkv") - inner_) / (2 * head_dim_);
    put("packing", groups == 1 ? "query_key_value" : std::string(kToBeChosen),
        groups == 1
            ? "certain: with one kv head, both packings are the same"
            : "choose query_key_value (all queries, all keys, all values) or per_group (the "
              "queries of one kv head, its key, its value, the next): the shapes do not tell");
  }
  for (const auto& [role, name] : stack_.names) {
    put(role, name,
        role.ends_with("norm") ? "by its usual name" : "by its usual name; its shape fits");
  }
}

void LayoutGuess::put_alibi() {
  const Json* flag = nullptr;
  for (const char* key : {"alibi", "use_alibi"}) {
    const auto found = config_.find(key);
    flag = found != config_.end() && *found == true ? &*found : flag;
  }
  if (flag != nullptr) {
    put("alibi", Json::object(),
        "guess: the config has such a flag; the slopes are the usual ones");
  }
}

// The only attention of text; throws if there is none or several.
AttentionStack only_stack(const Checkpoint& checkpoint, std::string_view where, bool& passed_over) {
  std::vector<AttentionStack> stacks = find_attention_stacks(checkpoint);
  const std::size_t all = stacks.size();
  if (all > 1) {
    std::erase_if(stacks,
                  [](const AttentionStack& stack) { return is_of_other_input(stack.layer); });
  }
  passed_over = stacks.size() < all;
  if (stacks.empty()) {
    throw_bad_input(
        "{}: no tensors named and shaped as projections of queries, keys, values and outputs are "
        "in every layer: write a layout file by hand, see docs/layout.md",
        where);
  }
  if (stacks.size() > 1) {
    throw_bad_input("{}: several attentions, {}{} and {}{}: a layout file describes one", where,
                    stacks[0].layer, stacks[0].module, stacks[1].layer, stacks[1].module);
  }
  return std::move(stacks.front());
}

void refuse_known(const Json& json, const Checkpoint& checkpoint, std::string_view where) {
  const ConfigReader config(json, where);
  refuse_quantised(config, checkpoint);
  const Json* list = config.find("architectures");
  const bool named =
      list != nullptr && list->is_array() && !list->empty() && (*list)[0].is_string();
  const std::string architecture = named ? (*list)[0].get<std::string>() : "";
  const std::string_view reason =
      reason_against_grouping(config, config.text_or({"model_type"}, ""), architecture);
  if (!reason.empty()) {
    throw_bad_input("{}: cannot be grouped: {}", where, reason);
  }
  try {
    describe_model(json, checkpoint, where);
  } catch (const Error&) {
    return;  // a layout file may help
  }
  throw_usage("{}: a known architecture, which needs no layout file", where);
}

// Whether the layout fits the checkpoint, whatever is chosen.
void check_fits(Json layout, const Json& config, const Checkpoint& checkpoint,
                std::string_view where) {
  if (layout.value("packing", "") == kToBeChosen) {
    layout["packing"] = "query_key_value";
  }
  check_attention_shapes(describe_with_layout(config, checkpoint, layout, where), checkpoint);
}

}  // namespace

Json guess_layout(const Json& config, const Checkpoint& checkpoint, std::string_view where) {
  refuse_known(config, checkpoint, where);
  bool passed_over = false;
  LayoutGuess guess(config, only_stack(checkpoint, where, passed_over), where);
  if (passed_over) {
    guess.note("stack", "guess: attentions of images or sound, by their names, are left out");
  }
  Json layout = guess.make();
  check_fits(layout, config, checkpoint, where);
  return layout;
}

}  // namespace regroup
