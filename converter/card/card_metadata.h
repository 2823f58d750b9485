// The metadata in the first lines of a model card, README.md.
// https://huggingface.co/docs/hub/model-cards#model-card-metadata
#pragma once

#include <string>
#include <string_view>

namespace regroup {

/// `text` as a YAML value that every reader takes for this text: in quotes unless it begins with a
/// letter, has only letters, digits and "._-/:+~%?=", and is none of YAML's words, such as yes.
std::string yaml_text(std::string_view text);

/// The lines of `card`'s metadata that also hold for a model made from it: base_model, the license,
/// language, library and task, each with a plain value or a list of plain values. Other values are
/// left out, so that no text of a card becomes another key. Values are written by yaml_text(). Ends
/// with a line break unless empty.
std::string lasting_metadata(std::string_view card);

/// Whether `metadata`, such lines, has a value for `key`.
bool has_metadata(std::string_view metadata, std::string_view key);

/// `metadata` without `key`.
std::string without_metadata(std::string_view metadata, std::string_view key);

}  // namespace regroup
