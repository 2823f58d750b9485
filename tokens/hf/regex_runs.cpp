#include "tokens/hf/regex_runs.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <vector>

#include "formats/base/utf8.h"

namespace regroup {
namespace {

constexpr std::string_view kCallout = "(?C)";
constexpr std::size_t kMostLoops = 16;    // without a callout, in all alternatives
constexpr std::size_t kMostOptional = 3;  // in an alternative: they multiply its work by 2 each
constexpr unsigned kLongRepetition = 4;   // more repetitions count as a run

// How often an item is repeated.
struct Quantifier {
  bool varies = false, optional = false, long_run = false;
  std::size_t bytes = 0;
};

// An item of an alternative: a character, a class or a group, with its quantifier.
struct Item {
  std::size_t begin = 0;
  Quantifier quantifier;
  bool group = false, has_choices = false;  // inside the group
};

struct OpenGroup {
  std::size_t begin = 0, body = 0;
  bool has_choices = false;
};

class Reader {
 public:
  Reader(std::string_view pattern, bool count_all) : pattern_(pattern), count_all_(count_all) {}

  CountedPattern read() {
    while (at_ < pattern_.size()) {
      read_item();
    }
    end_alternative();
    CountedPattern counted{std::string(pattern_), loops_};
    for (auto place = callouts_.rbegin(); place != callouts_.rend(); ++place) {
      counted.pattern.insert(*place, kCallout);
    }
    return counted;
  }

 private:
  void read_item() {
    const std::size_t begin = at_;
    const char byte = pattern_[at_++];
    if (byte == '(') {
      open_group(begin);
    } else if (byte == ')' && !groups_.empty()) {
      close_group();
    } else if (byte == '|') {
      groups_.empty() ? end_alternative() : mark_choice();
    } else {
      at_ = end_of_simple_item(begin);
      end_item({begin, quantifier(), false, false}, begin);
    }
  }

  // "(?:", "(?i:", "(?<=" and so on; "(?i)" is a group of nothing.
  void open_group(std::size_t begin) {
    if (pattern_.substr(at_).starts_with('?')) {
      at_ = pattern_.find_first_not_of("?-im<", at_);
      at_ = std::min(at_, pattern_.size());
      at_ += at_ < pattern_.size() && pattern_[at_] != ')' ? 1 : 0;
    }
    groups_.push_back({begin, at_, false});
  }

  void close_group() {
    const OpenGroup group = groups_.back();
    groups_.pop_back();
    end_item({group.begin, quantifier(), true, group.has_choices}, group.body);
  }

  void mark_choice() { groups_.back().has_choices = true; }

  // `body` is where each repetition of the item begins.
  void end_item(Item item, std::size_t body) {
    const Quantifier& times = item.quantifier;
    at_ += times.bytes;
    if (item.group && times.varies && !(times.optional && !times.long_run)) {
      callouts_.insert(body);
    }
    item.has_choices = item.has_choices || (item.group && times.varies);
    if (groups_.empty()) {
      items_.push_back(item);
    } else if (times.varies || item.has_choices) {
      callouts_.insert(item.begin);
      mark_choice();
    }
  }

  // Decides which items of an alternative outside of groups need a callout before them.
  void end_alternative() {
    const auto may_fail = std::find_if(items_.rbegin(), items_.rend(),
                                       [](const Item& item) { return !item.quantifier.optional; });
    const auto tail = items_.rend() - may_fail;  // from the last item that may fail on
    std::size_t runs = 0, optional = 0;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const Item& item = items_[i];
      const bool run = item.quantifier.long_run || item.has_choices;
      optional += item.quantifier.varies && !run ? 1 : 0;
      const bool in_tail = static_cast<std::ptrdiff_t>(i) + 1 >= tail;
      const bool multiplies =
          run ? runs > 0 && !in_tail : item.quantifier.varies && optional > kMostOptional;
      if (multiplies || (run && count_all_)) {
        callouts_.insert(item.begin);
      } else if (run) {
        ++loops_;
      }
      runs += run ? 1 : 0;
    }
    items_.clear();
  }

  std::size_t end_of_simple_item(std::size_t at) const {
    if (pattern_[at] == '[') {
      ++at;
      while (at < pattern_.size() && pattern_[at] != ']') {
        at = pattern_[at] == '\\' ? end_of_escape(at) : at + 1;
      }
      return std::min(at + 1, pattern_.size());
    }
    if (pattern_[at] == '\\') {
      return end_of_escape(at);
    }
    ++at;
    while (at < pattern_.size() && continues_utf8(pattern_[at])) {
      ++at;
    }
    return at;
  }

  std::size_t end_of_escape(std::size_t at) const {
    at += 2;
    const bool named = at < pattern_.size() && pattern_[at] == '{' &&
                       std::string_view("xpP").find(pattern_[at - 1]) != std::string_view::npos;
    return std::min(named ? pattern_.find('}', at) + 1 : at, pattern_.size());
  }

  // The quantifier at the place that was reached.
  Quantifier quantifier() const {
    const std::string_view rest = pattern_.substr(std::min(at_, pattern_.size()));
    Quantifier found;
    if (rest.starts_with('*') || rest.starts_with('+')) {
      found = {true, rest.front() == '*', true, 1};
    } else if (rest.starts_with('?')) {
      found = {true, true, false, 1};
    } else if (rest.starts_with('{')) {
      found = interval(rest);
    }
    const std::string_view more = rest.substr(found.bytes);
    found.bytes += found.bytes > 0 && (more.starts_with('?') || more.starts_with('+')) ? 1 : 0;
    return found;
  }

  // "{2,3}"
  static Quantifier interval(std::string_view rest) {
    const std::size_t end = rest.find('}'), comma = rest.substr(0, end).find(',');
    unsigned least = 0, most = ~0U;
    std::from_chars(rest.data() + 1, rest.data() + end, least);
    const bool open = comma != std::string_view::npos;
    std::from_chars(rest.data() + (open ? comma : 0) + 1, rest.data() + end, most);
    return {most != 1, least == 0, most > kLongRepetition, end + 1};
  }

  std::string_view pattern_;
  bool count_all_;
  std::size_t at_ = 0, loops_ = 0;
  std::vector<OpenGroup> groups_;
  std::vector<Item> items_;  // of the alternative that is being read, outside of groups
  std::set<std::size_t> callouts_;
};

}  // namespace

CountedPattern with_callouts(std::string_view pattern) {
  CountedPattern counted = Reader(pattern, false).read();
  return counted.loops > kMostLoops ? Reader(pattern, true).read() : counted;
}

}  // namespace regroup
