#include "converter/target/loader_choice.h"

#include <algorithm>
#include <optional>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/loaders/loader_code.h"

namespace regroup {
namespace {

std::optional<LoaderCode> needed_code(const Json& config, const ModelSpec& spec) {
  return loaders_take_heads(spec) || spec.attention_only() ? std::nullopt
                                                           : loader_code_for(config, spec);
}

// Throws if --loader transformers was requested but cannot be done.
void check_possible(const Target& target, Container container, bool exists) {
  if (is_single_file(container)) {
    throw_usage("--loader transformers: code is written into directories, not into a single file");
  }
  if (loaders_take_heads(target.spec)) {
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
    const auto& all = source.companions;
    if (std::find(all.begin(), all.end(), std::filesystem::path(file.name)) != all.end()) {
      names.emplace_back(file.name);
    }
  }
  return names;
}

void check_free(const Model& source, const LoaderCode& code) {
  for (const std::string& name : replaced_files(source)) {
    const bool needed = std::any_of(code.files.begin(), code.files.end(),
                                    [&](const LoaderFile& file) { return file.name == name; });
    if (needed && !has_loader_code(source.config)) {
      throw_usage(
          "{}: has a file {} that its auto_map does not name: rename it, since the result gets "
          "code of that name (or --loader none)",
          printable(source.path.string(), 0), name);
    }
  }
}

std::string note_on(const LoaderCode& code) {
  return "transformers loads the result with trust_remote_code=True, by the code in " +
         std::string(code.files.back().name);
}

}  // namespace

void choose_loader_code(Target& target, const Model& source, Container container,
                        LoaderChoice choice) {
  const bool directory = !is_single_file(container);
  if (directory) {
    target.config_text = without_loader_code(target.config_text);
    if (has_loader_code(source.config)) {
      target.left_out = replaced_files(source);
    }
  }
  const Json config =
      directory ? parse_json_object(target.config_text, "config.json") : Json::object();
  const std::optional<LoaderCode> code = needed_code(config, target.spec);
  if (choice == LoaderChoice::kTransformers) {
    check_possible(target, container, code.has_value());
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
  target.notes.push_back(note_on(*code));
}

bool has_loader_choice(const std::string& config_text, const ModelSpec& spec, Container container) {
  return !is_single_file(container) &&
         needed_code(parse_json_object(config_text, "config.json"), spec).has_value();
}

}  // namespace regroup
