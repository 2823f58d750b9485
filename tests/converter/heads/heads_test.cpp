#include "converter/heads/heads.h"

#include <string>

#include <catch2/catch_test_macros.hpp>

namespace regroup {
namespace {

using Numbers = std::vector<std::int64_t>;

TEST_CASE("heads of a weight stored output-first are blocks of rows", "[converter]") {
  const HeadBlocks blocks = head_blocks({8, 5}, false, Numbers{0, 6}, 2);
  CHECK(blocks.first == Numbers{0, 30});
  CHECK(blocks.rows == 2);
  CHECK(blocks.columns == 5);
  CHECK(blocks.row_stride == 5);
  CHECK(blocks.column_stride == 1);
  CHECK(blocks.heads() == 2);
}

TEST_CASE("heads of a weight stored input-first are blocks of columns", "[converter]") {
  const HeadBlocks blocks = head_blocks({5, 8}, true, Numbers{0, 6}, 2);
  CHECK(blocks.first == Numbers{0, 6});
  CHECK(blocks.rows == 2);
  CHECK(blocks.columns == 5);
  CHECK(blocks.row_stride == 1);
  CHECK(blocks.column_stride == 8);
}

TEST_CASE("heads of a bias are ranges of features for both weight layouts", "[converter]") {
  for (const bool input_major : {false, true}) {
    const HeadBlocks blocks = head_blocks({8}, input_major, Numbers{0, 6}, 2);
    CHECK(blocks.first == Numbers{0, 6});
    CHECK(blocks.rows == 2);
    CHECK(blocks.columns == 1);
    CHECK(blocks.row_stride == 1);
  }
}

TEST_CASE("groups are blocks of neighbouring heads and may be stored repeatedly", "[converter]") {
  using Lists = std::vector<Numbers>;
  CHECK(heads_of_groups(6, 2, 2) == Lists{{0, 1, 2}, {3, 4, 5}});
  CHECK(heads_of_groups(6, 2, 4) == Lists{{0, 1, 2}, {0, 1, 2}, {3, 4, 5}, {3, 4, 5}});
  CHECK(heads_of_groups(2, 2, 6) == Lists{{0}, {0}, {0}, {1}, {1}, {1}});
  CHECK(heads_of_groups(3, 3, 3) == Lists{{0}, {1}, {2}});
}

// Letters as U8 elements: heads AB and CD of two features.
std::string copied(std::string_view source, const HeadBlocks& from, std::string target,
                   const HeadBlocks& to) {
  move_heads(copy_of_heads("t", from, to), DType::kU8, std::as_bytes(std::span(source)), DType::kU8,
             std::as_writable_bytes(std::span(target)));
  return target;
}

TEST_CASE("copying heads moves rows to rows", "[converter]") {
  // Three inputs per feature. The heads swap places and leave a gap.
  CHECK(copied("AAABBBCCCDDD", head_blocks({4, 3}, false, Numbers{0, 2}, 2), std::string(18, '.'),
               head_blocks({6, 3}, false, Numbers{4, 0}, 2)) == "CCCDDD......AAABBB");
}

TEST_CASE("copying heads moves columns to columns of another width", "[converter]") {
  // Two inputs: the rows ABCD and abcd become AB..CD and ab..cd.
  CHECK(copied("ABCDabcd", head_blocks({2, 4}, true, Numbers{0, 2}, 2), std::string(12, '.'),
               head_blocks({2, 6}, true, Numbers{0, 4}, 2)) == "AB..CDab..cd");
}

TEST_CASE("copying heads transposes between layouts", "[converter]") {
  // Features A and B with three inputs: the rows AAA and BBB become columns, and back.
  const HeadBlocks rows = head_blocks({2, 3}, false, Numbers{0}, 2);
  const HeadBlocks columns = head_blocks({3, 2}, true, Numbers{0}, 2);
  CHECK(copied("abcdef", rows, "......", columns) == "adbecf");
  CHECK(copied("adbecf", columns, "......", rows) == "abcdef");
}

// The same with with_moved_heads features.
std::string with_moved_heads(std::string_view source, const HeadBlocks& from, std::string target,
                             const HeadBlocks& to, Numbers order) {
  HeadMove move = copy_of_heads("t", from, to);
  move.row_order = std::move(order);
  move_heads(move, DType::kU8, std::as_bytes(std::span(source)), DType::kU8,
             std::as_writable_bytes(std::span(target)));
  return target;
}

TEST_CASE("copying heads can reorder features within a head", "[converter]") {
  const Numbers order{0, 2, 1, 3};
  CHECK(with_moved_heads("AABBCCDDaabbccdd", head_blocks({8, 2}, false, Numbers{0, 4}, 4),
                         std::string(16, '.'), head_blocks({8, 2}, false, Numbers{0, 4}, 4),
                         order) == "AACCBBDDaaccbbdd");
  CHECK(with_moved_heads("ABCDEFGH", head_blocks({8}, false, Numbers{0, 4}, 4), std::string(8, '.'),
                         head_blocks({8}, false, Numbers{0, 4}, 4), order) == "ACBDEGFH");
  // Columns, with two inputs.
  CHECK(with_moved_heads("ABCDabcd", head_blocks({2, 4}, true, Numbers{0}, 4), std::string(8, '.'),
                         head_blocks({2, 4}, true, Numbers{0}, 4), order) == "ACBDacbd");
}

}  // namespace
}  // namespace regroup
