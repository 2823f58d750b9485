// Options for how windows treat the documents in token files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/shell/command.h"
#include "uptrain/train/data_loader.h"

namespace regroup {

struct DocumentOptions {
  std::string documents = "pack";
  std::optional<std::int64_t> end, start;  ///< tokens

  /// Throws kUsage for options that contradict one another.
  DocumentSettings settings() const;
};

/// Adds --documents, --document-end and --document-start.
void add_document_options(Command command, DocumentOptions& options);

}  // namespace regroup
