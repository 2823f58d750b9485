// A whole conversion in one call: plan, then execute.
#pragma once

#include <atomic>
#include <filesystem>

#include "converter/convert/execute_plan.h"
#include "formats/model/model.h"

namespace regroup {

inline void convert(const std::filesystem::path& source, const std::filesystem::path& destination,
                    const ConversionRequest& request) {
  const Model model = open_model(source);
  const std::atomic<bool> stop{false};
  execute_conversion(plan_conversion(model, request), model, destination, {}, stop);
}

}  // namespace regroup
