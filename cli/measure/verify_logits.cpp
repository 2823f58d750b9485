#include "cli/measure/verify_logits.h"

#include <algorithm>

#include "cli/measure/context_warning.h"
#include "cli/process/interrupt.h"
#include "cli/process/sleeping_threads.h"
#include "cli/terminal/progress.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/families/family.h"
#include "formats/inspect/context_length.h"
#include "formats/token_files/token_file.h"
#include "uptrain/layerwise/compare_predictions.h"
#include "uptrain/model/device.h"
#include "uptrain/model/language_model.h"

namespace regroup {
namespace {

WindowSettings settings_of(const LogitsOptions& question, const Model& source,
                           const Model& result) {
  WindowSettings settings;
  settings.context = question.context > 0
                         ? question.context
                         : usual_context(source, usual_context(result, settings.context));
  settings.max_tokens = question.max_tokens;
  return settings;
}

Batches windows_of(const LogitsOptions& question, const Model& source, const Model& result) {
  const WindowSettings settings = settings_of(question, source, result);
  if (question.data.empty()) {
    return random_windows(source.spec.vocab_size, settings);
  }
  const TokenFile data = TokenFile::open(question.data);
  data.check_vocabulary(source.spec.vocab_size);
  return read_windows(data, settings);
}

}  // namespace

void check_logits_options(const LogitsOptions& question, const Model& source, const Model& result) {
  for (const Model* model : {&source, &result}) {
    if (!model->spec.not_computable.empty()) {
      throw_usage("--logits: {} cannot be computed: {}", printable(model->path.string(), 0),
                  printable(model->spec.not_computable));
    }
    check_predicts(*model);
  }
  check_same_vocabulary(source, result);
  let_threads_sleep();
  parse_device(question.device);
  if (!question.data.empty()) {
    count_windows(TokenFile::open(question.data), settings_of(question, source, result));
  }
}

LogitsResult measure_logits(const LogitsOptions& question, const Model& source, const Model& result,
                            const Console& console) {
  set_compute_threads(question.threads);
  check_all_shapes(result.spec, result.checkpoint);
  const std::int64_t context = settings_of(question, source, result).context;
  warn_of_context(source, context, console);
  Progress progress(console, "logits", layers_to_compare(source, result), "layers");
  PredictionComparison found;
  with_torch_errors([&] {
    found = compare_predictions(
        source, result, windows_of(question, source, result), parse_device(question.device),
        [&](std::size_t layers) { progress.update(layers); }, interrupt_requested());
  });
  progress.finish();
  return {question.data,
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
