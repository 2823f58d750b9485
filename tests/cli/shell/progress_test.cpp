// The line of a progress bar, for several widths.
#include "cli/shell/progress.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <pty.h>
#include <string>
#include <thread>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "cli/shell/text.h"
#include "tests/refusal.h"

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("a progress line has the rate and the remaining time in units of the work", "[cli]") {
  const ProgressState steps{
      .label = "refit", .unit = "steps", .total = 400, .done = 100, .seconds = 50.0};
  CHECK(line_of(steps, "layer 1/4, error 3.1 %", 120) ==
        "refit [#####...............]  25%  2 steps/s  ETA 2 min 30 s  layer 1/4, error 3.1 %");
  const ProgressState bytes{
      .label = "convert", .unit = "bytes", .total = 1U << 30, .done = 1U << 29, .seconds = 2.0};
  CHECK_THAT(line_of(bytes, "", 120), ContainsSubstring("50%  256 MiB/s  ETA 2.0 s"));
}

TEST_CASE("slow work has the time of each unit, and work that is done no remaining time", "[cli]") {
  ProgressState slow{.label = "distill", .unit = "steps", .total = 32, .done = 4, .seconds = 120.0};
  CHECK_THAT(line_of(slow, "", 120), ContainsSubstring("12%  30 s each  ETA 14 min 00 s"));
  slow.done = 32;
  CHECK_THAT(line_of(slow, "", 120), ContainsSubstring("100%  3.8 s each  finishing"));
}

TEST_CASE("earlier work counts as done but not in the rate", "[cli]") {
  const ProgressState resumed{.label = "uptrain",
                              .unit = "steps",
                              .total = 1000,
                              .done = 600,
                              .done_before = 500,
                              .seconds = 10.0};
  CHECK_THAT(line_of(resumed, "", 120), ContainsSubstring("60%  10 steps/s  ETA 40 s"));
}

TEST_CASE("the time before any work counted is not in the rate", "[cli]") {
  const ProgressState after_trials{.label = "distill",
                                   .unit = "steps",
                                   .total = 100,
                                   .done = 50,
                                   .seconds = 150.0,
                                   .prepared = 100.0,
                                   .stage = "4/5 "};
  CHECK_THAT(line_of(after_trials, "", 120),
             ContainsSubstring("4/5 distill") && ContainsSubstring("1 step/s  ETA 50 s"));
}

TEST_CASE("the time so far is shown before any work is done", "[cli]") {
  const ProgressState none{
      .label = "refit", .unit = "steps", .total = 400, .done = 0, .seconds = 5.0};
  CHECK(line_of(none, "", 120) == "refit [....................]   0%  5.0 s");
  const ProgressState unknown{.label = "learning rate", .unit = "trials", .seconds = 70.0};
  CHECK(line_of(unknown, "", 120) == "learning rate 1 min 10 s");
}

TEST_CASE("work of unknown length has no percentage", "[cli]") {
  const ProgressState unknown{
      .label = "tokenize", .unit = "bytes", .total = 0, .done = 4096, .seconds = 2.0};
  CHECK(line_of(unknown, "", 120) == "tokenize 4 KiB  2 KiB/s");
  CHECK(line_of(unknown, "2 files", 120) == "tokenize 4 KiB  2 KiB/s  2 files");
}

TEST_CASE("a log has each percentage once, and a sign of life where one takes long", "[cli]") {
  const ProgressState half{
      .label = "distill", .unit = "steps", .total = 1000, .done = 500, .seconds = 100.0};
  const auto after = [&](std::uint64_t done, double seconds) {
    ProgressState state = half;
    state.done = done;
    state.seconds = seconds;
    return belongs_in_log(state, half);
  };
  CHECK_FALSE(after(500, 115.0));
  CHECK_FALSE(after(503, 130.0));
  CHECK(after(506, 130.0));  // shown as 51%
  CHECK(after(503, 700.0));
  CHECK_FALSE(after(500, 7000.0));
  ProgressState finishing = half;
  finishing.done = finishing.total;
  CHECK(belongs_in_log(finishing, half));
  CHECK_FALSE(belongs_in_log(finishing, finishing));
  const ProgressState unknown{.label = "learning rate", .unit = "trials"};
  CHECK(belongs_in_log(unknown, unknown));
}

TEST_CASE("on a narrow terminal first the bar and then the end of the line are omitted", "[cli]") {
  const ProgressState steps{
      .label = "refit", .unit = "steps", .total = 400, .done = 100, .seconds = 50.0};
  const std::string detail = "layer 1/30, step 100/200, error 12.3 %";
  for (const std::size_t columns : {100, 79, 60, 20}) {
    CAPTURE(columns);
    CHECK(width_of(line_of(steps, detail, columns)) <= columns);
  }
  CHECK_THAT(line_of(steps, detail, 79),
             !ContainsSubstring("[") && ContainsSubstring("error 12.3 %"));
}

// What `work` writes to stderr, which is a terminal meanwhile.
template <typename Work>
std::string on_terminal(const Work& work) {
  int reader = -1, terminal = -1;
  REQUIRE(::openpty(&reader, &terminal, nullptr, nullptr, nullptr) == 0);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(terminal, STDERR_FILENO);
  ::setenv("TERM", "xterm", 1);
  work();
  ::dup2(before, STDERR_FILENO);
  std::array<char, 4096> buffer{};
  const ssize_t size = ::read(reader, buffer.data(), buffer.size());
  for (const int descriptor : {reader, terminal, before}) {
    ::close(descriptor);
  }
  return {buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

TEST_CASE("a long step is shown every second", "[cli]") {
  const std::string text = on_terminal([] {
    const Console console;
    Progress progress(console, "walk", 2, "layers");
    progress.update(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  });
  const auto shown = [&](const char* line) { return text.find(line) != std::string::npos; };
  CHECK((shown("walk [....................]   0%") && shown(" 50%") && shown("ETA 1.")));
}

TEST_CASE("a progress line of JSON has the amounts as numbers", "[cli]") {
  ProgressState bytes{
      .label = "convert", .unit = "bytes", .total = 1U << 30, .done = 1U << 29, .seconds = 2.5};
  CHECK(json_line_of(bytes, "a \"name\" \xff") ==
        R"({"progress":"convert","unit":"bytes","done":536870912,"total":1073741824,)"
        R"("seconds":2.5,"detail":"a \"name\" )"
        "\xef\xbf\xbd\"}");
  bytes.total = 0;
  CHECK_THAT(json_line_of(bytes, ""), ContainsSubstring("\"total\":null,\"seconds\":2.5}"));
}

TEST_CASE("what a result does without fails with a note, for want of memory, too", "[cli]") {
  const Console console;
  CHECK_NOTHROW(run_or_note(console, "note: not measured", [] { throw OutOfMemory("1 GiB"); }));
  CHECK_NOTHROW(run_or_note(console, "note: not measured", [] { throw std::bad_alloc(); }));
  CHECK_NOTHROW(run_or_note(console, "note: not measured", [] { throw_bad_input("none"); }));
  const Error fault = refusal_of([&] {
    run_or_note(console, "note: not measured",
                [] { throw Error(ErrorKind::kInterrupted, "interrupted"); });
  });
  CHECK(fault.kind() == ErrorKind::kInterrupted);
}

}  // namespace
}  // namespace regroup
