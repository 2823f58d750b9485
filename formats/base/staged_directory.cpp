#include "formats/base/staged_directory.h"

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <string_view>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

constexpr std::string_view kPartial = ".partial-";

// Opens and locks a directory. Returns none if that fails or another process has locked it.
Descriptor open_and_lock(const std::filesystem::path& directory) {
  Descriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  return opened.is_open() && ::flock(opened.number(), LOCK_EX | LOCK_NB) == 0 ? std::move(opened)
                                                                              : Descriptor();
}

// Whether `digits` are the id of a process that no longer exists.
bool is_dead(std::string_view digits) {
  pid_t process = 0;
  const auto [end, fault] = std::from_chars(digits.begin(), digits.end(), process);
  return fault == std::errc() && end == digits.end() && process > 0 && ::kill(process, 0) != 0 &&
         errno == ESRCH;
}

// "a/" and "a/." name the directory "a".
std::filesystem::path without_trailing_slash(std::filesystem::path path) {
  while (path.has_relative_path() && (!path.has_filename() || path.filename() == ".")) {
    path = path.parent_path();
  }
  return path;
}

// Renames without replacing. If the filesystem cannot guarantee that, checks first and then
// renames.
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

std::filesystem::path name_when_published(const std::filesystem::path& directory) {
  const std::string name = directory.filename().string();
  return directory.parent_path() / name.substr(0, name.rfind(kPartial));  // npos: all of it
}

std::string with_published_names(std::string text) {
  const std::string staged = fmt::format("{}{}", kPartial, ::getpid());
  for (std::size_t at = 0; (at = text.find(staged, at)) != text.npos;) {
    const std::size_t end = at + staged.size();
    const bool whole = end == text.size() || text[end] < '0' || text[end] > '9';
    if (whole) {
      text.erase(at, staged.size());
    } else {
      at = end;
    }
  }
  return text;
}

void check_is_new(const std::filesystem::path& destination) {
  if (destination.empty()) {
    throw_usage("the destination has no name");
  }
  const auto path = without_trailing_slash(std::filesystem::absolute(destination));
  std::error_code fault;
  if (std::filesystem::exists(std::filesystem::symlink_status(path, fault))) {
    throw_usage("{}: exists already; name one that does not exist yet", printable_path(path));
  }
}

StagedDirectory::StagedDirectory(std::filesystem::path destination) {
  check_is_new(destination);
  destination_ = without_trailing_slash(std::filesystem::absolute(destination));
  std::error_code fault;
  staging_ = destination_;
  staging_ += fmt::format("{}{}", kPartial, ::getpid());
  for (auto parent = destination_.parent_path(); !std::filesystem::exists(parent, fault);
       parent = parent.parent_path()) {
    ++parents_made_;
  }
  create();
  lock_ = open_and_lock(staging_);  // on filesystems without locks, nothing is considered abandoned
  remove_abandoned();
}

void StagedDirectory::create() {
  std::error_code fault;
  std::filesystem::create_directories(destination_.parent_path(), fault);
  if (!fault) {
    // A killed run whose process id was reused may have left it. No other process can be writing to
    // it.
    std::filesystem::remove_all(staging_, fault);
  }
  if (!fault) {
    std::filesystem::create_directory(staging_, fault);
  }
  if (fault) {
    discard();
    throw_environment("{}: cannot create: {}", printable_path(destination_), fault.message());
  }
}

void StagedDirectory::remove_abandoned() const {
  const std::string prefix = destination_.filename().string() + std::string(kPartial);
  std::error_code ignored;
  for (const auto& entry : entries_in(destination_.parent_path(), ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix) || !is_dead(std::string_view(name).substr(prefix.size()))) {
      continue;
    }
    if (const Descriptor abandoned = open_and_lock(entry.path()); abandoned.is_open()) {
      std::filesystem::remove_all(entry.path(), ignored);
    }
  }
}

StagedDirectory::~StagedDirectory() {
  lock_.close();  // first: to remove a directory takes a descriptor, which may be the last one
  if (!published_) {
    discard();
  }
}

void StagedDirectory::discard() const {
  std::error_code ignored;
  std::filesystem::remove_all(staging_, ignored);
  std::filesystem::remove(staging_, ignored);  // takes no descriptor if it is empty
  if (!beside_.empty()) {
    std::filesystem::remove(beside_, ignored);
  }
  auto parent = destination_.parent_path();
  for (int i = 0; i < parents_made_; ++i) {
    std::filesystem::remove(parent, ignored);  // fails, as intended, if it is not empty
    parent = parent.parent_path();
  }
}

void StagedDirectory::rename(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (rename_to_new(from, to) != 0) {
    throw_environment("{}: cannot publish: {}", printable_path(to), std::strerror(errno));
  }
}

void StagedDirectory::publish() {
  sync_directory(staging_);
  rename(staging_, destination_);
  published_ = true;
  sync_directory(destination_.parent_path());
}

void StagedDirectory::publish_file(const std::string& name) {
  sync_directory(staging_);
  rename(staging_ / name, destination_);
  published_ = true;
  std::error_code ignored;
  std::filesystem::remove_all(staging_, ignored);
  sync_directory(destination_.parent_path());
}

void StagedDirectory::publish_beside(const std::string& name, const std::filesystem::path& beside) {
  rename(staging_ / name, beside);
  beside_ = beside;
}

}  // namespace regroup
