#include "cli/measure/verify_logits.h"

#include <algorithm>

#include "cli/measure/data_origin.h"
#include "cli/shell/devices.h"
#include "cli/shell/progress.h"
#include "cli/shell/standard_streams.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/families/family.h"
#include "formats/model/serving_cost.h"
#include "formats/vocabulary/token_file.h"
#include "uptrain/model/device.h"
#include "uptrain/model/language_model.h"
#include "uptrain/train/text_quality.h"

namespace regroup {
namespace {

WindowSettings settings_of(const LogitsOptions& options, const Model& source, const Model& result) {
  WindowSettings settings;
  settings.context = options.context > 0
                         ? options.context
                         : usual_context(source, usual_context(result, settings.context));
  settings.max_tokens = options.max_tokens;
  return settings;
}

Batches windows_of(const LogitsOptions& options, const Model& source, const Model& result) {
  const WindowSettings settings = settings_of(options, source, result);
  if (options.data.empty()) {
    return random_windows(source.spec.vocab_size, settings);
  }
  const TokenFile data = TokenFile::open(options.data);
  data.check_vocabulary(source.spec.vocab_size);
  return read_windows(data, settings);
}

}  // namespace

void check_logits_options(const LogitsOptions& options, const Model& source, const Model& result) {
  for (const Model* model : {&source, &result}) {
    if (!model->spec.not_computable.empty()) {
      throw_usage("--logits: {} cannot be computed: {}", printable(model->path.string(), 0),
                  printable(model->spec.not_computable));
    }
    check_predicts(*model);
  }
  check_same_vocabulary(source, result);
  parse_device(options.device);
  if (!options.data.empty()) {
    count_windows(TokenFile::open(options.data), settings_of(options, source, result));
  }
}

LogitsResult measure_logits(const LogitsOptions& options, const Model& source, const Model& result,
                            const Console& console) {
  check_data_origin(source, options.data, console);
  set_compute_threads(options.threads);
  check_all_shapes(result.spec, result.checkpoint);
  const std::int64_t context = settings_of(options, source, result).context;
  warn_of_context(source, context, console);
  warn_of_device(parse_device(options.device), console);
  const Batches windows = windows_of(options, source, result);
  Progress progress(console, "logits", steps_to_compare(source, result, windows), "steps");
  PredictionComparison found;
  with_torch_errors([&] {
    found = compare_predictions(
        source, result, windows, parse_device(options.device),
        [&](std::size_t steps) { progress.update(steps); }, interrupt_requested());
  });
  progress.finish();
  return {options.data,
          context,
          found.tokens,
          found.kl,
          found.largest_kl,
          found.mean_difference,
          found.largest_difference,
          found.largest_logit,
          found.agreement};
}

}  // namespace regroup
