#include "cli/options/document_options.h"

#include "cli/options/command.h"
#include "cli/options/number_options.h"
#include "formats/base/error.h"

namespace regroup {

DocumentSettings DocumentOptions::settings() const {
  const bool separate =
      documents == "separate";  // else neither is there: cli/options/option_needs.h
  if (end && start) {
    throw_usage("--document-end or --document-start: a file's documents are told by one of them");
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
                  "pack: windows follow one another, whatever documents they hold; separate: each "
                  "begins with a document, or goes on with it, and ends with it at the latest")
      .one_of({"pack", "separate"});
  add_count(command, "--document-end", options.end,
            "separate: the token that ends a document, in files without Megatron's index",
            kAnyToken);
  add_count(command, "--document-start", options.start,
            "separate: the token that begins a document, in files without Megatron's index",
            kAnyToken);
}

}  // namespace regroup
