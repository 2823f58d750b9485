// `regroup` as two processes that train one model, and what they report.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/child_program.h"

namespace regroup {

/// The environment of one of two ranks, or of `ranks`, that meet at `port`, as a command that sets
/// it.
std::vector<std::string> as_rank(int rank, int port, int ranks = 2);

/// Two ranks with the same arguments, unless the second gets its own.
class TwoRanks {
 public:
  explicit TwoRanks(const std::vector<std::string>& arguments);
  TwoRanks(const std::vector<std::string>& arguments, const std::vector<std::string>& others);

  /// The first one says everything, not only errors; `before` is a command that runs the second.
  static TwoRanks verbose(const std::vector<std::string>& arguments,
                          const std::vector<std::string>& others,
                          const std::vector<std::string>& before = {});

  RunningProgram first, second;

 private:
  TwoRanks(const std::vector<std::string>& arguments, const std::vector<std::string>& others,
           const std::vector<std::string>& before, int port);
};

/// Runs both to their end, which must be a success.
void run_two(const std::vector<std::string>& arguments);

/// The same with four.
void run_four(const std::vector<std::string>& arguments);

/// Four that a signal to the last one stops once the metrics of `run` have so many lines; they must
/// save their state.
void interrupt_four(const std::vector<std::string>& arguments, const std::filesystem::path& run,
                    std::ptrdiff_t lines);

/// Every loss, gradient norm and evaluation loss of a run, in order.
std::vector<double> figures_of(const std::filesystem::path& run);

/// Whether figures differ by rounding only, relatively.
bool agree(const std::vector<double>& a, const std::vector<double>& b, double tolerance = 1e-5);

}  // namespace regroup
