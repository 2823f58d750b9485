// Finds hub names in a cache made by the test; no name leads outside the cache.
#include "formats/base/hub_cache.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

const std::string kFirst = "aaaa111122223333444455556666777788889999";
const std::string kSecond = "aaab111122223333444455556666777788889999";

// A cache that has one model with two snapshots.
class Cache {
 public:
  Cache() {
    for (const std::string& commit : {kFirst, kSecond}) {
      put_file(model() / "snapshots" / commit / "config.json", commit);
    }
    put_file(model() / "refs" / "main", kFirst);
    put_file(old_model() / "snapshots" / kFirst / "config.json", kFirst);
    put_file(old_model() / "refs" / "main", kFirst);
    put_file(model() / "refs" / "refs" / "pr" / "1", kSecond + "\n");
  }

  fs::path model() const { return directory_ / "models--org--tiny-1.0"; }
  fs::path old_model() const { return directory_ / "models--gpt2"; }  // no organisation
  fs::path snapshot(const std::string& commit) const { return model() / "snapshots" / commit; }
  fs::path resolved(const std::string& name) const {
    return resolve_model_path(name, {.hf_hub_cache = directory_.path().string(),
                                     .hf_home = "",
                                     .xdg_cache_home = "",
                                     .home = ""});
  }
  Error refusal(const std::string& name) const {
    return refusal_of([&] { resolved(name); });
  }

 private:
  TemporaryDirectory directory_;
};

TEST_CASE("a name resolves to the snapshot of its main branch or of the given revision",
          "[formats]") {
  const Cache cache;
  CHECK(cache.resolved("org/tiny-1.0") == cache.snapshot(kFirst));
  CHECK(cache.resolved("org/tiny-1.0@main") == cache.snapshot(kFirst));
  CHECK(cache.resolved("org/tiny-1.0@refs/pr/1") == cache.snapshot(kSecond));
  CHECK(cache.resolved("org/tiny-1.0@" + kSecond) == cache.snapshot(kSecond));
  CHECK(cache.resolved("org/tiny-1.0@aaab") == cache.snapshot(kSecond));
  CHECK(cache.resolved("gpt2") == cache.old_model() / "snapshots" / kFirst);
  CHECK(cache.resolved("https://huggingface.co/gpt2@main") ==
        cache.old_model() / "snapshots" / kFirst);
  CHECK(cache.resolved("gpt3") == "gpt3");  // a file's name, for all that is known
  CHECK(cache.refusal("gpt2@other").kind() == ErrorKind::kBadInput);
}

TEST_CASE("a snapshot in a cache and files in it have the name of their model", "[formats]") {
  const Cache cache;
  CHECK(hub_name_of(cache.snapshot(kFirst)) == "org/tiny-1.0");
  CHECK(hub_name_of(cache.snapshot(kFirst) / "config.json") == "org/tiny-1.0");
  CHECK(hub_name_of(cache.old_model() / "snapshots" / kFirst) == "gpt2");
  CHECK(hub_name_of(cache.model()).empty());
  CHECK(hub_name_of(cache.model() / "refs" / "main").empty());
  CHECK(hub_name_of("/no/models--a--b/snapshots/c").empty());
  const TemporaryDirectory directory;
  for (const char* odd : {"models--", "models--a--", "models--..--b", "models--a--b c", "a--b"}) {
    CAPTURE(odd);
    fs::create_directories(directory / odd / "snapshots" / "c");
    CHECK(hub_name_of(directory / odd / "snapshots" / "c").empty());
  }
}

TEST_CASE("existing paths and names that are not hub names are returned unchanged", "[formats]") {
  const Cache cache;
  CHECK(cache.resolved(cache.model().string()) == cache.model());
  for (const char* path : {"/no/such/path", "no-slash", "./org/tiny-1.0", "../org/tiny-1.0",
                           "a/b/c", "org/", "org/..", "o rg/tiny"}) {
    CAPTURE(path);
    CHECK(cache.resolved(path) == fs::path(path));
  }
}

TEST_CASE("a model or revision missing from the cache is refused with the path searched",
          "[formats]") {
  const Cache cache;
  CHECK_THAT(cache.refusal("org/other"),
             is_bad_input("org/other", "no such file", "models--org--other", "hf download"));
  CHECK_THAT(cache.refusal("https://huggingface.co/org/other"),
             is_bad_input("`hf download org/other`"));
  CHECK_THAT(cache.refusal("org/tiny-1.0@v2"), is_bad_input("models--org--tiny-1.0", "v2"));
  CHECK_THAT(cache.refusal("org/tiny-1.0@bbbb"), is_bad_input("snapshots/bbbb"));
  CHECK_THAT(cache.refusal("org/tiny-1.0@aaa"), is_bad_input("2 snapshots begin with aaa"));
  put_file(cache.model() / "refs" / "gone", std::string(40, 'f'));
  CHECK_THAT(cache.refusal("org/tiny-1.0@gone"), is_bad_input("no such snapshot", "gone"));
  CHECK_THAT(refusal_of([] { resolve_model_path("org/name", HubEnvironment{}); }),
             is_bad_input("org/name", "none is set"));
}

TEST_CASE("no revision and no content of a ref leads outside the cache", "[formats]") {
  const Cache cache;
  for (const char* revision : {"", "../../x", "a/../../x", "/etc/passwd", ".", "..", "refs//.."}) {
    CAPTURE(revision);
    CHECK_THAT(cache.refusal(std::string("org/tiny-1.0@") + revision),
               is_bad_input("is no revision"));
  }
  for (const std::string& content : {std::string("../../../etc"), std::string("../") + kFirst,
                                     std::string(), std::string("/"), std::string("\x1b[2J")}) {
    CAPTURE(content);
    put_file(cache.model() / "refs" / "evil", content);
    CHECK_THAT(cache.refusal("org/tiny-1.0@evil"), is_bad_input("refs/evil", "a commit is needed"));
  }
  put_file(cache.model() / "refs" / "long", std::string(5000, 'a'));
  CHECK_THAT(cache.refusal("org/tiny-1.0@long"), is_bad_input("refs/long", "5000 bytes"));
}

TEST_CASE("the first environment variable that is set gives the cache directory", "[formats]") {
  HubEnvironment environment{
      .hf_hub_cache = "/cache", .hf_home = "/hf", .xdg_cache_home = "/xdg", .home = "/home/me"};
  CHECK(hub_cache_directory(environment) == "/cache");
  environment.hf_hub_cache.clear();
  CHECK(hub_cache_directory(environment) == "/hf/hub");
  environment.hf_home.clear();
  CHECK(hub_cache_directory(environment) == "/xdg/huggingface/hub");
  environment.xdg_cache_home.clear();
  CHECK(hub_cache_directory(environment) == "/home/me/.cache/huggingface/hub");
  environment.home.clear();
  CHECK(hub_cache_directory(environment).empty());
}

}  // namespace
}  // namespace regroup
