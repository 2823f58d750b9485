#include "converter/target/loader_gate.h"

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/families/family.h"
#include "formats/loaders/loader_agreement.h"

namespace regroup {

void use_own_names(Target& target) {
  target.config_text = with_alibi_names(target.config_text);
  target.spec.loaders_read_kv_heads = false;
  target.spec.multi_query_key.clear();
}

void keep_from_stock_loaders(Target& target, Container container, std::string_view asked) {
  if (derived_otherwise(target.spec).empty()) {
    return;
  }
  const bool named_already = !is_single_file(container) &&
                             has_alibi_names(parse_json_object(target.config_text, "config.json"));
  if (!target.spec.whole_model.empty()) {
    throw_usage(
        "{}: its heads would move with their ALiBi slopes, which its loaders compute from the "
        "index of a head: use --grouping contiguous",
        printable(target.spec.architecture));
  }
  const bool loads = asked == "expanded" || is_single_file(container) ||
                     (!named_already && loaders_take_heads(target.spec));
  if (loads) {
    throw_usage(
        "{}: its heads have moved, and its loaders would compute ALiBi's slopes from the index of "
        "a head: convert the original model with --grouping contiguous, or keep the grouped "
        "result, which regroup runs",
        printable(target.spec.architecture));
  }
  use_own_names(target);
  const bool runs = target.spec.not_computable.empty();
  target.notes.push_back(
      fmt::format("heads have moved with their ALiBi slopes, which stock loaders compute from the "
                  "index of a head: the model_type is one that they refuse{}",
                  runs ? "; regroup runs and uptrains the result" : ""));
}

}  // namespace regroup
