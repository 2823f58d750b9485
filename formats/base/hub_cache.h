// Where models lie: paths as users write them, and the cache of the Hugging Face hub.
#pragma once

#include <filesystem>
#include <string>

namespace regroup {

// Where paths really point after links and mounts are resolved.

/// Whether `path`, which need not exist, is `directory` or is inside it. Links are followed.
/// Directories are compared by device and inode, so one that is mounted twice counts as the same.
bool lies_inside(const std::filesystem::path& path, const std::filesystem::path& directory);

/// Whether an entry of a model directory is a link that points outside it. Links into the blobs of
/// a hub cache do not count, because snapshots are stored that way.
bool leads_out(const std::filesystem::path& entry);

// Finds models by their Hugging Face hub name in the local cache. Nothing is downloaded.
// https://huggingface.co/docs/huggingface_hub/guides/manage-cache

/// The environment variables that locate the cache. Empty means not set.
struct HubEnvironment {
  std::string hf_hub_cache;    ///< HF_HUB_CACHE: the cache directory
  std::string hf_home;         ///< HF_HOME: its parent directory
  std::string xdg_cache_home;  ///< XDG_CACHE_HOME
  std::string home;            ///< HOME

  static HubEnvironment of_process();
};

/// The directory that holds the "models--org--name" and "models--name" directories. Empty if no
/// variable is set.
std::filesystem::path hub_cache_directory(const HubEnvironment& environment);

/// Returns `path` if it exists or does not have the form "org/name" or "org/name@revision", or
/// "name", as "gpt2", of a model in the cache. Otherwise returns that model's snapshot in the
/// cache. A revision is a branch, a tag, a commit or an unambiguous prefix of a commit; the default
/// is "main". Throws kBadInput naming the directory searched if the model or revision is missing.
std::filesystem::path resolve_model_path(
    const std::filesystem::path& path,
    const HubEnvironment& environment = HubEnvironment::of_process());

/// The "org/name" or "name" of the model whose snapshot in a cache is `path` or contains it
/// directly. Empty if `path` is elsewhere.
std::string hub_name_of(const std::filesystem::path& path);

}  // namespace regroup
