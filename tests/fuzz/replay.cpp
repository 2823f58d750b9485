// Runs a fuzz target on stored inputs without libFuzzer. The arguments are files and folders.
#include <cstdio>
#include <string>

#include "tests/file_tree.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

int replay(const std::filesystem::path& file) {
  const std::string bytes = regroup::bytes_of_file(file);
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  int count = 0;
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      count += replay(argv[i]);
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      count += entry.is_regular_file() ? replay(entry.path()) : 0;
    }
  }
  std::printf("%d inputs\n", count);
  return count > 0 ? 0 : 1;
}
