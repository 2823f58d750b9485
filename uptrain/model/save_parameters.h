// Writes weights to files, by one process or by several.
#pragma once

#include <filesystem>
#include <set>
#include <span>
#include <string>

#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint_writer.h"
#include "uptrain/model/parameters.h"

namespace regroup {

/// Writes `directory`/model.safetensors (or shards) with the tensors of a source in its order,
/// dtypes and metadata: trained ones with their present values, rounded to nearest; a stored copy
/// of the token embedding (a tied head that was saved as well) or of the output's bias follows it;
/// all others byte for byte.
class ParametersWriter {
 public:
  /// With kJoined, another process has made the files, and writes all tensors that no process has
  /// trained. The source must outlive the writer.
  ParametersWriter(const ModelSpec& spec, const Checkpoint& source,
                   const std::filesystem::path& directory,
                   OutputFiles files = OutputFiles::kCreated);

  /// Writes `trained` and what follows them. `elsewhere` names those that other processes write.
  void write(std::span<const StateTensor> trained, const std::set<std::string>& elsewhere = {});

  /// Flushes what was written to the device.
  void finish() { writer_.finish_share(); }

 private:
  std::string trained_name(const TensorInfo& tensor, const std::set<std::string>& trained) const;

  const ModelSpec& spec_;
  const Checkpoint& source_;
  bool first_;
  SafetensorsWriter writer_;
};

/// Writes the present values of `tensors`, rounded to nearest, over those of the same names in the
/// files of `checkpoint`, which belong to a result that is not published yet, and flushes them. The
/// stored tensors must be contiguous, of types that encode_numbers() writes, in safetensors or GGUF
/// files: torch's have checksums of their own.
void overwrite_parameters(std::span<const StateTensor> tensors, const Checkpoint& checkpoint);

/// Writes `directory`/model.safetensors (or shards) for a model that has no source: the tensors in
/// their own order, all as `dtype`.
void save_new_parameters(const Parameters& parameters, DType dtype,
                         const std::filesystem::path& directory);

}  // namespace regroup
