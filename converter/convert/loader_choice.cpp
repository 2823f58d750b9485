#include "converter/convert/loader_choice.h"

#include <optional>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/families/family.h"
#include "formats/families/loader_code.h"

namespace regroup {

void use_own_names(Target& target) {
  target.config_text = with_alibi_names(target.config_text);
  target.spec.loaders_read_kv_heads = false;
  target.spec.multi_query_key.clear();
}

void keep_from_stock_loaders(Target& target, Container container, std::string_view asked) {
  if (derived_otherwise(target.spec).empty()) {
    return;
  }
  const bool named_already = !is_single_file(container) &&
                             has_alibi_names(parse_json_object(target.config_text, "config.json"));
  if (!target.spec.whole_model.empty()) {
    throw_usage(
        "{}: its heads would move with their ALiBi slopes, which its loaders compute from the "
        "index of a head: use --grouping contiguous",
        printable(target.spec.architecture));
  }
  const bool loads = asked == "expanded" || is_single_file(container) ||
                     (!named_already && loaders_take_heads(target.spec));
  if (loads) {
    throw_usage(
        "{}: its heads have moved, and its loaders would compute ALiBi's slopes from the index of "
        "a head: convert the original model with --grouping contiguous, or keep the grouped "
        "result, which regroup runs",
        printable(target.spec.architecture));
  }
  use_own_names(target);
  const bool runs = target.spec.not_computable.empty();
  target.notes.push_back(
      fmt::format("heads have moved with their ALiBi slopes, which stock loaders compute from the "
                  "index of a head: the model_type is one that they refuse{}",
                  runs ? "; regroup runs and uptrains the result" : ""));
}

namespace {

// Whether transformers loads the result without regroup's code. It has no class for Nemotron-NAS,
// whose checkpoints bring their own.
bool loads_without(const Json& config, const ModelSpec& spec) {
  return loaders_take_heads(spec) && (spec.layer_configs_key.empty() || has_own_code(config));
}

std::optional<LoaderCode> needed_code(const Json& config, const ModelSpec& spec) {
  return loads_without(config, spec) || spec.attention_only() ? std::nullopt
                                                              : loader_code_for(config, spec);
}

// Throws if --loader transformers was requested but cannot be done.
void check_possible(const Target& target, const Json& config, Container container, bool exists) {
  if (is_single_file(container)) {
    throw_usage("--loader transformers: code is written into directories, not into a single file");
  }
  if (loads_without(config, target.spec)) {
    throw_usage("--loader transformers has no effect: stock {} loaders load this result",
                printable(target.spec.architecture));
  }
  if (!exists) {
    throw_usage(
        "--loader transformers: there is no code for {}{}{}", printable(target.spec.architecture),
        target.spec.not_computable.empty() ? "" : " with ", printable(target.spec.not_computable));
  }
}

// The source's files of these names, which are code that regroup wrote: they are not copied.
// Throws if they are something else.
std::vector<std::string> replaced_files(const Model& source) {
  std::vector<std::string> names;
  for (const LoaderFile& file : loader_files()) {
    if (contains(source.companions, std::filesystem::path(file.name))) {
      names.emplace_back(file.name);
    }
  }
  return names;
}

void check_free(const Model& source, const LoaderCode& code) {
  for (const std::string& name : replaced_files(source)) {
    if (contains(code.files, name, &LoaderFile::name) && !has_loader_code(source.config)) {
      throw_usage(
          "{}: has a file {} that its auto_map does not name: rename it, since the result gets "
          "code of that name (or --loader none)",
          printable_path(source.path), name);
    }
  }
}

// Leaves out the source's code, which the result gets anew if it needs it.
void drop_code(Target& target, const Model& source) {
  target.config_text = without_loader_code(target.config_text);
  if (!has_loader_code(source.config)) {
    return;
  }
  target.left_out = replaced_files(source);
  const std::vector<LoaderFile> carried = carried_files(source.path);
  for (const std::string& name : target.left_out) {
    if (!contains(carried, name, &LoaderFile::name)) {
      target.notes.push_back(
          name + " of the source is not copied: it differs from the code of this regroup");
    }
  }
}

void add_code(Target& target, const Model& source, Container container, LoaderChoice choice) {
  const bool directory = !is_single_file(container);
  if (directory) {
    drop_code(target, source);
  }
  const Json config =
      directory ? parse_json_object(target.config_text, "config.json") : Json::object();
  const std::optional<LoaderCode> code = needed_code(config, target.spec);
  if (choice == LoaderChoice::kTransformers) {
    check_possible(target, config, container, code.has_value());
  }
  if (choice == LoaderChoice::kNone || !directory || !code) {
    return;
  }
  if (choice == LoaderChoice::kAuto && has_own_code(config)) {
    target.notes.push_back(
        "the model's own code (auto_map) is kept: whether it supports grouped heads is not known "
        "here; --loader transformers replaces it by code that does");
    return;
  }
  check_free(source, *code);
  target.config_text = with_loader_code(target.config_text, *code);
  target.loader_files = code->files;
  target.notes.push_back(
      fmt::format("transformers loads the result and its tokenizer with trust_remote_code=True, by "
                  "the code in {}",
                  code->files.back().name));
}

// Names what the result has of code by others.
void note_foreign_code(Target& target, const Model& source) {
  std::vector<std::filesystem::path> copied = source.companions;
  std::erase_if(copied, [&](const std::filesystem::path& file) {
    return contains(target.left_out, file.string());
  });
  std::vector<LoaderFile> carried = carried_files(source.path);
  append(carried, target.loader_files);
  const Json config = parse_json_object(target.config_text, "config.json");
  append(target.notes, notes_on_code(code_in(config, source.path, copied, carried)));
}

}  // namespace

void choose_loader_code(Target& target, const Model& source, Container container,
                        LoaderChoice choice) {
  add_code(target, source, container, choice);
  if (!is_single_file(container)) {
    note_foreign_code(target, source);
  }
}

Target with_kept_code(const Model& source, const std::string& config_text) {
  Target result{{.config_text = config_text}, source.spec};
  choose_loader_code(result, source, Container::kSafetensors,
                     has_loader_code(source.config) ? LoaderChoice::kAuto : LoaderChoice::kNone);
  return result;
}

void write_companions(const Model& source, const std::filesystem::path& directory,
                      const std::vector<std::string>& left_out,
                      const std::vector<LoaderFile>& code) {
  copy_companions(source, directory, left_out);
  for (const LoaderFile& file : code) {
    write_text(directory / file.name, file.text);
  }
}

bool has_loader_choice(const std::string& config_text, const ModelSpec& spec, Container container) {
  return !is_single_file(container) &&
         needed_code(parse_json_object(config_text, "config.json"), spec).has_value();
}

}  // namespace regroup
