#include "cli/shell/text_input.h"

#include "formats/base/error.h"

namespace regroup {

void add_jsonl_option(Command command, std::optional<bool>& json_lines) {
  command.add_flag(
      "--jsonl,!--no-jsonl", json_lines,
      "read texts as JSON lines, one document per line, or as plain text (default: JSON lines if "
      "they are named .jsonl or begin so)");
}

void add_text_input(Command command, TextInput& input, const std::string& purpose) {
  command.add_option("--text", input.files, purpose);
  command.add_option("--tokenizer", input.tokenizer,
                     "the tokenizer of --text, as in regroup tokenize (default: the model's)");
  add_jsonl_option(command, input.json_lines);
  command.add_option("--field", input.field,
                     "--text of JSON: the field that holds the document (default: text)");
}

void check_one_input(bool data, const TextInput& text) {
  if (data == !text.files.empty()) {
    throw_usage("{}: --data takes token files, --text takes text",
                data ? "--data and --text exclude each other" : "--data or --text is needed");
  }
}

}  // namespace regroup
