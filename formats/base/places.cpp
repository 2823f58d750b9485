#include "formats/base/places.h"

#include <algorithm>
#include <set>
#include <sys/stat.h>
#include <system_error>
#include <utility>

#include "formats/base/hub_cache.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

using Identity = std::pair<dev_t, ino_t>;

bool is_among(const std::set<Identity>& directories, const fs::path& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && directories.contains({status.st_dev, status.st_ino});
}

void add(std::set<Identity>& directories, const fs::path& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0) {
    directories.emplace(status.st_dev, status.st_ino);
  }
}

// The directory and its subdirectories. Models have only a few.
std::set<Identity> directories_of(const fs::path& directory) {
  constexpr std::size_t kEnough = 10'000;
  std::set<Identity> found;
  add(found, directory);
  std::error_code unusable;
  fs::recursive_directory_iterator entry(directory, fs::directory_options::skip_permission_denied,
                                         unusable);
  for (; !unusable && entry != fs::recursive_directory_iterator() && found.size() < kEnough;
       entry.increment(unusable)) {
    std::error_code unknown;
    if (entry->is_directory(unknown) && !entry->is_symlink(unknown)) {
      add(found, entry->path());
    }
  }
  return found;
}

bool begins_with(const fs::path& path, const fs::path& beginning) {
  return std::mismatch(beginning.begin(), beginning.end(), path.begin(), path.end()).first ==
         beginning.end();
}

// Whether `target` is <cache>/models--org--name/blobs/<hash> in the local hub cache.
bool is_cached_blob(const fs::path& target) {
  std::error_code unknown;
  const fs::path cache = fs::canonical(hub_cache_directory(HubEnvironment::of_process()), unknown);
  const fs::path blobs = target.parent_path();
  return !unknown && blobs.filename() == "blobs" &&
         blobs.parent_path().filename().string().starts_with("models--") &&
         blobs.parent_path().parent_path() == cache;
}

}  // namespace

bool lies_inside(const fs::path& path, const fs::path& directory) {
  const std::set<Identity> directories = directories_of(directory);
  std::error_code unknown;  // opening the path reports the error
  fs::path at = fs::weakly_canonical(fs::absolute(path, unknown), unknown);
  while (!is_among(directories, at)) {
    if (!at.has_relative_path()) {
      return false;
    }
    at = at.parent_path();
  }
  return true;
}

bool leads_out(const fs::path& entry) {
  std::error_code unknown;
  if (!fs::is_symlink(entry, unknown)) {
    return false;
  }
  const fs::path target = fs::canonical(entry, unknown);
  const fs::path home = fs::canonical(fs::absolute(entry).parent_path(), unknown);
  if (unknown) {
    return true;
  }
  const auto in_blobs_of = [&](const fs::path& snapshot) {
    return snapshot.parent_path().filename() == "snapshots" &&
           begins_with(target, snapshot.parent_path().parent_path() / "blobs");
  };
  return !begins_with(target, home) && !in_blobs_of(home) && !in_blobs_of(home.parent_path()) &&
         !is_cached_blob(target);
}

}  // namespace regroup
