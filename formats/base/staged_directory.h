// A directory that appears under its name only when it is complete.
#pragma once

#include <filesystem>
#include <string>

namespace regroup {

/// Throws kUsage if `destination` exists or is empty: what StagedDirectory throws, ahead of long
/// work.
void check_is_new(const std::filesystem::path& destination);

/// Built beside its final name ("DST.partial-<pid>"), then renamed: a reader sees nothing or all.
/// Destroyed without publish(), it leaves nothing behind, parents made for it included. What a
/// killed run left for the same destination is removed: its process is gone and its lock is free.
class StagedDirectory {
 public:
  /// Makes missing parents. Throws kUsage if `destination` exists or is empty, kEnvironment if its
  /// parent cannot be written to.
  explicit StagedDirectory(std::filesystem::path destination);
  StagedDirectory(const StagedDirectory&) = delete;
  StagedDirectory& operator=(const StagedDirectory&) = delete;
  ~StagedDirectory();

  /// Where to write for now.
  const std::filesystem::path& path() const { return staging_; }
  const std::filesystem::path& destination() const { return destination_; }

  /// Flushes the directory and gives it its final name. Never replaces anything: throws
  /// kEnvironment if the name was taken in the meantime.
  void publish();

  /// The same for a result that is one file: `name`, in path(), gets the final name itself, and
  /// nothing else stays.
  void publish_file(const std::string& name);

  /// Ahead of publish_file(): gives another file in path() the name `beside`, in the destination's
  /// directory. It goes away again if the destination does not come to be.
  void publish_beside(const std::string& name, const std::filesystem::path& beside);

 private:
  void create();
  void lock();
  void remove_abandoned() const;
  void discard() const;
  static void rename(const std::filesystem::path& from, const std::filesystem::path& to);

  std::filesystem::path destination_;
  std::filesystem::path staging_;
  std::filesystem::path beside_;
  int parents_made_ = 0;
  int lock_ = -1;  ///< the open directory, locked as long as somebody writes to it
  bool published_ = false;
};

}  // namespace regroup
