#include "cli/shell/document_options.h"

#include "cli/shell/command.h"
#include "cli/shell/quantity.h"
#include "formats/base/error.h"

namespace regroup {

DocumentSettings DocumentOptions::settings() const {
  // For "pack", cli/shell/option_needs.h refuses --document-end and --document-start.
  const bool separate = documents == "separate";
  if (end && start) {
    throw_usage("--document-end, --document-start: only one of them can mark documents");
  }
  DocumentSettings settings{.separate = separate};
  if (end || start) {
    settings.mark = DocumentMark{.token = end ? *end : *start, .ends = end.has_value()};
  }
  return settings;
}

void add_document_options(Command command, DocumentOptions& options) {
  command
      .add_option("--documents", options.documents,
                  "pack: windows are consecutive and may span documents; separate: each window "
                  "holds one document or a part of it")
      .one_of({"pack", "separate"});
  add_count(command, "--document-end", options.end,
            "separate: the token that ends a document, in files without Megatron's index",
            kAnyToken);
  add_count(command, "--document-start", options.start,
            "separate: the token that begins a document, in files without Megatron's index",
            kAnyToken);
}

}  // namespace regroup
