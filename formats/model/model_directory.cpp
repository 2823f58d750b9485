#include "formats/model/model_directory.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <string_view>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/hub_cache.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/model/weight_index.h"
#include "formats/tensors/gguf.h"
#include "formats/tensors/safetensors.h"
#include "formats/tensors/torch_checkpoint.h"

namespace regroup {

Checkpoint::Part open_weight_file(const std::filesystem::path& path) {
  File file = File::open(path);
  const std::string first = read_start(file, kLegacyTorchMagic.size());
  if (first.starts_with("PK\x03\x04")) {
    return open_torch_checkpoint(path);
  }
  if (first.starts_with(kGgufMagic)) {
    return open_gguf(path).part;
  }
  if (first == kLegacyTorchMagic) {
    return open_legacy_torch_checkpoint(path);
  }
  return open_safetensors(std::move(file));
}

namespace {

constexpr std::string_view kWrappers[] = {"_orig_mod.", "_fsdp_wrapped_module.",
                                          "_checkpoint_wrapped_module.", "_forward_module."};
constexpr std::string_view kLightning = "model.";             // of the module that holds the model
constexpr std::string_view kValueHead = "pretrained_model.";  // of TRL's model with a value head
constexpr std::string_view kPrefixes[] = {"module.", kValueHead, kLightning, "base_model.model."};

// A wrapper's name is a whole part of the name, between dots.
void remove_everywhere(std::string& name, std::string_view wrapper) {
  std::size_t at = name.find(wrapper);
  while (at != std::string::npos) {
    const bool whole = at == 0 || name[at - 1] == '.';
    if (whole) {
      name.erase(at, wrapper.size());
    }
    at = name.find(wrapper, whole ? at : at + 1);
  }
}

void refuse_other_tensors(const Checkpoint::Part& part, const TensorInfo& tensor) {
  const bool flat = tensor.name.ends_with("_flat_param");
  const bool adapter = tensor.name.find(".lora_A.") != std::string::npos ||
                       tensor.name.find(".base_layer.") != std::string::npos;
  if (flat || adapter) {
    throw_bad_input("{}: tensor {}: {}", printable_path(part.file.path()), printable(tensor.name),
                    flat ? "FSDP's flat parameters are not the model's tensors: save the model "
                           "with a full state dict (StateDictType.FULL_STATE_DICT)"
                         : "a LoRA adapter, which must be merged first: with peft, "
                           "model.merge_and_unload().save_pretrained(MERGED)");
  }
}

// Names of tensors saved from inside a wrapper of training, such as torch.compile's.

using Parts = std::vector<Checkpoint::Part>;

bool any_begins(const Parts& parts, std::string_view prefix, bool wanted = true) {
  return std::ranges::any_of(parts, [&](const Checkpoint::Part& part) {
    return std::ranges::any_of(part.tensors, [&](const TensorInfo& tensor) {
      return tensor.name.starts_with(prefix) == wanted;
    });
  });
}

// Names of many models begin with "model." by themselves. Lightning's modules may have other
// weights beside the model, such as those of the loss, and TRL's model has those of its value head.
bool is_wrapped(const Parts& parts, std::string_view prefix) {
  if (prefix == kLightning) {
    return any_begins(parts, "model.model.") || any_begins(parts, "model.lm_head.") ||
           any_begins(parts, "model.base_model.");
  }
  return prefix == kValueHead || !any_begins(parts, prefix, false);
}

// Removes what wrappers add to names: kWrappers at any depth (torch.compile, FSDP, activation
// checkpointing, Fabric), then kPrefixes (DDP and DeepSpeed, TRL, Lightning, PEFT). Throws
// kBadInput for FSDP's flat parameters and for adapters, which are not tensors of the model.
void remove_training_wrappers(Parts& parts) {
  for (Checkpoint::Part& part : parts) {
    for (TensorInfo& tensor : part.tensors) {
      refuse_other_tensors(part, tensor);
      for (const std::string_view wrapper : kWrappers) {
        remove_everywhere(tensor.name, wrapper);
      }
    }
  }
  for (const std::string_view prefix : kPrefixes) {
    const bool wrapped = is_wrapped(parts, prefix);
    for (std::size_t i = 0; wrapped && i < parts.size(); ++i) {
      for (TensorInfo& tensor : parts[i].tensors) {
        tensor.name.erase(0, tensor.name.starts_with(prefix) ? prefix.size() : 0);
      }
    }
  }
}

namespace fs = std::filesystem;

constexpr std::string_view kConfigFile = "config.json";

// Weights and indices in any format are not copied: some runtimes would load a stale one instead of
// the new weights.
bool is_weight_file(const fs::path& file) {
  const std::string name = file.filename().string();
  constexpr std::array<std::string_view, 17> kSuffixes{
      ".safetensors", ".index.json", ".bin",    ".pt",   ".pth",   ".gguf",
      ".h5",          ".msgpack",    ".tflite", ".npz",  ".ot",    ".pb",
      ".pdparams",    ".pdiparams",  ".keras",  ".nemo", ".engine"};
  // Their files of data have more behind it: model.onnx_data, model.ckpt.data-00000-of-00001.
  constexpr std::array<std::string_view, 2> kSeveralFiles{".onnx", ".ckpt"};
  return std::ranges::any_of(kSuffixes,
                             [&](std::string_view suffix) { return name.ends_with(suffix); }) ||
         std::ranges::any_of(kSeveralFiles,
                             [&](std::string_view part) { return name.find(part) != name.npos; }) ||
         name.starts_with("consolidated") || name.starts_with("openvino_model") ||
         name == kMetaParamsFile || name == "checklist.chk";  // checksums of the weights
}

// Whether that is the model itself in one of its forms, or the state of a training, by its name.
bool is_model_or_state(const fs::path& file) {
  const std::string name = file.filename().string();
  constexpr std::array<std::string_view, 12> kBeginnings{
      "model",    "pytorch_model", "consolidated", "tf_model",      "flax_model", "rust_model",
      "adapter_", "optimizer",     "scheduler",    "training_args", "rng_state",  "scaler"};
  constexpr std::array<std::string_view, 4> kReadable{".safetensors", ".bin", ".pt", ".pth"};
  return std::ranges::any_of(kBeginnings,
                             [&](std::string_view start) { return name.starts_with(start); }) ||
         std::ranges::none_of(kReadable,
                              [&](std::string_view suffix) { return name.ends_with(suffix); });
}

bool is_shown_file(const fs::directory_entry& entry) {
  std::error_code unusable;  // for example a circular link
  return entry.is_regular_file(unusable) && !entry.path().filename().string().starts_with('.');
}

bool is_companion(const fs::directory_entry& entry) {
  return is_shown_file(entry) && entry.path().filename() != kConfigFile &&
         !is_weight_file(entry.path());
}

constexpr std::string_view kModulesFile = "modules.json";
constexpr std::string_view kTemplatesFolder = "additional_chat_templates";  // of the tokenizer
constexpr std::uint64_t kMaxModulesBytes = 1U << 20;

// The list in modules.json, by which sentence-transformers finds the parts of a model. A file that
// is no such list is none of its, and is copied like any other.
Json modules_of(const fs::path& directory) {
  const fs::path path = directory / kModulesFile;
  std::error_code unusable;
  if (!fs::is_regular_file(path, unusable) || leads_out(path)) {
    return Json::array();
  }
  try {
    const std::string text = read_text(path, kMaxModulesBytes);
    return parse_json_object("{\"modules\": " + text + "}", kModulesFile)["modules"];
  } catch (const Error&) {
    return Json::array();
  }
}

// A folder in the directory itself, which is no link.
bool is_own_folder(const fs::path& directory, const fs::path& folder) {
  std::error_code unusable;
  return !folder.empty() && folder.filename() == folder && !folder.string().starts_with('.') &&
         fs::is_directory(directory / folder, unusable) && !fs::is_symlink(directory / folder);
}

// The folders of the other parts: "1_Pooling" and the like, next to the model itself, "".
std::vector<fs::path> module_folders(const fs::path& directory) {
  std::vector<fs::path> folders;
  for (const Json& module : modules_of(directory)) {
    const auto path = module.is_object() ? module.find("path") : module.end();
    if (!module.is_object() || path == module.end() || !path->is_string()) {
      continue;
    }
    if (fs::path folder = path->get<std::string>(); is_own_folder(directory, folder)) {
      folders.push_back(std::move(folder));
    }
  }
  return folders;
}

void add_files(std::vector<fs::path>& found, const fs::path& directory, const fs::path& folder,
               const std::function<bool(const fs::directory_entry&)>& wanted) {
  for (const fs::directory_entry& entry : entries_in(directory / folder)) {
    if (wanted(entry)) {
      found.push_back(folder / entry.path().filename());
    }
  }
}

void check_exists(const fs::path& path) {
  std::error_code fault;
  if (fs::status(path, fault).type() == fs::file_type::not_found) {
    throw_bad_input("{}: no such file or directory", printable_path(path));
  }
  if (fault) {
    throw_cannot_open(path, fault.value());
  }
}

std::vector<Checkpoint::Part> open_single(const fs::path& file) {
  if (is_gguf_file(file)) {
    return open_gguf_files(file).parts;
  }
  std::vector<Checkpoint::Part> parts;
  parts.push_back(open_weight_file(file));
  return parts;
}

bool is_index(const fs::path& path) { return path.filename().string().ends_with(".index.json"); }

// nanoGPT stores the projections of GPT-2 as torch does, and not as GPT-2, and no config. `path`:
// the file or its directory.
void refuse_nanogpt(const fs::path& path) {
  std::error_code fault;
  const fs::path file = fs::is_directory(path, fault) ? path / "ckpt.pt" : path;
  if (file.filename() != "ckpt.pt" || !fs::is_regular_file(file, fault)) {
    return;
  }
  const Checkpoint checkpoint = open_checkpoint(file);
  const TensorInfo* fused = checkpoint.find("transformer.h.0.attn.c_attn.weight");
  if (fused != nullptr && fused->shape.size() == 2 && fused->shape[0] == 3 * fused->shape[1]) {
    throw_bad_input(
        "{}: a checkpoint of nanoGPT: python -m regroup.nanogpt ckpt.pt DIRECTORY makes a GPT-2 of "
        "it (with torch and transformers)",
        printable_path(path));
  }
}

// transformers silently adds such an adapter to the weights in the same directory.
void refuse_adapter(const fs::path& directory) {
  if (path_exists(directory / "adapter_config.json")) {
    throw_bad_input(
        "{}: has a LoRA adapter (adapter_config.json), which must be merged first: with peft, "
        "AutoPeftModelForCausalLM.from_pretrained(DIRECTORY).merge_and_unload().save_pretrained("
        "MERGED)",
        printable_path(directory));
  }
}

constexpr std::array kWeights{kSingleFile, kIndexFile, kTorchSingleFile, kTorchIndexFile};

// A link whose target is not there, such as a file of the hub's cache that was deleted.
bool leads_nowhere(const fs::path& path) {
  std::error_code unknown;
  return fs::is_symlink(path, unknown) &&
         fs::status(path, unknown).type() == fs::file_type::not_found;
}

std::string text_of_link(const fs::path& path) {
  std::error_code unknown;
  return fmt::format("a link to {}, which is not there",
                     printable_path(fs::read_symlink(path, unknown)));
}

// What training frameworks leave in place of weights, and how weights are made of it.
std::string_view instead_of_weights(const fs::path& directory) {
  if (path_exists(directory / ".metadata")) {
    return "a distributed checkpoint: python -m torch.distributed.checkpoint.format_utils "
           "dcp_to_torch DIRECTORY pytorch_model.bin makes a file of it";
  }
  if (path_exists(directory / "zero_to_fp32.py")) {
    return "a checkpoint of DeepSpeed's ranks: python zero_to_fp32.py . MODEL makes a model of it";
  }
  return "not a model directory with weights";
}

std::vector<Checkpoint::Part> open_weights_in(const fs::path& directory) {
  refuse_adapter(directory);
  if (const auto weights = weights_file_in(directory)) {
    return is_index(*weights) ? open_indexed_shards(*weights) : open_single(*weights);
  }
  for (const auto name : kWeights) {
    if (leads_nowhere(directory / name)) {
      throw_bad_input("{}: {}", printable_path(directory / name), text_of_link(directory / name));
    }
  }
  refuse_nanogpt(directory);
  const std::string hub_name = hub_name_of(directory);
  throw_bad_input("{}: holds no {}, {} or index of either; {}", printable_path(directory),
                  kSingleFile, kTorchSingleFile,
                  hub_name.empty()
                      ? std::string(instead_of_weights(directory))
                      : fmt::format("`hf download {}` completes it if the hub has such files",
                                    printable(hub_name)));
}

}  // namespace

std::optional<fs::path> weights_file_in(const fs::path& directory) {
  for (const auto name : kWeights) {
    if (path_exists(directory / name)) {
      return directory / name;
    }
  }
  return std::nullopt;
}

fs::path resolve_weights_path(const fs::path& given) {
  const fs::path path = resolve_model_path(given);
  std::error_code unusable;
  if (!fs::is_directory(path, unusable) || weights_file_in(path) || is_meta_directory(path)) {
    return path;
  }
  return gguf_model_in(path).value_or(path);
}

fs::path directory_of_model(const fs::path& given) {
  const fs::path path = resolve_model_path(given);
  check_exists(path);
  return fs::is_directory(path) ? path : path.parent_path();
}

Checkpoint open_checkpoint(const fs::path& given) {
  const fs::path path = resolve_weights_path(given);
  check_exists(path);
  if (is_meta_directory(path)) {
    return open_meta_checkpoint(path);
  }
  std::vector<Checkpoint::Part> parts = fs::is_directory(path) ? open_weights_in(path)
                                        : is_index(path)       ? open_indexed_shards(path)
                                                               : open_single(path);
  remove_training_wrappers(parts);
  return Checkpoint(std::move(parts));
}

namespace {

// Weight files that are neither the model's nor a training's by their names.
std::vector<fs::path> other_weights(const fs::path& directory) {
  std::vector<fs::path> found;
  add_files(found, directory, "", [](const fs::directory_entry& entry) {
    return is_shown_file(entry) && is_weight_file(entry.path()) &&
           !is_model_or_state(entry.path()) && !leads_out(entry.path());
  });
  return found;
}

// Whether the file holds another part by its name: heads of BGE-M3, of a reward model or of Medusa,
// or LLaVA's projector.
bool is_other_part(const fs::path& file) {
  constexpr std::array<std::string_view, 6> kOtherParts{
      "colbert_linear", "sparse_linear", "value_head", "v_head", "mm_projector", "medusa_lm_head"};
  return contains(kOtherParts, file.stem().string());
}

std::vector<fs::path> companions_with_parts(const fs::path& directory) {
  std::vector<fs::path> found = companions_of(directory);
  std::ranges::copy_if(other_weights(directory), std::back_inserter(found), is_other_part);
  std::ranges::sort(found);
  return found;
}

}  // namespace

std::optional<fs::path> index_of_checkpoint(const fs::path& given) {
  const fs::path path = resolve_model_path(given);
  const auto weights = fs::is_directory(path) ? weights_file_in(path) : std::optional(path);
  return weights && is_index(*weights) ? weights : std::nullopt;
}

ModelDirectory open_model_directory(const fs::path& given) {
  const fs::path path = resolve_model_path(given);
  const fs::path directory = directory_of_model(path);
  const fs::path config_path = directory / kConfigFile;
  refuse_adapter(directory);
  if (!path_exists(config_path)) {
    refuse_nanogpt(path);
    if (path != directory) {
      static_cast<void>(open_checkpoint(path));  // says of another file what it is
    }
    throw_bad_input("{}: {} {}; not a model directory{}", printable_path(path),
                    path == directory ? "contains no" : "is in a directory without", kConfigFile,
                    path != directory && path.extension() == ".bin"
                        ? ", and files of llama2.c and llm.c are not read"
                        : "");
  }
  std::string text = read_text(config_path, kMaxConfigBytes);
  Json config = parse_json_object(text, printable_path(config_path));
  return {directory, std::move(text), std::move(config), open_checkpoint(path),
          companions_with_parts(directory)};
}

ModelDirectory open_meta_directory(const fs::path& path) {
  const fs::path params = path / kMetaParamsFile;
  std::string text = read_text(params, kMaxConfigBytes);
  Json config = parse_json_object(text, printable_path(params));
  return {path, std::move(text), std::move(config), open_meta_checkpoint(path),
          companions_of(path)};
}

// Parts of the model in folders include their weights.
std::vector<fs::path> companions_of(const fs::path& directory, bool outside) {
  std::vector<fs::path> found;
  add_files(found, directory, "", [&](const fs::directory_entry& entry) {
    return is_companion(entry) && leads_out(entry.path()) == outside;
  });
  std::vector<fs::path> folders = module_folders(directory);
  for (std::size_t i = 0; i < folders.size(); ++i) {  // with those in them: a router's modules
    const fs::path folder = folders[i];
    add_files(found, directory, folder, [&](const fs::directory_entry& entry) {
      return is_shown_file(entry) && leads_out(entry.path()) == outside;
    });
    for (const fs::directory_entry& entry : entries_in(directory / folder)) {
      if (is_own_folder(directory / folder, entry.path().filename())) {
        folders.push_back(folder / entry.path().filename());
      }
    }
  }
  if (is_own_folder(directory, kTemplatesFolder)) {
    add_files(found, directory, kTemplatesFolder, [&](const fs::directory_entry& entry) {
      return is_shown_file(entry) && entry.path().extension() == ".jinja" &&
             leads_out(entry.path()) == outside;
    });
  }
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

void copy_companions(const ModelDirectory& source, const fs::path& destination,
                     const std::vector<std::string>& left_out) {
  for (const fs::path& name : source.companions) {
    if (contains(left_out, name.string())) {
      continue;
    }
    fs::create_directories((destination / name).parent_path());
    const File from = File::open(source.path / name);
    File to = File::create(destination / name);
    to.copy_from(from, 0, 0, from.size());
    to.sync_and_close();
  }
}

namespace {

// One sentence for the links out of the directory, one for each that leads nowhere.
void add_notes_on_links(std::vector<std::string>& notes, const fs::path& directory) {
  std::error_code unknown;
  const std::vector<fs::path> outside = companions_of(directory, /*outside=*/true);
  std::string names, targets;
  for (const fs::path& name : outside) {
    const std::string_view comma = names.empty() ? "" : ", ";
    names += fmt::format("{}{}", comma, printable_path(name));
    targets += fmt::format("{}{}", comma, printable_path(fs::canonical(directory / name, unknown)));
  }
  if (!outside.empty()) {
    const bool one = outside.size() == 1;
    notes.push_back(fmt::format(
        "{} {} left out: {} out of the model's directory, to {}; copy by hand what belongs to the "
        "model",
        names, one ? "is" : "are", one ? "a link" : "links", targets));
  }
  for (const fs::directory_entry& entry : entries_in(directory)) {
    const fs::path name = entry.path().filename();
    if (leads_nowhere(entry.path()) && !name.string().starts_with('.') && !is_weight_file(name)) {
      notes.push_back(
          fmt::format("{} is left out: {}", printable_path(name), text_of_link(entry.path())));
    }
  }
}

}  // namespace

std::string text_of_left_tokenizer(const ModelDirectory& source) {
  constexpr std::array<std::string_view, 7> kFiles{
      "tokenizer.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model",
      "tekken.json",    "vocab.json",      "vocab.txt"};
  std::string left;
  for (const std::string_view name : kFiles) {
    const fs::path path = source.path / name;
    if (contains(source.companions, fs::path(name))) {
      return "";
    }
    if (left.empty() && (leads_nowhere(path) || leads_out(path))) {
      left = fmt::format(
          "the result has no {}, by which tokenizers are loaded: it is {}; copy that file by hand",
          name, leads_nowhere(path) ? text_of_link(path) : "a link out of the model's directory");
    }
  }
  return left;
}

std::vector<std::string> notes_on_companions(const ModelDirectory& source) {
  std::vector<std::string> notes;
  std::error_code unknown;
  if (!fs::is_directory(source.path, unknown)) {
    return notes;
  }
  add_notes_on_links(notes, source.path);
  for (const fs::path& name : other_weights(source.path)) {
    const auto& files = source.checkpoint.files();
    const bool own = std::ranges::any_of(
        files, [&](const File& file) { return file.path().filename() == name; });
    // Other safetensors files are most often copies of the model; other parts are saved by torch.
    const bool named = name.extension() != ".safetensors";
    if (named && !own && !contains(source.companions, name)) {
      notes.push_back(fmt::format(
          "{} is left out: weights of the model in another form, or of something else; copy that "
          "file by hand if the result needs it",
          printable_path(name)));
    }
  }
  return notes;
}

void refuse_output_inside(const ModelDirectory& source, const fs::path& destination) {
  if (lies_inside(destination, source.path)) {
    std::error_code unknown;
    throw_usage("{}: lies inside the source {}", printable_path(fs::absolute(destination, unknown)),
                printable_path(fs::weakly_canonical(source.path, unknown)));
  }
}

}  // namespace regroup
