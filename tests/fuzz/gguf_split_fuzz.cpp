// The parts of a GGUF model: files between the separators, as the parts in the order of their
// names; then the model that they are. The first line is the name of a part.
#include <array>

#include "formats/tensors/gguf.h"
#include "tests/fuzz/fuzz_target.h"

namespace regroup {
namespace {

constexpr std::string_view kSeparator = "\n--part--\n";
constexpr std::size_t kMostParts = 4;

void join(std::string_view text) {
  static const std::array<MemoryFile, kMostParts> files;
  std::vector<GgufFile> parts;
  std::uint64_t tensors = 0;
  for (const MemoryFile& file : files) {
    const std::size_t end = text.find(kSeparator);
    file.hold(text.substr(0, end));
    parts.push_back(open_gguf(file.path()));
    tensors += parts.back().part.tensors.size();
    if (end == std::string_view::npos) {
      break;
    }
    text.remove_prefix(end + kSeparator.size());
  }
  const std::size_t count = parts.size();
  const GgufModelFiles model = join_gguf_parts(std::move(parts));
  std::uint64_t joined = 0;
  for (const Checkpoint::Part& part : model.parts) {
    joined += part.tensors.size();
  }
  if (model.parts.size() != count || joined != tensors || model.metadata.contains("split.no")) {
    ::abort();
  }
}

void read_name(std::string_view name) {
  const auto part = parse_gguf_part_name(name);
  if (part && part->text() != name) {
    ::abort();
  }
}

}  // namespace
}  // namespace regroup

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = regroup::text_of(data, size);
  const std::size_t line = text.find('\n');
  regroup::read_name(text.substr(0, line));
  if (line != std::string_view::npos) {
    regroup::refuse_or_read([&] { regroup::join(text.substr(line + 1)); });
  }
  return 0;
}
