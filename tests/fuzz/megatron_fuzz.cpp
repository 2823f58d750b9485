// The index of Megatron's token files.
#include "formats/vocabulary/token_file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

// Indices are recognised by their names, so the file in memory gets a link with such a name.
std::filesystem::path name_for(const MemoryFile& file) {
  static const TemporaryDirectory directory;
  std::filesystem::path name = directory / "fuzz.idx";
  std::filesystem::create_symlink(file.path(), name);
  return name;
}

}  // namespace
}  // namespace regroup

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const regroup::MemoryFile file;
  static const std::filesystem::path name = regroup::name_for(file);
  file.hold(std::string(regroup::kMegatronMagic) + std::string(regroup::text_of(data, size)));
  regroup::refuse_or_read([&] {
    const auto index = regroup::MegatronIndex::beside(name);
    const std::int64_t tokens = index->count_tokens();
    std::int64_t last = 0;
    index->for_each_document([&](std::int64_t begin, std::int64_t end) {
      if (begin < last || begin >= end || end > tokens) {
        ::abort();
      }
      last = end;
    });
  });
  return 0;
}
