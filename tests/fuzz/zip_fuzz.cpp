// A ZIP archive: its directory and entries.
#include "formats/tensors/zip_archive.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const regroup::MemoryFile memory;
  memory.hold(regroup::text_of(data, size));
  regroup::refuse_or_read([&] {
    const regroup::File file = regroup::File::open(memory.path());
    std::uint64_t end = 0;
    for (const regroup::ZipEntry& entry : regroup::read_zip_directory(file)) {
      // Entries do not overlap, so that an archive never unpacks to more than its own size.
      if (entry.data_at < end || entry.data_at + entry.size > file.size()) {
        ::abort();
      }
      end = entry.data_at + entry.size;
      regroup::refuse_or_read([&] { regroup::read_zip_entry(file, entry, 256); });
    }
  });
  return 0;
}
