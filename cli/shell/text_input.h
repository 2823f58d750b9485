// The option --text, of commands that read tokens.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/shell/command.h"

namespace regroup {

struct TextInput {
  std::vector<std::string> files;  ///< text or JSON lines; empty: no --text
  std::string tokenizer;           ///< empty: the model's own
  std::optional<bool> json_lines;  ///< --jsonl or --no-jsonl
  std::string field;               ///< empty: "text"
};

/// Adds --jsonl and --no-jsonl.
void add_jsonl_option(Command command, std::optional<bool>& json_lines);

/// Adds --text, described by `purpose`, and the options that say how to read it. `input` must
/// outlive `command`.
void add_text_input(Command command, TextInput& input, const std::string& purpose);

/// Throws kUsage unless either tokens, by --data, or text is given.
void check_one_input(bool data, const TextInput& text);

}  // namespace regroup
