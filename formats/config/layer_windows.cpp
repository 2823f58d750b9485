#include "formats/config/layer_windows.h"

#include <algorithm>

#include "formats/base/error.h"

namespace regroup {

std::optional<std::vector<bool>> listed_windows(const ConfigReader& config, std::size_t layers) {
  const Json* types = config.find("layer_types");
  if (types == nullptr) {
    return std::nullopt;
  }
  const auto known = [](const Json& type) {
    return type == "sliding_attention" || type == "full_attention";
  };
  if (!types->is_array() || types->size() != layers ||
      !std::all_of(types->begin(), types->end(), known)) {
    throw_bad_input(
        "{}: layer_types must list full_attention or sliding_attention for each of the {} layers",
        config.where(), layers);
  }
  std::vector<bool> slides;
  for (const Json& type : *types) {
    slides.push_back(type == "sliding_attention");
  }
  return slides;
}

void set_windows(ModelSpec& spec, const std::vector<bool>& slides, std::int64_t width) {
  if (std::find(slides.begin(), slides.end(), true) == slides.end()) {
    return;
  }
  spec.sliding_window = width;
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i].without_window = !slides[i];
  }
}

void read_layer_windows(ModelSpec& spec, const ConfigReader& config, std::int64_t pattern) {
  constexpr std::int64_t kWidthUnlessGiven = 4096;
  std::vector<bool> slides(spec.layers.size());
  for (std::size_t i = 0; i < slides.size(); ++i) {
    slides[i] = (static_cast<std::int64_t>(i) + 1) % pattern != 0;
  }
  slides = listed_windows(config, slides.size()).value_or(slides);
  const bool any = std::find(slides.begin(), slides.end(), true) != slides.end();
  if (any && config.mentions("sliding_window") && config.find("sliding_window") == nullptr) {
    throw_bad_input("{}: sliding_window is null, but layers slide: a number is needed",
                    config.where());
  }
  set_windows(spec, slides, config.optional_count({"sliding_window"}).value_or(kWidthUnlessGiven));
}

}  // namespace regroup
