// A regular expression, compiled by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

struct pcre2_real_code_8;  // PCRE2's own name for its pcre2_code

namespace regroup {

/// Thread-safe.
class Regex {
 public:
  /// Compiles an expression in Oniguruma's syntax. Error messages begin with `where`. Throws
  /// kBadInput if it is malformed, longer than 16 KiB, or uses what pcre2_pattern() refuses.
  Regex(std::string_view pattern, std::string where);

  /// Calls `found`(begin, end) for each match in `text`, which must be UTF-8, from left to right.
  /// Empty matches right after a match are skipped. Throws kBadInput if a match takes too many
  /// steps, and as Work does.
  template <typename Found>
  void for_each_match(std::string_view text, Found&& found) const {
    Search search(*this, text);
    while (const auto match = search.next()) {
      found(match->first, match->second);
    }
  }

 private:
  class Search {
   public:
    Search(const Regex& regex, std::string_view text) : regex_(regex), text_(text) {}
    std::optional<std::pair<std::size_t, std::size_t>> next();

   private:
    bool find(std::size_t& begin, std::size_t& end);
    void check_result(int result) const;

    const Regex& regex_;
    std::string_view text_;
    std::size_t from_ = 0;
    std::size_t last_end_ = std::string_view::npos;
  };

  std::string where_, pattern_;
  std::size_t loops_ = 0;  // of which any place of a text may have to run through all
  std::unique_ptr<pcre2_real_code_8, void (*)(pcre2_real_code_8*)> code_;
};

}  // namespace regroup
