// Where paths really point after links and mounts are resolved.
#pragma once

#include <filesystem>

namespace regroup {

/// Whether `path`, which need not exist, is `directory` or is inside it. Links are followed.
/// Directories are compared by device and inode, so one that is mounted twice counts as the same.
bool lies_inside(const std::filesystem::path& path, const std::filesystem::path& directory);

/// Whether an entry of a model directory is a link that points outside it. Links into the blobs of
/// a hub cache do not count, because snapshots are stored that way.
bool leads_out(const std::filesystem::path& entry);

}  // namespace regroup
