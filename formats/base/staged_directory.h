// A directory that gets its final name only when it is complete.
#pragma once

#include <filesystem>
#include <string>

#include "formats/base/file.h"

namespace regroup {

/// Throws kUsage if `destination` exists or is the empty path. Called before long work, to fail as
/// early as possible with the error that StagedDirectory throws.
void check_is_new(const std::filesystem::path& destination);

/// The name that a StagedDirectory's path() gets when it is published; any other path as it is.
std::filesystem::path name_when_published(const std::filesystem::path& directory);

/// The same of all paths of this process in an error: users know no other names.
std::string with_published_names(std::string text);

/// Built as "DST.partial-<pid>" in the same parent directory, then renamed: a reader sees nothing
/// or everything. If destroyed without publish(), it removes everything it created, including
/// parent directories. It also removes what a killed run left for the same destination, recognised
/// by its dead process and free lock.
class StagedDirectory {
 public:
  /// Creates missing parents. Throws kUsage if `destination` exists or is the empty path,
  /// kEnvironment if its parent is not writable.
  explicit StagedDirectory(std::filesystem::path destination);
  StagedDirectory(const StagedDirectory&) = delete;
  StagedDirectory& operator=(const StagedDirectory&) = delete;
  ~StagedDirectory();

  /// The directory to write to before publishing.
  const std::filesystem::path& path() const { return staging_; }
  const std::filesystem::path& destination() const { return destination_; }

  /// Flushes the directory and gives it its final name. Never replaces anything: throws
  /// kEnvironment if the name exists by now.
  void publish();

  /// Publishes a result that is one file: `name` in path() gets the final name; everything else is
  /// removed.
  void publish_file(const std::string& name);

  /// Call before publish_file(): moves the file `name` in path() to `beside`, in the destination's
  /// directory. It is removed again if the destination is not published.
  void publish_beside(const std::string& name, const std::filesystem::path& beside);

 private:
  void create();
  void remove_abandoned() const;
  void discard() const;
  static void rename(const std::filesystem::path& from, const std::filesystem::path& to);

  std::filesystem::path destination_;
  std::filesystem::path staging_;
  std::filesystem::path beside_;
  int parents_made_ = 0;
  Descriptor lock_;  ///< the open directory, locked while it is being written
  bool published_ = false;
};

}  // namespace regroup
