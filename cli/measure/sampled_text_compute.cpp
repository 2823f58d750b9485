#include "cli/measure/sampled_text.h"

#include "cli/measure/data_origin.h"
#include "cli/shell/progress.h"
#include "cli/shell/standard_streams.h"
#include "formats/vocabulary/token_writer.h"

namespace regroup {

void write_samples(const Model& source, const SampleSettings& settings,
                   const std::filesystem::path& output, const Console& console) {
  TokenWriter writer(output, TokenLayout::kMegatron, source.spec.vocab_size);
  if (const auto origin = origin_of(source)) {
    writer.set_origin(*origin);
  }
  Progress progress(console, "sample", static_cast<std::uint64_t>(settings.tokens), "tokens");
  sample(
      source, settings,
      [&](std::span<const std::uint32_t> tokens) {
        writer.write(tokens);
        writer.end_document();
      },
      [&](std::int64_t done) { progress.update(static_cast<std::uint64_t>(done)); },
      interrupt_requested());
  progress.finish();
  writer.publish();
}

}  // namespace regroup
