// The metadata in the first lines of a model card, README.md.
// https://huggingface.co/docs/hub/model-cards#model-card-metadata
#pragma once

#include <string>
#include <string_view>

namespace regroup {

/// The lines of `card`'s metadata that also hold for a model made from it: base_model, the license,
/// language, library and task, each with a plain value or a list of plain values. Other values are
/// left out, so that no text of a card becomes another key. Ends with a line break unless empty.
std::string lasting_metadata(std::string_view card);

/// Whether `metadata`, such lines, has a value for `key`.
bool has_metadata(std::string_view metadata, std::string_view key);

/// `metadata` without `key`.
std::string without_metadata(std::string_view metadata, std::string_view key);

}  // namespace regroup
