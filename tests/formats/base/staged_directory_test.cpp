#include "formats/base/staged_directory.h"

#include <fcntl.h>
#include <optional>
#include <set>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

TEST_CASE("a staged directory appears under its name when it is published", "[formats]") {
  const TemporaryDirectory parent;
  {
    StagedDirectory staged(parent / "model");
    put_file(staged.path() / "file", "text");
    CHECK_FALSE(fs::exists(parent / "model"));
    CHECK(staged.path().parent_path() == parent.path());
    staged.publish();
  }
  CHECK((tree_of(parent.path()) ==
         std::map<std::string, std::string>{{"model/", ""}, {"model/file", "text"}}));
}

TEST_CASE("publish_file publishes one file and never replaces another", "[formats]") {
  const TemporaryDirectory parent;
  {
    StagedDirectory staged(parent / "model.gguf");
    put_file(staged.path() / "weights", "text");
    put_file(staged.path() / "scratch", "other");
    staged.publish_file("weights");
  }
  CHECK((tree_of(parent.path()) == std::map<std::string, std::string>{{"model.gguf", "text"}}));
  StagedDirectory late(parent / "second");
  put_file(late.path() / "weights", "new");
  put_file(parent / "second", "taken");
  CHECK_THAT(refusal_of([&] { late.publish_file("weights"); }),
             is_environment_failure("second", "File exists"));
  CHECK(bytes_of_file(parent / "second") == "taken");
}

TEST_CASE("a staged directory that is not published leaves nothing", "[formats]") {
  const TemporaryDirectory parent;
  {
    const StagedDirectory staged(parent / "model");
    put_file(staged.path() / "inner" / "file", "text");
  }
  CHECK(tree_of(parent.path()).empty());
}

TEST_CASE("unused parents are removed with the staged directory and used ones are kept",
          "[formats]") {
  const TemporaryDirectory parent;
  {
    const StagedDirectory staged(parent / "new" / "deep" / "model");
  }
  CHECK(tree_of(parent.path()).empty());

  std::optional<StagedDirectory> staged(parent / "new" / "deep" / "model");
  put_file(parent / "new" / "other", "text");
  staged.reset();
  CHECK((tree_of(parent.path()) ==
         std::map<std::string, std::string>{{"new/", ""}, {"new/other", "text"}}));

  StagedDirectory kept(parent / "new" / "deep" / "model");
  kept.publish();
  CHECK(fs::is_directory(parent / "new" / "deep" / "model"));
}

TEST_CASE("an existing destination of any kind is refused", "[formats]") {
  const TemporaryDirectory parent;
  put_file(parent / "file", "text");
  fs::create_directory(parent / "directory");
  fs::create_symlink("nowhere", parent / "dangling");
  fs::create_symlink("loop", parent / "loop");
  const auto before = tree_of(parent.path());
  for (const char* name : {"file", "directory", "directory/", "directory/.", "dangling", "loop"}) {
    CAPTURE(name);
    CHECK_THAT(refusal_of([&] { StagedDirectory(parent / name); }),
               is_wrong_usage(parent.path().string(), "exists already"));
  }
  CHECK_THAT(refusal_of([] { StagedDirectory("/"); }), is_wrong_usage("/", "exists already"));
  CHECK((tree_of(parent.path()) == before));
}

TEST_CASE("an empty destination is refused", "[formats]") {
  CHECK_THAT(refusal_of([] { StagedDirectory(""); }), is_wrong_usage());
}

TEST_CASE("a trailing slash or dot names the same directory", "[formats]") {
  const TemporaryDirectory parent;
  for (const char* name : {"a/", "b//", "c/.", "d/./"}) {
    CAPTURE(name);
    StagedDirectory staged(parent / name);
    staged.publish();
    CHECK(fs::is_directory(parent / std::string(name).substr(0, 1)));
  }
  CHECK((tree_of(parent.path()).size() == 4));
}

TEST_CASE("publishing never replaces a directory created in the meantime", "[formats]") {
  const TemporaryDirectory parent;
  {
    StagedDirectory staged(parent / "model");
    fs::create_directory(parent / "model");  // empty: a plain rename would replace it
    CHECK_THAT(refusal_of([&] { staged.publish(); }), is_environment_failure("model", "publish"));
  }
  CHECK((tree_of(parent.path()) == std::map<std::string, std::string>{{"model/", ""}}));
}

TEST_CASE("a parent that cannot hold directories is a failure of the environment", "[formats]") {
  const TemporaryDirectory parent;
  put_file(parent / "file", "text");
  CHECK_THAT(refusal_of([&] { StagedDirectory(parent / "file" / "model"); }),
             is_environment_failure("cannot create"));
  CHECK_THAT(refusal_of([] { StagedDirectory("/proc/regroup-test"); }),
             is_environment_failure("/proc/regroup-test", "cannot create"));
}

TEST_CASE("a read-only parent is a failure of the environment", "[formats]") {
  if (::geteuid() == 0) {
    SKIP("root may write everywhere");
  }
  const TemporaryDirectory parent;
  fs::create_directory(parent / "fixed");
  fs::permissions(parent / "fixed", fs::perms::owner_read | fs::perms::owner_exec);
  CHECK_THAT(refusal_of([&] { StagedDirectory(parent / "fixed" / "model"); }),
             is_environment_failure("cannot create", "Permission denied"));
  CHECK(tree_of(parent / "fixed").empty());
}

TEST_CASE("partial directories of killed runs are removed and those possibly in use are kept",
          "[formats]") {
  const TemporaryDirectory parent;
  const pid_t dead = ::fork();
  if (dead == 0) {
    ::_exit(0);
  }
  ::waitpid(dead, nullptr, 0);
  const std::string abandoned = "model.partial-" + std::to_string(dead);
  const std::string living = "model.partial-" + std::to_string(::getppid());
  for (const std::string& name : {abandoned, living, std::string("model.partial-x"),
                                  "other.partial-" + std::to_string(dead)}) {
    put_file(parent / name / "weights", "text");
  }
  const auto names = [&] {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(parent.path())) {
      found.insert(entry.path().filename().string());
    }
    return found;
  };
  SECTION("the lock is free") {
    StagedDirectory(parent / "model").publish();
    CHECK((names() == std::set<std::string>{"model", living, "model.partial-x",
                                            "other.partial-" + std::to_string(dead)}));
  }
  SECTION("another process holds the lock") {
    const int holder = ::open((parent / abandoned).c_str(), O_RDONLY | O_DIRECTORY);
    REQUIRE(::flock(holder, LOCK_EX) == 0);
    StagedDirectory(parent / "model").publish();
    CHECK(names().contains(abandoned));
    ::close(holder);
  }
}

}  // namespace
}  // namespace regroup
