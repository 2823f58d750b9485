// The model card of a result: README.md, as Hugging Face shows it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/json.h"
#include "formats/families/loader_code.h"
#include "formats/model/conversion_record.h"
#include "formats/model/model.h"
#include "formats/spec/model_spec.h"
#include "formats/tensors/gguf_metadata.h"

namespace regroup {

/// README.md of a model with this config.json and spec: `metadata` (lasting_metadata(), extended by
/// library, task and tags), what the record in `config` says was done and measured, how to load it,
/// what `code` its directory has, and links to `earlier` cards there. Empty if `config` has no such
/// record. Text from files is used only where it is a plain word.
std::string model_card(const Json& config, const ModelSpec& spec, std::string_view metadata,
                       const DirectoryCode& code = {},
                       const std::vector<std::string>& earlier = {});

/// Writes the card of a result made from `source` into `directory`, which has the result's other
/// files. A README.md that was copied from `source` gets the name README.source.md, or if there is
/// one README.source-2.md and so on. It is dropped if it is an unchanged card by this function and
/// the new one says the same and more, as after training.
void write_model_card(const Model& source, const std::filesystem::path& directory,
                      const std::string& config_text, const ModelSpec& spec);

/// Replaces config.json in `directory`, which has a result that is not published yet, and writes
/// the card again.
void rewrite_record(const std::filesystem::path& directory, const ModelSpec& spec,
                    const std::string& config_text);

/// Sets the "general.*" keys of a GGUF file made from a directory: name, type, license, languages,
/// tags and base model, as far as the directory's card or its place in a hub's cache says them.
void describe_source(GgufMetadata& gguf, const Model& source);

/// Sets general.size_label, such as "135M", by the tensors that `spec` has.
void set_size_label(GgufMetadata& gguf, const ModelSpec& spec);

// The metadata in the first lines of a model card, README.md.
// https://huggingface.co/docs/hub/model-cards#model-card-metadata

/// `text` as a YAML value that every reader takes for this text: in quotes unless it begins with a
/// letter, has only letters, digits and "._-/:+~%?=", and is none of YAML's words, such as yes.
std::string yaml_text(std::string_view text);

/// The lines of `card`'s metadata that also hold for a model made from it: base_model, its name,
/// the license, language, library, task, datasets and tags, each with a plain value or a list of
/// plain values. Other values are left out, so that no text of a card becomes another key. Values
/// are written by yaml_text(). Ends with a line break unless empty.
std::string lasting_metadata(std::string_view card);

/// The same of a GGUF file: license, languages, model_name with dashes for spaces, and as
/// base_model the repository that it names as its own, or else as the one it was made from.
std::string lasting_metadata(const GgufMetadata& gguf);

/// Whether `metadata`, such lines, has a value for `key`.
bool has_metadata(std::string_view metadata, std::string_view key);

/// The value of `key` in `metadata`, without quotes; empty if there is none or a list.
std::string metadata_value(std::string_view metadata, std::string_view key);

/// Whether a tag or library names a format of files or a quantisation, which a result need not
/// have.
bool is_format_word(std::string_view word);

/// The value of `key` in `metadata`, or those of its list, without quotes.
std::vector<std::string> metadata_values(std::string_view metadata, std::string_view key);

/// The hub's name of the task of models of this class; empty if it has none for them.
std::string_view pipeline_tag_of(const ModelSpec& spec);

/// `metadata` without `key`.
std::string without_metadata(std::string_view metadata, std::string_view key);

/// `text` if it consists of letters, digits, "_.-" and `also`, as names do; other characters become
/// "?".
std::string card_word(std::string_view text, std::string_view also = "");

/// What transformers, vLLM, mlx-lm, CTranslate2, llama.cpp and regroup need to load a directory
/// with this config.json and spec, as Markdown; also sentence-transformers if `metadata`
/// (lasting_metadata()) names it. Only if the directory's `code` is regroup's is that said of it;
/// what regroup did not write is listed.
std::string loading_section(const Json& config, const ModelSpec& spec, std::string_view metadata,
                            const DirectoryCode& code);

}  // namespace regroup
