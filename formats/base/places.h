// Where files really lie: what links and mounts make of names.
#pragma once

#include <filesystem>

namespace regroup {

/// Whether `path`, which need not exist, is `directory` or would lie in it or in a directory below,
/// whatever the names: links are followed, and directories are compared as the filesystem knows
/// them, so that one that is mounted in two places is the same.
bool lies_inside(const std::filesystem::path& path, const std::filesystem::path& directory);

/// Whether an entry of a model's directory is a link that leads out of it. Those into the blobs of
/// a hub cache do not: that is how snapshots are kept there.
bool leads_out(const std::filesystem::path& entry);

}  // namespace regroup
