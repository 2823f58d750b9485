#include "tokens/hf/byte_trie.h"

namespace regroup {

std::uint32_t ByteTrie::new_node() {
  values_.push_back(kNone);
  return static_cast<std::uint32_t>(values_.size() - 1);
}

void ByteTrie::add(std::string_view key, std::uint32_t value) {
  std::uint32_t& root = first_[index_of(key.front())];
  root = root == kNone ? new_node() : root;
  std::uint32_t node = root;
  for (const char byte : key.substr(1)) {
    std::uint32_t next = child(node, byte);
    if (next == kNone) {
      next = new_node();
      children_.set(edge(node, byte), next);
    }
    node = next;
  }
  values_[node] = values_[node] == kNone ? value : values_[node];
}

}  // namespace regroup
