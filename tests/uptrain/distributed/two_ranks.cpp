#include "tests/uptrain/distributed/two_ranks.h"

#include <algorithm>
#include <csignal>
#include <fstream>
#include <memory>

#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include "formats/base/json.h"
#include "tests/uptrain/distributed/free_port.h"
#include "tests/uptrain/run/uptrain_arguments.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> joined(std::vector<std::string> first,
                                const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

std::vector<std::unique_ptr<RunningProgram>> start_four(const std::vector<std::string>& arguments) {
  const int port = free_port();
  std::vector<std::unique_ptr<RunningProgram>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(
        std::make_unique<RunningProgram>(with(arguments, "--quiet"), as_rank(rank, port, 4)));
  }
  return ranks;
}

}  // namespace

std::vector<std::string> as_rank(int rank, int port, int ranks) {
  return {"env", fmt::format("RANK={}", rank), fmt::format("WORLD_SIZE={}", ranks),
          "MASTER_ADDR=127.0.0.1", fmt::format("MASTER_PORT={}", port)};
}

TwoRanks::TwoRanks(const std::vector<std::string>& arguments) : TwoRanks(arguments, arguments) {}

TwoRanks::TwoRanks(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& others)
    : TwoRanks(with(arguments, "--quiet"), others, {}, free_port()) {}

TwoRanks::TwoRanks(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& others, const std::vector<std::string>& before,
                   int port)
    : first(arguments, as_rank(0, port)),
      second(with(others, "--quiet"), joined(as_rank(1, port), before)) {}

TwoRanks TwoRanks::verbose(const std::vector<std::string>& arguments,
                           const std::vector<std::string>& others,
                           const std::vector<std::string>& before) {
  return {arguments, others, before, free_port()};
}

void run_two(const std::vector<std::string>& arguments) {
  TwoRanks ranks(arguments);
  const ProgramResult second = ranks.second.wait();
  const ProgramResult first = ranks.first.wait();
  CAPTURE(first.err, second.err);
  CHECK(first.exit_code == 0);
  CHECK(second.exit_code == 0);
  CHECK(second.out.empty());
}

void run_four(const std::vector<std::string>& arguments) {
  const auto ranks = start_four(arguments);
  for (const auto& rank : ranks) {
    const ProgramResult result = rank->wait();
    CAPTURE(result.err);
    CHECK(result.exit_code == 0);
  }
}

void interrupt_four(const std::vector<std::string>& arguments, const fs::path& run,
                    std::ptrdiff_t lines) {
  const auto ranks = start_four(arguments);
  wait_for_steps(run, lines);
  ranks[3]->send(SIGINT);
  for (const auto& rank : ranks) {
    CHECK(rank->wait().exit_code == kExitStateSaved);
  }
}

std::vector<double> figures_of(const fs::path& run) {
  std::vector<double> figures;
  std::ifstream metrics(run / "metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) {
    const Json parsed = Json::parse(line);
    for (const char* key : {"loss", "grad_norm", "eval_loss", "step"}) {
      if (parsed.contains(key)) {
        figures.push_back(parsed[key]);
      }
    }
  }
  return figures;
}

bool agree(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [&](double x, double y) {
           return std::abs(x - y) <= tolerance * std::abs(y);
         });
}

}  // namespace regroup
