#include "converter/heads.h"

#include <string>

#include <catch2/catch_test_macros.hpp>

namespace regroup {
namespace {

using Numbers = std::vector<std::int64_t>;

TEST_CASE("heads of a weight stored [out, in] are runs of whole rows", "[converter]") {
  const HeadBlocks blocks = head_blocks({8, 5}, false, Numbers{0, 6}, 2);
  CHECK(blocks.first == Numbers{0, 30});
  CHECK(blocks.runs == 1);
  CHECK(blocks.run == 10);
  CHECK(blocks.heads() == 2);
}

TEST_CASE("heads of a weight stored [in, out] are columns, one run per row", "[converter]") {
  const HeadBlocks blocks = head_blocks({5, 8}, true, Numbers{0, 6}, 2);
  CHECK(blocks.first == Numbers{0, 6});
  CHECK(blocks.runs == 5);
  CHECK(blocks.run == 2);
  CHECK(blocks.stride == 8);
}

TEST_CASE("heads of a bias are runs of its features, whichever way the weight lies",
          "[converter]") {
  for (const bool input_major : {false, true}) {
    const HeadBlocks blocks = head_blocks({8}, input_major, Numbers{0, 6}, 2);
    CHECK(blocks.first == Numbers{0, 6});
    CHECK(blocks.runs == 1);
    CHECK(blocks.run == 2);
  }
}

// Letters as U8 elements: heads AB and CD, of two features.
std::string copied(std::string_view source, const HeadBlocks& from, std::string target,
                   const HeadBlocks& to) {
  copy_heads(DType::kU8, std::as_bytes(std::span(source)), from,
             std::as_writable_bytes(std::span(target)), to);
  return target;
}

TEST_CASE("copying heads moves rows to rows", "[converter]") {
  // Three inputs per feature; the heads swap places and leave a gap.
  CHECK(copied("AAABBBCCCDDD", head_blocks({4, 3}, false, Numbers{0, 2}, 2), std::string(18, '.'),
               head_blocks({6, 3}, false, Numbers{4, 0}, 2)) == "CCCDDD......AAABBB");
}

TEST_CASE("copying heads moves columns to columns of another width", "[converter]") {
  // Two inputs: rows ABCD and abcd become AB..CD and ab..cd.
  CHECK(copied("ABCDabcd", head_blocks({2, 4}, true, Numbers{0, 2}, 2), std::string(12, '.'),
               head_blocks({2, 6}, true, Numbers{0, 4}, 2)) == "AB..CDab..cd");
}

}  // namespace
}  // namespace regroup
