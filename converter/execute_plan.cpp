#include "converter/execute_plan.h"

#include <algorithm>
#include <vector>

#include "converter/pool_mean.h"
#include "formats/checkpoint_writer.h"
#include "formats/error.h"
#include "formats/printable.h"
#include "formats/staged_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

void refuse_nested(const fs::path& source, const fs::path& destination) {
  std::error_code unknown;  // a path that cannot be resolved is StagedDirectory's to refuse
  const fs::path from = fs::weakly_canonical(fs::absolute(source, unknown), unknown);
  const fs::path to = fs::weakly_canonical(fs::absolute(destination, unknown), unknown);
  const auto [inside, rest] = std::mismatch(from.begin(), from.end(), to.begin(), to.end());
  if (inside == from.end()) {
    throw_usage("{}: lies inside the source {}", printable(to.string(), 0),
                printable(from.string(), 0));
  }
}

void check_free_space(const fs::path& directory, std::uint64_t needed) {
  std::error_code fault;
  const fs::space_info space = fs::space(directory, fault);
  if (!fault && space.available < needed) {
    throw_environment("{}: {} bytes free, {} needed", printable(directory.string(), 0),
                      space.available, needed);
  }
}

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

void copy_companions(const ModelDirectory& source, const fs::path& destination) {
  for (const fs::path& name : source.companions) {
    const File from = File::open(source.path / name);
    File to = File::create(destination / name);
    to.copy_from(from, 0, 0, from.size());
    to.sync_and_close();
  }
}

}  // namespace

void execute_conversion(const ConversionPlan& plan, const ModelDirectory& source,
                        const fs::path& destination, const ConversionProgress& progress,
                        const std::atomic<bool>& stop) {
  refuse_nested(source.path, destination);
  StagedDirectory staged(destination);
  check_free_space(staged.path(), plan.output_bytes);

  std::vector<OutputTensor> outputs;
  for (const TensorStep& step : plan.steps) {
    outputs.push_back(step.output);
  }
  CheckpointWriter writer(staged.path(), outputs, plan.metadata, plan.max_shard_bytes);
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
