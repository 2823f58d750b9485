#include "cli/measure/conversion_options.h"

#include "cli/shell/option_needs.h"
#include "cli/shell/progress.h"
#include "cli/shell/standard_streams.h"
#include "cli/shell/text.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "uptrain/model/device.h"
#include "uptrain/run/sample.h"
#include "uptrain/train/refit.h"
#include "uptrain/train/text_quality.h"

namespace regroup {

void check_computable(const char* option, const Model& source) {
  if (!source.spec.not_computable.empty()) {
    throw_usage("{}: {} cannot be computed: {}", option, printable(source.spec.architecture),
                printable(source.spec.not_computable));
  }
}

std::string solving_device(const ConvertOptions& options) {
  return parse_device(options.device).str();
}

std::shared_ptr<AttentionRefiner> make_refiner(const Model& source, const ConvertOptions& options,
                                               const std::atomic<bool>& stop) {
  check_computable("--refit", source);
  if (options.refit.steps == 0) {
    refuse_without_effect("--refit", "--refit-steps is 0");
  }
  set_compute_threads(options.threads);
  RefitSettings settings;
  settings.windows.context = options.refit.context;
  settings.windows.batch = options.refit.batch;
  settings.windows.max_tokens = options.refit.max_tokens;
  settings.steps = options.refit.steps;
  settings.learning_rate = options.refit.learning_rate;
  settings.device = parse_device(options.device);
  std::shared_ptr<AttentionRefiner> refiner;
  with_torch_errors([&] {
    refiner = std::make_shared<Refit>(source, TokenFile::open(options.refit.data), settings, stop);
  });
  return refiner;
}

void check_is_predicted(const Model& source, const std::filesystem::path& data, const char* option,
                        const ConvertOptions& options, const Console& console) {
  if (!source.spec.not_computable.empty() || !writes_text(source)) {
    return;  // what needs the text says why; only the next token can be compared with chance
  }
  set_compute_threads(options.threads);
  Progress progress(console, "check text", source.spec.layers.size(), "layers");
  std::uint64_t done = 0;
  std::optional<TextChance> found;
  const c10::Device device = parse_device(options.device);
  with_torch_errors([&] {
    found = compare_with_chance(
        source, TokenFile::open(data), options.refit.context, device, interrupt_requested(),
        [&] { progress.update(++done); }, scalar_type_of(fast_precision(device)));
  });
  progress.finish();
  if (found && !found->better_than_chance()) {
    throw_bad_input(
        "{}: {} has a loss of {:.2f} nats per token on {} tokens of it, no better than chance: a "
        "guess {} has {:.2f}; give a text that the model does well on, and its own tokenizer, or "
        "accept this one with {}",
        option, printable_path(source.path), found->loss, with_thousands(found->tokens),
        found->uniform < found->frequencies ? "of any token"
                                            : "by how often the text has each token",
        found->chance(), kAnyTextOption);
  }
}

}  // namespace regroup
