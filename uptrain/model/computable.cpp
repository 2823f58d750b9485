#include "uptrain/model/computable.h"

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {

void check_computable(const ModelSpec& spec) {
  if (!spec.not_computable.empty()) {
    throw_bad_input("{}: cannot be computed: {}", printable(spec.architecture),
                    printable(spec.not_computable));
  }
  if (spec.sliding_window && (spec.has_encoder() || spec.positions == PositionKind::kRelativeBias ||
                              (!spec.causal && spec.positions == PositionKind::kAlibi))) {
    throw_bad_input(
        "{}: sliding windows are supported only in models of one stack, without a relative bias, "
        "and "
        "with ALiBi only in causal attention",
        printable(spec.architecture));
  }
  if (spec.attention_softcap &&
      (!spec.causal || spec.has_encoder() || spec.positions == PositionKind::kRelativeBias ||
       spec.positions == PositionKind::kAlibi)) {
    throw_bad_input("{}: soft-capped scores are supported only in causal attention without biases",
                    printable(spec.architecture));
  }
}

void check_length(const ModelSpec& spec, std::int64_t length) {
  if (spec.limited_to_positions && length > spec.max_positions.value()) {
    throw_usage(
        "sequences of {} tokens: {} is computed up to {} tokens only; beyond, its own code changes "
        "its attention",
        length, printable(spec.architecture), *spec.max_positions);
  }
}

void check_takes_parts(const ModelSpec& spec) {
  if (spec.has_encoder() || !spec.causal || spec.positions == PositionKind::kRelativeBias) {
    throw_usage(
        "{}: its sequences cannot be shared out among ranks: that needs a decoder-only model with "
        "causal attention and no relative bias",
        printable(spec.architecture));
  }
}

}  // namespace regroup
