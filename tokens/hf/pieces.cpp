#include "tokens/hf/pieces.h"

#include <algorithm>

#include "tokens/hf/work.h"

namespace regroup {
namespace {

// Sorted keys that share their first bytes: those of one node, or of all keys.
struct SharedStart {
  std::uint32_t begin = 0, end = 0;
};

// Merges each part with the one before it, in place, if `joins` is true of whether the one before
// matches and whether the part does.
void merge_with_previous(std::vector<Part>& parts, bool (*joins)(bool, bool)) {
  std::size_t kept = 0;
  bool before = false;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part part = parts[i];
    if (kept > 0 && joins(before, part.matches)) {
      parts[kept - 1].end = part.end;
    } else {
      parts[kept++] = part;
    }
    before = part.matches;
  }
  parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(kept), parts.end());
}

// Merges each match with what follows it.
void merge_with_next(std::vector<Part>& parts) {
  std::size_t kept = parts.size();  // from here on
  bool after = false;
  for (std::size_t i = parts.size(); i-- > 0;) {
    const Part part = parts[i];
    if (kept < parts.size() && part.matches && !after) {
      parts[kept].begin = part.begin;
    } else {
      parts[--kept] = part;
    }
    after = part.matches;
  }
  parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(kept));
}

void merge(std::vector<Part>& parts, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
      std::erase_if(parts, [](const Part& part) { return part.matches; });
      return;
    case SplitBehavior::kIsolated: return;
    case SplitBehavior::kMergedWithPrevious:
      // Of two matches in a row, only the first is merged, as in the reference.
      merge_with_previous(parts, [](bool before, bool matches) { return matches && !before; });
      return;
    case SplitBehavior::kMergedWithNext: merge_with_next(parts); return;
    case SplitBehavior::kContiguous:
      merge_with_previous(parts, [](bool before, bool matches) { return matches == before; });
      return;
  }
}

}  // namespace

ByteTrie::ByteTrie(std::vector<Key> keys) {
  first_.fill(kNone);
  std::ranges::stable_sort(keys, {}, &Key::first);
  std::vector<SharedStart> level{{0, static_cast<std::uint32_t>(keys.size())}}, next;
  for (std::size_t depth = 0; !level.empty(); ++depth, level.swap(next)) {
    next.clear();
    for (const SharedStart& parent : level) {
      if (depth > 0) {
        children_.push_back(static_cast<std::uint32_t>(values_.size()));
      }
      std::uint32_t at = parent.begin;
      while (at < parent.end && keys[at].first.size() == depth) {
        ++at;  // these end at the parent
      }
      while (at < parent.end) {
        const char byte = keys[at].first[depth];
        const std::uint32_t begin = at;
        while (at < parent.end && keys[at].first[depth] == byte) {
          ++at;
        }
        const auto node = static_cast<std::uint32_t>(values_.size());
        first_[index_of(byte)] = depth == 0 ? node : first_[index_of(byte)];
        values_.push_back(keys[begin].first.size() == depth + 1 ? keys[begin].second : kNone);
        bytes_.push_back(static_cast<unsigned char>(byte));
        next.push_back({begin, at});
      }
    }
  }
  children_.push_back(static_cast<std::uint32_t>(values_.size()));
}

void split_pieces(Pieces& pieces, SplitBehavior behavior, const FindParts& find) {
  Work& work = Work::of_thread();
  std::vector<Piece> split;
  split.reserve(2 * pieces.list.size());
  std::vector<Part> parts;
  for (const Piece& piece : pieces.list) {
    parts.clear();
    find(pieces.view(piece), parts);
    merge(parts, behavior);
    work.step(parts.size());
    work.check_memory((pieces.list.size() + split.size()) * sizeof(Piece) +
                      2 * parts.size() * sizeof(Part));  // vectors double
    for (const Part& part : parts) {
      if (part.begin < part.end) {
        split.push_back({piece.begin + part.begin, piece.begin + part.end,
                         part.begin == 0 ? piece.origin : Origin{false, false}});
      }
    }
  }
  pieces.list = std::move(split);
}

void rewrite_pieces(
    Pieces& pieces,
    const std::function<void(std::string_view, const Origin&, std::string&)>& rewrite) {
  Work& work = Work::of_thread();
  std::string text;
  text.reserve(pieces.text.size() + pieces.text.size() / 4 + pieces.list.size());
  for (Piece& piece : pieces.list) {
    const std::size_t begin = text.size();
    rewrite(pieces.view(piece), piece.origin, text);
    piece.begin = static_cast<std::uint32_t>(begin);
    piece.end = static_cast<std::uint32_t>(text.size());
    work.step(1 + (text.size() - begin) / 4);
    work.check_size(text.size());
  }
  pieces.text = std::move(text);
}

}  // namespace regroup
