#include "formats/staged_directory.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

#include "formats/error.h"
#include "formats/file.h"
#include "formats/printable.h"

namespace regroup {
namespace {

// "a/" and "a/." name the directory "a".
std::filesystem::path without_trailing_slash(std::filesystem::path path) {
  while (path.has_relative_path() && (!path.has_filename() || path.filename() == ".")) {
    path = path.parent_path();
  }
  return path;
}

// Renames without ever replacing; filesystems that cannot promise it get a check and a rename.
int rename_to_new(const std::filesystem::path& from, const std::filesystem::path& to) {
  const int result = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
  if (result == 0 || (errno != EINVAL && errno != ENOSYS)) {
    return result;
  }
  if (std::filesystem::exists(std::filesystem::symlink_status(to))) {
    errno = EEXIST;
    return -1;
  }
  return ::rename(from.c_str(), to.c_str());
}

}  // namespace

StagedDirectory::StagedDirectory(std::filesystem::path destination) {
  if (destination.empty()) {
    throw_usage("the destination has no name");
  }
  destination_ = without_trailing_slash(std::filesystem::absolute(destination));
  std::error_code fault;
  if (std::filesystem::exists(std::filesystem::symlink_status(destination_, fault))) {
    throw_usage("{}: exists already; name one that does not exist yet",
                printable(destination_.string(), 0));
  }
  staging_ = destination_;
  staging_ += fmt::format(".partial-{}", ::getpid());
  for (auto parent = destination_.parent_path(); !std::filesystem::exists(parent, fault);
       parent = parent.parent_path()) {
    ++parents_made_;
  }
  std::filesystem::create_directories(destination_.parent_path(), fault);
  if (!fault) {
    // Left by a killed run whose process number came round again: nobody else can be writing it.
    std::filesystem::remove_all(staging_, fault);
  }
  if (!fault) {
    std::filesystem::create_directory(staging_, fault);
  }
  if (fault) {
    discard();
    throw_environment("{}: cannot create: {}", printable(staging_.string(), 0), fault.message());
  }
}

StagedDirectory::~StagedDirectory() {
  if (!published_) {
    discard();
  }
}

void StagedDirectory::discard() const {
  std::error_code ignored;
  std::filesystem::remove_all(staging_, ignored);
  auto parent = destination_.parent_path();
  for (int i = 0; i < parents_made_; ++i) {
    std::filesystem::remove(parent, ignored);  // fails, as it should, where others put something
    parent = parent.parent_path();
  }
}

void StagedDirectory::rename_to_destination(const std::filesystem::path& from) const {
  if (rename_to_new(from, destination_) != 0) {
    throw_environment("{}: cannot publish: {}", printable(destination_.string(), 0),
                      std::strerror(errno));
  }
}

void StagedDirectory::publish() {
  sync_directory(staging_);
  rename_to_destination(staging_);
  published_ = true;
  sync_directory(destination_.parent_path());
}

void StagedDirectory::publish_file(const std::string& name) {
  sync_directory(staging_);
  rename_to_destination(staging_ / name);
  published_ = true;
  std::error_code ignored;
  std::filesystem::remove_all(staging_, ignored);
  sync_directory(destination_.parent_path());
}

}  // namespace regroup
