#include "cli/measure/training_text.h"

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "uptrain/trainer/run_directory.h"

namespace regroup {

namespace fs = std::filesystem;

TrainingText::TrainingText(const TextInput& text, const Model& source, int threads,
                           const fs::path& output, bool resume)
    : kept_(RunDirectory::path_for(output) / "text.bin") {
  if (resume) {
    path_ = kept_;
    if (!path_exists(kept_)) {
      throw_usage("{}: was begun with --data; resume it with the same token files",
                  printable(RunDirectory::path_for(output).string(), 0));
    }
    return;
  }
  fs::path beside = RunDirectory::path_for(output);
  beside += ".text";
  made_ = std::make_unique<StagedDirectory>(beside);
  path_ = made_->path() / kept_.filename();
  write_tokens(source, text, threads, std::nullopt, path_);
}

void TrainingText::keep() {
  if (!made_) {
    return;
  }
  std::error_code fault;
  for (const char* extension : {".bin", ".idx"}) {
    fs::path from = path_, to = kept_;
    fs::rename(from.replace_extension(extension), to.replace_extension(extension), fault);
    if (fault) {
      throw_environment("{}: cannot be made: {}", printable(to.string(), 0), fault.message());
    }
  }
  made_.reset();
}

}  // namespace regroup
