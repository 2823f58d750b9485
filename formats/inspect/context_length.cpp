#include "formats/inspect/context_length.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "formats/base/printable.h"

namespace regroup {
namespace {

std::optional<std::int64_t> declared_positions(const Model& model) {
  const bool scales = model.spec.positions == PositionKind::kRope &&
                      model.spec.rope.scaling.kind == RopeScaling::Kind::kDynamic;
  return scales ? std::nullopt : model.spec.max_positions;
}

std::optional<std::int64_t> uptrained_length(const Model& model) {
  const ConversionRecord record = record_of(model);
  const Json& length = member_of(record.at(kTrainingKey), "sequence_length");
  return length.is_number_integer() && length > 0 ? std::optional(length.get<std::int64_t>())
                                                  : std::nullopt;
}

}  // namespace

std::int64_t usual_context(const Model& model, std::int64_t wanted) {
  return std::min({wanted, declared_positions(model).value_or(wanted),
                   uptrained_length(model).value_or(wanted)});
}

std::string warning_of_positions(const Model& model, std::int64_t length) {
  const auto declared = declared_positions(model);
  return declared && length > *declared
             ? fmt::format("{}: windows of {} tokens, the config declares {} positions",
                           printable(model.path.string(), 0), length, *declared)
             : "";
}

std::string warning_of_context(const Model& model, std::int64_t length) {
  const auto trained = uptrained_length(model);
  if (std::string warning = warning_of_positions(model, length); !warning.empty()) {
    return warning;
  }
  return trained && length > *trained
             ? fmt::format("{}: windows of {} tokens, the model was uptrained on sequences of {}",
                           printable(model.path.string(), 0), length, *trained)
             : "";
}

}  // namespace regroup
