#include "tokens/hf/regex.h"

#include <algorithm>
#include <array>
#include <exception>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/utf8.h"
#include "tokens/hf/regex_runs.h"
#include "tokens/hf/regex_syntax.h"
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

std::optional<std::pair<std::size_t, std::size_t>> Regex::Search::next() {
  std::size_t begin = 0, end = 0;
  while (from_ <= text_.size() && find(begin, end)) {
    if (begin == end && end == last_end_) {
      do {
        ++from_;
      } while (from_ < text_.size() && continues_utf8(text_[from_]));
      continue;
    }
    from_ = last_end_ = end;
    return std::pair(begin, end);
  }
  return std::nullopt;
}

bool Regex::Search::find(std::size_t& begin, std::size_t& end) {
  Scratch& scratch = scratch_of_thread();
  Work& work = Work::of_thread();
  for (std::size_t from = from_; from <= text_.size();) {
    work.step(kStepsPerCall, regex_.pattern_);
    scratch.bytes = text_.size() - from;
    scratch.pattern = regex_.pattern_;
    const std::size_t window =
        std::clamp<std::size_t>(kBytesPerCall / (regex_.loops_ * scratch.bytes + 1), 1, kWindow);
    const std::size_t last = std::min(from + window, text_.size());
    pcre2_set_offset_limit(scratch.context.get(), last);
    const int result =
        pcre2_match(regex_.code_.get(), reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(),
                    from, PCRE2_NO_UTF_CHECK, scratch.data.get(), scratch.context.get());
    if (result >= 0) {
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(scratch.data.get());
      begin = ends[0];
      end = ends[1];
      return true;
    }
    check_result(result);
    work.step(kStepsPerMiss, regex_.pattern_);
    from = last + 1;
    while (from < text_.size() && continues_utf8(text_[from])) {
      ++from;
    }
  }
  return false;
}

// Throws for every result but that nothing was found.
void Regex::Search::check_result(int result) const {
  if (result == PCRE2_ERROR_CALLOUT) {
    std::rethrow_exception(std::exchange(scratch_of_thread().fault, nullptr));
  }
  if (result == PCRE2_ERROR_MATCHLIMIT) {
    throw_bad_input("{}: the regular expression {} takes more than {} steps at one place of a text",
                    regex_.where_, printable(regex_.pattern_, 100), kMaxSteps);
  }
  if (result != PCRE2_ERROR_NOMATCH) {
    throw_bad_input("{}: the regular expression {} fails on a text: {}", regex_.where_,
                    printable(regex_.pattern_, 100), message_of(result));
  }
}

}  // namespace regroup
