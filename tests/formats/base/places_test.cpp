// Whether a path is inside a directory, through links, mounts and "..".
#include <cstdlib>

#include <catch2/catch_test_macros.hpp>

#include "formats/base/hub_cache.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

}  // namespace

TEST_CASE("lies_inside follows links and dot-dot components", "[formats]") {
  const TemporaryDirectory directory;
  const fs::path home = directory / "home";
  put_file(home / "deep/file", "");
  fs::create_directory_symlink(home, directory / "link");
  fs::create_directory_symlink(home / "deep", directory / "deep-link");
  for (const fs::path& inside :
       {home, home / "new", home / "new/newer", home / "deep/new", directory / "link/new",
        directory / "deep-link/new", directory / "x/../home/new", home / "deep/file/new"}) {
    CAPTURE(inside);
    CHECK(lies_inside(inside, home));
  }
  for (const fs::path& outside : {directory / "new", directory / "home2", home / "../new",
                                  fs::path("/"), directory / "deep-link/../../new"}) {
    CAPTURE(outside);
    CHECK_FALSE(lies_inside(outside, home));
  }
}

TEST_CASE("leads_out finds the links that point outside their directory", "[formats]") {
  const TemporaryDirectory directory;
  const fs::path home = directory / "home";
  put_file(home / "file", "");
  put_file(home / "below/file", "");
  put_file(directory / "secret", "");
  put_file(directory / "homely", "");
  fs::create_symlink("file", home / "inside");
  fs::create_symlink("below/file", home / "below-link");
  fs::create_symlink("../home/file", home / "round");
  fs::create_symlink("../secret", home / "out");
  fs::create_symlink("../homely", home / "near");
  fs::create_symlink("out", home / "twice");
  fs::create_symlink("gone", home / "dangling");
  for (const char* name : {"file", "inside", "below-link", "round"}) {
    CAPTURE(name);
    CHECK_FALSE(leads_out(home / name));
  }
  for (const char* name : {"out", "near", "twice", "dangling"}) {
    CAPTURE(name);
    CHECK(leads_out(home / name));
  }
}

TEST_CASE("links into the blobs of a hub cache do not lead out", "[formats]") {
  const TemporaryDirectory directory;
  const fs::path model = directory / "cache/models--org--name";
  put_file(model / "blobs/0123", "");
  put_file(model / "elsewhere/0123", "");
  const fs::path snapshot = model / "snapshots/abc";
  fs::create_directories(snapshot);
  fs::create_symlink("../../blobs/0123", snapshot / "file");
  fs::create_symlink("../../elsewhere/0123", snapshot / "other");
  CHECK_FALSE(leads_out(snapshot / "file"));
  CHECK(leads_out(snapshot / "other"));
  // Downloads to a local directory may also be links into the cache.
  const fs::path own = directory / "own";
  fs::create_directories(own);
  fs::create_symlink(model / "blobs/0123", own / "file");
  fs::create_symlink(model / "elsewhere/0123", own / "other");
  CHECK(leads_out(own / "file"));
  REQUIRE(::setenv("HF_HUB_CACHE", (directory / "cache").c_str(), 1) == 0);
  CHECK_FALSE(leads_out(own / "file"));
  CHECK(leads_out(own / "other"));
  REQUIRE(::unsetenv("HF_HUB_CACHE") == 0);
}

}  // namespace regroup
