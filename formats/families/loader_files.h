// The Python files that results carry, and the families for whose results regroup writes them.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace regroup {

struct LoaderFile {
  std::string_view name;  ///< such as "modeling_regroup_bloom.py"
  std::string_view text;
};

/// The .py files of formats/loaders/, which CMake embeds in the program.
std::span<const LoaderFile> embedded_loader_files();

/// These, and those that are made from loader_rows().
std::span<const LoaderFile> loader_files();

/// A class of transformers' AutoModels, and the suffix of the family's class for it.
struct AutoClass {
  std::string_view name;
  std::string_view suffix;
};

/// Files that those of families import. The first is for families whose classes in transformers
/// have no grouped heads, the second for those whose classes have one number of kv heads for all
/// layers.
inline constexpr std::string_view kHeadsFile = "regroup_heads.py";
inline constexpr std::string_view kLayersFile = "regroup_layers.py";

/// What a family's file in a result, modeling_regroup_MODEL_TYPE.py (with underscores), extends.
struct LoaderRow {
  std::string_view model_type;
  std::string_view family;  ///< the prefix of transformers' classes
  std::span<const AutoClass> classes;
  std::string_view title;        ///< the family's name in the text; empty: the file is not made
  std::string_view attention;    ///< what the attention's class has after the prefix
  std::string_view packing;      ///< as regroup_heads.py names it
  std::string_view projections;  ///< the elements of a Python tuple
  std::string_view role = {};    ///< the method that tells stacks apart, if the family has two
  std::string_view kv_heads_key = "num_key_value_heads";  ///< the key that the file reads
  /// Whether it reads recorded slopes, and has classes for regroup's own names.
  bool alibi = false;
  std::string_view shared = kHeadsFile;  ///< the file that it imports; empty if there is none
};

std::span<const LoaderRow> loader_rows();

/// What the row's file makes on demand under that name, such as "RegroupBertForPreTraining", with
/// the AutoModel that it is for; null if there is none.
const AutoClass* made_class(const LoaderRow& row, std::string_view name);

/// "modeling_regroup_xlm_roberta", the name of a row's module.
std::string module_of(const LoaderRow& row);

}  // namespace regroup
