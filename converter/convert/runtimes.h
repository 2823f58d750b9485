// What programs that serve models do with a result's directory, as measured.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/json.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Runtimes that load a directory. llama.cpp takes GGUF files: see gguf_metadata_for().
enum class Runtime { kVllm, kMlxLm, kCTranslate2 };

inline constexpr std::array kRuntimes{Runtime::kVllm, Runtime::kMlxLm, Runtime::kCTranslate2};

std::string_view name_of(Runtime runtime);

enum class Loading {
  kSame,             ///< computes what transformers computes, and caches only the kv heads
  kByCarriedCode,    ///< the same, by the code in the directory, with options that allow it
  kNotThisResult,    ///< an error: it loads the architecture, but not with these heads
  kNotThisFamily,    ///< an error: it does not load the architecture with any heads
  kByCarriedConfig,  ///< the same, by its own model class and the config class in the directory
  kSomethingElse,    ///< computes something else, without an error
  kUnknown,          ///< not tried
};

/// A directory for runtimes: its config.json and spec.
struct Served {
  const Json& config;
  const ModelSpec& spec;
};

/// What happens when `runtime` loads the directory. The matrix in docs/compatibility.md shows the
/// same; tests/interop/runtimes checks both.
Loading loading_in(Runtime runtime, const Served& served);

/// Why a runtime computes something else: a sentence about it. Empty if it does not.
std::string_view difference_in(Runtime runtime, const Served& served);

/// Whether the layers differ and --target nemotron-nas writes them, which vLLM and mlx-lm load: no
/// sliding windows, heads that fill the hidden size, MLPs of multiples of 256.
bool has_layers_of_nas(const ModelSpec& spec);

/// The runtimes that load it without further options, such as "vLLM and mlx-lm"; may be empty.
std::string runtimes_that_load(const Served& served);

/// Notes on what `result` loses in these runtimes, one line each. `source` is the model that was
/// converted: that a runtime does not load an architecture is said only where it is another one.
std::vector<std::string> runtime_notes(const ModelSpec& source, const Served& result);

/// One line for each runtime that would compute something else from `result` without an error.
std::vector<std::string> runtime_warnings(const Served& result);

/// Whether transformers' own classes cache a key and a value for every query head of this spec,
/// whatever the number of kv heads.
bool transformers_caches_all_heads(const ModelSpec& spec);

}  // namespace regroup
