#include "cli/options/text_input.h"

#include "formats/base/error.h"

namespace regroup {

void add_text_input(Command command, TextInput& input, const std::string& purpose) {
  command.add_option("--text", input.files, purpose);
  command
      .add_option("--tokenizer", input.tokenizer,
                  "the tokenizer of --text, as in regroup tokenize (default: the model's)")
      .default_text("");
}

void check_one_input(bool data, const TextInput& text) {
  if (data == !text.files.empty()) {
    throw_usage("{}: --data takes token files, --text takes text",
                data ? "--data and --text exclude each other" : "--data or --text is needed");
  }
}

}  // namespace regroup
