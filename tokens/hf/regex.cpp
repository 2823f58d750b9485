#include "tokens/hf/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8

#include <algorithm>
#include <array>
#include <charconv>
#include <exception>
#include <pcre2.h>
#include <set>
#include <vector>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "tokens/hf/work.h"

namespace regroup {
namespace {

constexpr std::size_t kMaxPattern = 16U << 10;
constexpr std::uint32_t kMaxSteps = 2'000'000;       // of one attempt to match
constexpr std::uint32_t kMaxKibibytes = 256U << 10;  // of memory for backtracking without JIT
// One call looks for a match that begins within so many bytes, or less if each may cost a run
// through the text, so that time can be checked.
constexpr std::size_t kWindow = 256;
constexpr std::size_t kBytesPerCall = 256U << 20;
constexpr std::size_t kStepsPerCall = 1U << 11, kStepsPerMiss = 1U << 15;
constexpr std::size_t kBytesPerStep = 64;
constexpr std::size_t kStackBytes = 64U << 20;  // reserved; used as far as a match needs it

template <auto kFree>
struct Freed {
  template <typename Type>
  void operator()(Type* pointer) const {
    kFree(pointer);
  }
};

// What a thread needs in order to match; for any expression.
struct Scratch {
  std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>> data{
      pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>> context{
      pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_jit_stack, Freed<pcre2_jit_stack_free>> stack{
      pcre2_jit_stack_create(32U << 10, kStackBytes, nullptr)};
  // Of the match in progress: the bytes that a run may go through, the expression, and a fault.
  std::size_t bytes = 0;
  std::string_view pattern;
  std::exception_ptr fault;

  Scratch() {
    if (!data || !context || !stack) {
      throw std::bad_alloc();
    }
    pcre2_set_match_limit(context.get(), kMaxSteps);
    pcre2_set_heap_limit(context.get(), kMaxKibibytes);
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
    pcre2_set_callout(context.get(), count_run, this);
  }

  // PCRE2 calls this at the callouts of with_callouts(). A fault ends the match, and is thrown when
  // PCRE2 has returned.
  static int count_run(pcre2_callout_block* /*place*/, void* data) {
    auto& scratch = *static_cast<Scratch*>(data);
    try {
      Work::of_thread().step(1 + scratch.bytes / kBytesPerStep, scratch.pattern);
      return 0;
    } catch (...) {
      scratch.fault = std::current_exception();
      return PCRE2_ERROR_CALLOUT;
    }
  }
};

Scratch& scratch_of_thread() {
  thread_local Scratch scratch;
  return scratch;
}

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 200> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return printable(reinterpret_cast<const char*>(text.data()));
}

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
    } else if (byte == '|' && groups_.empty()) {
      end_alternative();
    } else if (byte == '|') {
      groups_.back().has_choices = true;
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
      groups_.back().has_choices = true;
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

Regex::Regex(std::string_view pattern, std::string where)
    : where_(std::move(where)), pattern_(pattern), code_(nullptr, pcre2_code_free) {
  if (pattern.size() > kMaxPattern) {
    throw_bad_input("{}: a regular expression of {} bytes, at most {} are allowed", where_,
                    pattern.size(), kMaxPattern);
  }
  const CountedPattern counted = with_callouts(pcre2_pattern(pattern, where_));
  const std::string& written = counted.pattern;
  loops_ = counted.loops;
  const std::unique_ptr<pcre2_compile_context, Freed<pcre2_compile_context_free>> context(
      pcre2_compile_context_create(nullptr));
  if (!context) {
    throw std::bad_alloc();
  }
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 50);
  int fault = 0;
  PCRE2_SIZE place = 0;
  code_.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(written.data()), written.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_USE_OFFSET_LIMIT | PCRE2_NEVER_BACKSLASH_C,
                    &fault, &place, context.get()));
  if (!code_) {
    throw_bad_input("{}: the regular expression {} is malformed: {}", where_,
                    printable(pattern, 100), message_of(fault));
  }
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // without it, matching is slower
}

void Regex::for_each_match(
    std::string_view text,
    const std::function<void(std::size_t begin, std::size_t end)>& found) const {
  std::size_t from = 0, last_end = std::string_view::npos;
  while (const auto match = from <= text.size() ? find(text, from) : std::nullopt) {
    const auto [begin, end] = *match;
    if (begin == end && end == last_end) {
      do {
        ++from;
      } while (from < text.size() && continues_utf8(text[from]));
      continue;
    }
    from = last_end = end;
    found(begin, end);
  }
}

// The first match that begins at `from` or later.
std::optional<Regex::Match> Regex::find(std::string_view text, std::size_t from) const {
  Scratch& scratch = scratch_of_thread();
  Work& work = Work::of_thread();
  while (from <= text.size()) {
    work.step(kStepsPerCall, pattern_);
    scratch.bytes = text.size() - from;
    scratch.pattern = pattern_;
    const std::size_t window =
        std::clamp<std::size_t>(kBytesPerCall / (loops_ * scratch.bytes + 1), 1, kWindow);
    const std::size_t last = std::min(from + window, text.size());
    pcre2_set_offset_limit(scratch.context.get(), last);
    const int result =
        pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                    PCRE2_NO_UTF_CHECK, scratch.data.get(), scratch.context.get());
    if (result >= 0) {
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(scratch.data.get());
      return Match(ends[0], ends[1]);
    }
    check_result(result);
    work.step(kStepsPerMiss, pattern_);
    from = last + 1;
    while (from < text.size() && continues_utf8(text[from])) {
      ++from;
    }
  }
  return std::nullopt;
}

// Throws for every result but that nothing was found.
void Regex::check_result(int result) const {
  if (result == PCRE2_ERROR_CALLOUT) {
    std::rethrow_exception(std::exchange(scratch_of_thread().fault, nullptr));
  }
  if (result == PCRE2_ERROR_MATCHLIMIT) {
    throw_bad_input("{}: the regular expression {} takes more than {} steps at one place of a text",
                    where_, printable(pattern_, 100), kMaxSteps);
  }
  if (result != PCRE2_ERROR_NOMATCH) {
    throw_bad_input("{}: the regular expression {} fails on a text: {}", where_,
                    printable(pattern_, 100), message_of(result));
  }
}

std::shared_ptr<const Regex> read_pattern(const JsonFields& fields) {
  fields.allow({"String", "Regex"});
  const auto literal = fields.optional_text("String");
  if (literal && literal->empty()) {
    fields.refuse("String", "a text to look for");
  }
  return std::make_shared<const Regex>(literal ? literal_pattern(*literal) : fields.text("Regex"),
                                       fields.where());
}

CountedPattern with_callouts(std::string_view pattern) {
  CountedPattern counted = Reader(pattern, false).read();
  return counted.loops > kMostLoops ? Reader(pattern, true).read() : counted;
}

}  // namespace regroup
