#include "cli/measure/text_check.h"

#include "cli/shell/progress.h"
#include "cli/shell/standard_streams.h"
#include "cli/shell/text.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "uptrain/model/device.h"
#include "uptrain/train/text_quality.h"

namespace regroup {

void check_is_predicted(const Model& source, const std::filesystem::path& data, const char* option,
                        const RefitOptions& compute, const Console& console) {
  if (!source.spec.not_computable.empty()) {
    return;  // what needs the text says why
  }
  set_compute_threads(compute.threads);
  Progress progress(console, "check text", source.spec.layers.size(), "layers");
  std::uint64_t done = 0;
  std::optional<TextChance> found;
  with_torch_errors([&] {
    found = compare_with_chance(source, TokenFile::open(data), context_of(source, compute),
                                parse_device(compute.device), interrupt_requested(),
                                [&] { progress.update(++done); });
  });
  progress.finish();
  if (found && !found->better_than_chance()) {
    throw_bad_input(
        "{}: {} has a loss of {:.2f} nats per token on {} tokens of it, no better than chance: a "
        "guess {} has {:.2f}; give a text that the model does well on, and its own tokenizer, or "
        "accept this one with {}",
        option, printable(source.path.string(), 0), found->loss,
        with_thousands(static_cast<std::uint64_t>(found->tokens)),
        found->uniform < found->frequencies ? "of any token"
                                            : "by how often the text has each token",
        found->chance(), kAnyTextOption);
  }
}

}  // namespace regroup
