// What a conversion writes: the architecture, its config and its spec.
#pragma once

#include <string>
#include <vector>

#include "formats/model.h"
#include "formats/model_spec.h"

namespace regroup {

struct Target {
  ModelSpec spec;
  std::string config_text;  ///< of the architecture, before provenance is added
  std::vector<std::string> notes;
};

/// The source's own architecture with the heads of `grouped`.
Target same_target(const Model& source, const ModelSpec& grouped);

/// The same with each kv head stored `stored` / G times; every role of `grouped` that is not stored
/// as such already. Throws kUsage where a layer's heads do not divide `stored`, or where `stored`
/// does not divide the query heads.
Target expanded_target(const Model& source, const ModelSpec& grouped, std::int64_t stored);

/// An architecture, by name or model_type, that computes exactly what `grouped` describes. Throws
/// kUsage listing what stands in the way.
Target named_target(const Model& source, const ModelSpec& grouped, const std::string& name);

/// The source's own architecture where its stock loaders take these heads, else the first other one
/// that computes the same and whose loaders do. Throws kUsage listing why there is none.
Target automatic_target(const Model& source, const ModelSpec& grouped);

/// Whether the stock loaders of spec's architecture read its kv heads.
bool loaders_take_heads(const ModelSpec& spec);

}  // namespace regroup
