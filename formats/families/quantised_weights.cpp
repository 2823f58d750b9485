#include "formats/families/quantised_weights.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/checkpoint/tensor_place.h"

namespace regroup {
namespace {

struct Method {
  std::string_view method;  // quant_method
  std::string_view holds;   // what the files hold instead of weights
};

constexpr auto kMethods = std::to_array<Method>({
    {"gptq", "GPTQ's integers and scales"},
    {"awq", "AWQ's integers and scales"},
    {"bitsandbytes", "bitsandbytes' quantised blocks"},
    {"compressed-tensors", "compressed-tensors' packed weights"},
    {"fp8", "FP8 weights with a scale per block"},
    {"mxfp4", "MXFP4 blocks and scales"},
});

// Ends of names that only such checkpoints have, for those whose config does not say so.
struct Ending {
  std::string_view name, method;
};
constexpr auto kEndings = std::to_array<Ending>({
    {".qweight", "gptq"},
    {".weight_packed", "compressed-tensors"},
    {".weight_scale_inv", "fp8"},
    {".weight.absmax", "bitsandbytes"},
    {".SCB", "bitsandbytes"},
});

const Method* method_called(std::string_view name) {
  const auto found = std::find_if(kMethods.begin(), kMethods.end(),
                                  [&](const Method& each) { return each.method == name; });
  return found == kMethods.end() ? nullptr : &*found;
}

// Older files have a flag per width instead of a name: load_in_4bit, load_in_8bit.
std::string method_in(const ConfigReader& settings) {
  const Json* name = settings.find("quant_method");
  if (name != nullptr && name->is_string()) {
    return name->get<std::string>();
  }
  return settings.find("load_in_4bit") != nullptr || settings.find("load_in_8bit") != nullptr
             ? "bitsandbytes"
             : "";
}

void refuse_settings(const ConfigReader& config, std::string_view key) {
  const Json* found = config.find(key);
  if (found == nullptr) {
    return;
  }
  const std::string name =
      found->is_object() ? method_in(ConfigReader(*found, config.where())) : "";
  const Method* method = method_called(name);
  const std::string said = name.empty() ? "" : fmt::format(" ({})", printable(name));
  throw_bad_input(
      "{}: {}{}: the files hold {}, which cannot be pooled: use the checkpoint that they were made "
      "from",
      config.where(), key, said, method == nullptr ? "quantised weights" : method->holds);
}

void refuse_names(const Checkpoint& checkpoint) {
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    const auto ending = std::find_if(kEndings.begin(), kEndings.end(), [&](const Ending& each) {
      return tensor.name.ends_with(each.name);
    });
    if (ending != kEndings.end()) {
      const Method* method = method_called(ending->method);
      throw_bad_input(
          "{}: the files hold {}, which cannot be pooled: use the checkpoint that they were made "
          "from",
          place_of(checkpoint, tensor), method->holds);
    }
  }
}

}  // namespace

void refuse_quantised(const ConfigReader& config, const Checkpoint& checkpoint) {
  for (const std::string_view key : {"quantization_config", "compression_config"}) {
    refuse_settings(config, key);
    for (const std::string_view part : {"text_config", "llm_config", "language_config"}) {
      const Json* object = config.find(part);
      if (object != nullptr && object->is_object()) {
        refuse_settings(ConfigReader(*object, config.where()), key);
      }
    }
  }
  refuse_names(checkpoint);
}

}  // namespace regroup
