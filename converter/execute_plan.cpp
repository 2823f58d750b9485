#include "converter/execute_plan.h"

#include <algorithm>
#include <vector>

#include "converter/pool_mean.h"
#include "formats/error.h"
#include "formats/printable.h"
#include "formats/safetensors_writer.h"
#include "formats/staged_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

std::vector<std::byte> change_tensor(const TensorStep& step, const TensorInfo& tensor,
                                     const Checkpoint& checkpoint, std::uint64_t output_bytes,
                                     bool allow_nonfinite) {
  std::vector<std::byte> before(tensor.bytes());
  checkpoint.read(tensor, before);
  std::vector<std::byte> after(output_bytes);
  for (const HeadMove& move : step.moves) {
    if (move.action == HeadMove::Action::kCopy) {
      copy_heads(tensor.dtype, before, move.from, after, move.to);
    } else if (!pool_mean(tensor.dtype, before, move.from, after, move.to) && !allow_nonfinite) {
      throw_bad_input("{}: tensor {}: NaN or infinity in the heads to be pooled",
                      printable(checkpoint.file_of(tensor).path().string(), 0),
                      printable(tensor.name));
    }
  }
  return after;
}

}  // namespace

void execute_conversion(const ConversionPlan& plan, const Model& source,
                        const fs::path& destination, const ConversionProgress& progress,
                        const std::atomic<bool>& stop) {
  refuse_output_inside(source, destination);
  StagedDirectory staged(destination);
  std::vector<OutputTensor> outputs;
  for (const TensorStep& step : plan.steps) {
    outputs.push_back(step.output);
  }
  SafetensorsWriter writer(staged.path(), outputs, plan.metadata, plan.max_shard_bytes);
  std::uint64_t done = 0;
  for (const TensorStep& step : plan.steps) {
    if (stop) {
      throw Error(ErrorKind::kInterrupted, "interrupted; nothing was left behind");
    }
    const TensorInfo& tensor = source.checkpoint.at(step.output.name);
    const std::uint64_t bytes = writer.bytes_of(step.output.name);
    if (step.unchanged()) {
      writer.copy(step.output.name, source.checkpoint, tensor);
    } else {
      writer.write(step.output.name,
                   change_tensor(step, tensor, source.checkpoint, bytes, plan.allow_nonfinite));
    }
    done += bytes;
    progress(done, step.output.name);
  }
  writer.finish();
  for (const File& file : source.checkpoint.files()) {
    file.check_unchanged();
  }
  copy_companions(source, staged.path());
  write_text(staged.path() / "config.json", plan.config_text);
  staged.publish();
}

}  // namespace regroup
