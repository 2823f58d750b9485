// The options that say what windows make of the documents in token files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <CLI/App.hpp>

#include "uptrain/data/document_windows.h"

namespace regroup {

struct DocumentOptions {
  std::string documents = "pack";
  std::optional<std::int64_t> end, start;  ///< tokens

  /// Throws kUsage for options that contradict one another.
  DocumentSettings settings() const;
};

/// Adds --documents, --document-end and --document-start.
void add_document_options(CLI::App& command, DocumentOptions& options);

}  // namespace regroup
