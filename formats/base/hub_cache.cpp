#include "formats/base/hub_cache.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"

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

namespace {

constexpr std::uint64_t kMaxRefBytes = 4096;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The characters allowed in hub names; no ".." or other way out of the directory.
bool is_plain_name(std::string_view name) {
  constexpr std::string_view kAllowed =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.";
  return !name.empty() && name.front() != '.' && name.find_first_not_of(kAllowed) == name.npos;
}

bool is_commit(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

struct HubName {
  std::string organisation;  // empty for "gpt2" and a few more of the hub's oldest
  std::string name, revision;

  std::string text() const { return organisation.empty() ? name : organisation + "/" + name; }
  std::string folder() const {
    return organisation.empty() ? "models--" + name : "models--" + organisation + "--" + name;
  }
};

// A name of the form "[org/]name[@revision]", also as an address of the hub; a revision may contain
// slashes ("refs/pr/1").
std::optional<HubName> parse_name(std::string text) {
  for (const std::string_view hub : {"https://huggingface.co/", "https://hf.co/", "hf://"}) {
    if (text.starts_with(hub)) {
      text.erase(0, hub.size());
    }
  }
  const std::size_t at = text.find('@');
  const std::string repository = text.substr(0, at);
  const std::size_t slash = repository.find('/');
  const bool alone = slash == std::string::npos;
  HubName parsed{alone ? "" : repository.substr(0, slash),
                 alone ? repository : repository.substr(slash + 1),
                 at == std::string::npos ? "main" : text.substr(at + 1)};
  const bool plain =
      is_plain_name(parsed.name) &&
      (alone ? parsed.name.find("--") == std::string::npos  // "--" is the slash of org/name
             : is_plain_name(parsed.organisation));
  return plain ? std::optional(parsed) : std::nullopt;
}

bool is_safe_revision(const std::string& revision) {
  const fs::path parts(revision);
  return !revision.empty() && revision.front() != '/' &&
         std::all_of(parts.begin(), parts.end(),
                     [](const fs::path& part) { return is_plain_name(part.string()); });
}

// The commit that refs/<revision> names, if there is such a file.
std::optional<std::string> commit_of_ref(const fs::path& model, const std::string& revision) {
  const fs::path ref = model / "refs" / revision;
  if (!is_file_there(ref)) {
    return std::nullopt;
  }
  std::string commit = read_text(ref, kMaxRefBytes);
  commit.erase(commit.find_last_not_of(" \t\r\n") + 1);
  if (!is_commit(commit)) {
    throw_bad_input("{}: holds \"{}\", a commit is needed", printable_path(ref), printable(commit));
  }
  return commit;
}

std::vector<std::string> snapshots_beginning_with(const fs::path& model,
                                                  const std::string& beginning) {
  std::vector<std::string> found;
  std::error_code fault;
  for (fs::directory_iterator entry(model / "snapshots", fault), end; !fault && entry != end;
       entry.increment(fault)) {
    const std::string name = entry->path().filename().string();
    if (is_commit(name) && name.starts_with(beginning)) {
      found.push_back(name);
    }
  }
  std::ranges::sort(found);
  return found;
}

// What `hf download` takes for this model.
std::string download_of(const HubName& wanted) {
  const std::string revision =
      wanted.revision == "main" ? "" : fmt::format(" --revision {}", printable(wanted.revision));
  return printable(wanted.text()) + revision;
}

fs::path find_snapshot(const fs::path& model, const HubName& wanted) {
  std::string commit = wanted.revision;
  if (const auto named = commit_of_ref(model, wanted.revision)) {
    commit = *named;
  } else if (is_commit(wanted.revision)) {
    const std::vector<std::string> found = snapshots_beginning_with(model, wanted.revision);
    if (found.size() > 1) {
      throw_bad_input("{}: {} snapshots begin with {}", printable_path(model), found.size(),
                      printable(wanted.revision));
    }
    commit = found.empty() ? commit : found.front();
  } else {
    throw_bad_input("{}: has no revision {}; `hf download {}` fetches it", printable_path(model),
                    printable(wanted.revision), download_of(wanted));
  }
  const fs::path snapshot = model / "snapshots" / commit;
  if (!is_directory_there(snapshot)) {
    throw_bad_input("{}: no such snapshot of revision {}; `hf download {}` fetches it",
                    printable_path(snapshot), printable(wanted.revision), download_of(wanted));
  }
  return snapshot;
}

}  // namespace

HubEnvironment HubEnvironment::of_process() {
  return {variable("HF_HUB_CACHE"), variable("HF_HOME"), variable("XDG_CACHE_HOME"),
          variable("HOME")};
}

fs::path hub_cache_directory(const HubEnvironment& environment) {
  if (!environment.hf_hub_cache.empty()) {
    return environment.hf_hub_cache;
  }
  if (!environment.hf_home.empty()) {
    return fs::path(environment.hf_home) / "hub";
  }
  if (!environment.xdg_cache_home.empty()) {
    return fs::path(environment.xdg_cache_home) / "huggingface" / "hub";
  }
  return environment.home.empty() ? fs::path()
                                  : fs::path(environment.home) / ".cache" / "huggingface" / "hub";
}

fs::path resolve_model_path(const fs::path& path, const HubEnvironment& environment) {
  const auto name = path_exists(path) ? std::nullopt : parse_name(path.string());
  if (!name) {
    return path;
  }
  const fs::path cache = hub_cache_directory(environment);
  const fs::path model = cache / name->folder();
  const bool cached = !cache.empty() && is_directory_there(model);
  if (!cached && name->organisation.empty()) {
    return path;  // a file's name, for all that is known
  }
  if (!is_safe_revision(name->revision)) {
    throw_bad_input("{}: \"{}\" is no revision", printable_path(path), printable(name->revision));
  }
  if (!cached) {
    throw_bad_input(
        "{0}: no such file or directory, and no model of that name in the local hub cache ({1}); "
        "`hf download {2}` puts it there if the hub has it",
        printable_path(path), cache.empty() ? "none is set" : printable_path(model),
        download_of(*name));
  }
  return find_snapshot(model, *name);
}

std::string hub_name_of(const fs::path& path) {
  constexpr std::string_view kPrefix = "models--", kSlash = "--";
  std::error_code fault;
  const fs::path real = fs::canonical(path, fault);
  for (const fs::path& snapshot : {real, real.parent_path()}) {
    const std::string folder = snapshot.parent_path().parent_path().filename().string();
    if (snapshot.parent_path().filename() != "snapshots" || !folder.starts_with(kPrefix)) {
      continue;
    }
    std::string name = folder.substr(kPrefix.size());
    if (const std::size_t slash = name.find(kSlash); slash != std::string::npos) {
      name.replace(slash, kSlash.size(), "/");
    }
    if (const auto parsed = parse_name(name); parsed && parsed->text() == name) {
      return name;
    }
  }
  return "";
}

}  // namespace regroup
