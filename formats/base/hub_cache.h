// Models by their name on the Hugging Face hub, found in the local cache; nothing is downloaded.
// https://huggingface.co/docs/huggingface_hub/guides/manage-cache
#pragma once

#include <filesystem>
#include <string>

namespace regroup {

/// The environment variables that say where the cache is; empty: not set.
struct HubEnvironment {
  std::string hf_hub_cache;    ///< HF_HUB_CACHE: the cache itself
  std::string hf_home;         ///< HF_HOME: what holds it
  std::string xdg_cache_home;  ///< XDG_CACHE_HOME
  std::string home;            ///< HOME

  static HubEnvironment of_process();
};

/// The directory that holds "models--org--name" directories; empty where nothing says.
std::filesystem::path hub_cache_directory(const HubEnvironment& environment);

/// `path` itself, unless there is nothing under it and it reads "org/name" or "org/name@revision":
/// then the snapshot of that model in the cache. A revision is a branch or tag ("main" unless
/// given), a commit or a beginning of one that only one snapshot has. Throws kBadInput naming where
/// it looked when the model or the revision is not there.
std::filesystem::path resolve_model_path(const std::filesystem::path& path,
                                         const HubEnvironment& environment);

/// The same in the environment of this process.
std::filesystem::path resolve_model_path(const std::filesystem::path& path);

}  // namespace regroup
