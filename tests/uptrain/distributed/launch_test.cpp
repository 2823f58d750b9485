// Environment variables of launchers and the launch that they describe.
#include "uptrain/distributed/launch.h"

#include <map>

#include <catch2/catch_test_macros.hpp>

#include "tests/refusal.h"

namespace regroup {
namespace {

using Variables = std::map<std::string, std::string>;

Launch launch_in(const Variables& variables) {
  return launch_from([&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

}  // namespace

TEST_CASE("a process without a launcher is the only rank", "[uptrain]") {
  CHECK(launch_in({}).alone());
  CHECK(launch_in({{"MASTER_PORT", "4000"}}).alone());
  CHECK_FALSE(launch_in({}).launched);
  CHECK(launch_in({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).alone());
  CHECK(launch_in({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).launched);
}

TEST_CASE("torchrun's variables are read including its own store", "[uptrain]") {
  const Launch launch = launch_in({{"RANK", "5"},
                                   {"WORLD_SIZE", "8"},
                                   {"LOCAL_RANK", "1"},
                                   {"LOCAL_WORLD_SIZE", "4"},
                                   {"MASTER_ADDR", "host7"},
                                   {"MASTER_PORT", "4000"},
                                   {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  CHECK(launch.rank == 5);
  CHECK(launch.ranks == 8);
  CHECK(launch.local_rank == 1);
  CHECK(launch.local_ranks == 4);
  CHECK(launch.address == "host7");
  CHECK(launch.port == 4000);
  CHECK(launch.has_store);
}

TEST_CASE("Open MPI ranks meet on localhost on one machine and need an address on several",
          "[uptrain]") {
  Variables variables{{"OMPI_COMM_WORLD_RANK", "1"},
                      {"OMPI_COMM_WORLD_SIZE", "2"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                      {"SLURM_PROCID", "0"}};  // mpirun inside a SLURM job
  const Launch launch = launch_in(variables);
  CHECK(launch.rank == 1);
  CHECK(launch.address == "127.0.0.1");
  CHECK(launch.port == 29500);
  CHECK_FALSE(launch.has_store);
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  variables["OMPI_COMM_WORLD_LOCAL_RANK"] = "0";
  CHECK_THAT(refusal_of([&] { launch_in(variables); }), is_wrong_usage("MASTER_ADDR is not set"));
  variables["MASTER_ADDR"] = "host7";
  CHECK(launch_in(variables).address == "host7");
}

TEST_CASE("MPICH's variables are read", "[uptrain]") {
  const Launch launch = launch_in({{"PMI_RANK", "3"},
                                   {"PMI_SIZE", "4"},
                                   {"MPI_LOCALRANKID", "1"},
                                   {"MPI_LOCALNRANKS", "2"},
                                   {"MASTER_ADDR", "host7"}});
  CHECK(launch.rank == 3);
  CHECK(launch.ranks == 4);
  CHECK(launch.local_rank == 1);
}

TEST_CASE("srun tasks meet on the job's first host and a batch script runs alone", "[uptrain]") {
  Variables variables{{"SLURM_PROCID", "9"},       {"SLURM_STEP_NUM_TASKS", "16"},
                      {"SLURM_LOCALID", "1"},      {"SLURM_STEP_NODELIST", "gpu[08-09]"},
                      {"SLURM_JOB_ID", "1234567"}, {"SLURM_NTASKS", "16"}};
  CHECK(launch_in({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}}).alone());
  variables["SLURM_STEP_ID"] = "0";
  const Launch launch = launch_in(variables);
  CHECK(launch.rank == 9);
  CHECK(launch.ranks == 16);
  CHECK(launch.local_rank == 1);
  CHECK(launch.address == "gpu08");
  CHECK(launch.port == 24567);
}

TEST_CASE("the first host is found in every form of SLURM's host list", "[uptrain]") {
  CHECK(first_host("node7") == "node7");
  CHECK(first_host("node7,node8") == "node7");
  CHECK(first_host("node[008-011,20],other3") == "node008");
  CHECK(first_host("node[3,5]") == "node3");
}

TEST_CASE("missing or malformed launcher variables are named", "[uptrain]") {
  const auto fault = [](const Variables& variables) {
    return refusal_of([&] { launch_in(variables); });
  };
  CHECK_THAT(fault({{"RANK", "1"}}), is_wrong_usage("WORLD_SIZE is not"));
  CHECK_THAT(fault({{"WORLD_SIZE", "2"}}), is_wrong_usage("RANK is not"));
  CHECK_THAT(fault({{"RANK", "2"}, {"WORLD_SIZE", "2"}}),
             is_wrong_usage("RANK is \"2\"", "allowed are 0 to 1"));
  CHECK_THAT(fault({{"RANK", "x"}, {"WORLD_SIZE", "2"}}), is_wrong_usage("\"x\""));
}

}  // namespace regroup
