// What one rank of many takes and sends, against what the plan says: models of real sizes on a
// paper device that computes no numbers.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fmt/format.h>

#include "formats/base/json.h"
#include "formats/families/family.h"
#include "tests/file_tree.h"
#include "tests/paper/paper_device.h"
#include "tests/paper/rank_alone.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/run/training_memory.h"
#include "uptrain/train/metrics.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

struct HollowLlama {
  const char* name;
  std::int64_t hidden, layers, heads, kv_heads, intermediate;
};

constexpr HollowLlama kSmall = {"0.5B", 1024, 24, 16, 4, 4096};
constexpr HollowLlama k7B = {"Llama-2-7B", 4096, 32, 32, 8, 11008};
constexpr HollowLlama k70B = {"Llama-2-70B", 8192, 80, 64, 8, 28672};

// A checkpoint in bf16 whose numbers are a hole in the file.
fs::path put_hollow_llama(const fs::path& directory, const HollowLlama& size) {
  Json config = Json::parse(golden_model("llama").config);
  config.update({{"hidden_size", size.hidden},
                 {"num_hidden_layers", size.layers},
                 {"num_attention_heads", size.heads},
                 {"num_key_value_heads", size.kv_heads},
                 {"head_dim", size.hidden / size.heads},
                 {"intermediate_size", size.intermediate},
                 {"vocab_size", 32000},
                 {"max_position_embeddings", 4096}});
  put_file(directory / "config.json", config.dump());
  Json header;
  std::uint64_t end = 0;
  for (const ExpectedTensor& tensor : expected_tensors(open_model_outline(directory).spec)) {
    const std::uint64_t begin = end;
    end += 2 * static_cast<std::uint64_t>(elements_of(tensor.shape));
    header[tensor.name] = {
        {"dtype", "BF16"}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  const std::uint64_t length = text.size();
  text.insert(0, reinterpret_cast<const char*>(&length), sizeof(length));
  put_file(directory / "model.safetensors", text);
  fs::resize_file(directory / "model.safetensors", text.size() + end);
  return directory;
}

UptrainSettings hollow_run(const fs::path& directory, const HollowLlama& size, std::int64_t ranks) {
  UptrainSettings settings = short_run(directory, "llama", 2);
  put_file(settings.data.front(),
           bytes_of_numbers(learnable_text(static_cast<std::size_t>(2 * ranks * 2100), 32000)));
  settings.model = put_hollow_llama(directory / "model", size);
  settings.sequence_length = 2048;
  settings.batch = 1;
  settings.ranks = settings.local_ranks = settings.accumulation = ranks;
  settings.recomputing = true;
  settings.precision = Precision::kBf16;
  settings.optimizer.moments = Precision::kBf16;
  settings.memory = MemoryMode::kFull;
  settings.device = paper_device();
  return settings;
}

class Hollow {
 public:
  Hollow() {
    set_paper_memory(std::int64_t{1} << 42);
    set_paper_hollow(true);
  }
  Hollow(const Hollow&) = delete;
  Hollow& operator=(const Hollow&) = delete;
  ~Hollow() {
    set_paper_hollow(false);
    set_paper_memory(0);
  }
};

struct Measured {
  double memory = 0.0, planned_memory = 0.0;  // of the rank that takes most
  double received = 0.0, planned_received = 0.0, sent = 0.0, planned_sent = 0.0;  // mean
  double planned_sequences = 0.0;  // received and sent: keys, values and their gradients
  double loading = 0.0;            // the most before the first step
  bool same_order = false;         // whether both ranks called the same collectives in one order

  double travelled() const { return received + sent; }
  double planned_travelled() const { return planned_received + planned_sent + planned_sequences; }
};

// The first rank, which owns the embedding, and the last.
Measured measure(const UptrainSettings& settings) {
  const ModelSpec spec = open_model_outline(settings.model).spec;
  const RankRecord first = rank_alone(settings, 0);
  const RankRecord last = rank_alone(settings, static_cast<int>(settings.ranks) - 1);
  const TrainingTraffic traffic =
      training_traffic(settings, spec, nullptr, *settings.sequence_length);
  return {std::max(first.peak, last.peak),
          training_memory(settings, spec, {}, *settings.sequence_length).total(),
          (first.received + last.received) / 2,
          traffic.weights,
          (first.sent + last.sent) / 2,
          traffic.gradients,
          traffic.sequences,
          std::max(first.loading, last.loading),
          first.calls == last.calls};
}

}  // namespace

TEST_CASE("a rank of several takes the memory, and sends the bytes, that the plan says",
          "[paper]") {
  const Hollow hollow;
  const TemporaryDirectory directory;
  UptrainSettings settings = hollow_run(directory.path(), kSmall, 4);
  settings.sharding =
      GENERATE(Sharding{}, Sharding{.weights = true}, Sharding{.weights = true, .copies = 2});
  settings.memory = GENERATE(MemoryMode::kFull, MemoryMode::kCompact, MemoryMode::kHost);
  settings.accumulation = settings.ranks * GENERATE(1, 2);
  CAPTURE(settings.sharding.weights, settings.sharding.copies, name_of(*settings.memory),
          settings.accumulation);
  const Measured measured = measure(settings);
  CHECK(measured.memory > 0.9 * measured.planned_memory);
  CHECK(measured.memory < 1.01 * measured.planned_memory);
  CHECK(std::abs(measured.sent / measured.planned_sent - 1) < 0.01);
  CHECK(std::abs(measured.received / measured.planned_received - 1) < 0.05);  // some own more
}

TEST_CASE("a rank with a part of each sequence takes and sends what the plan says", "[paper]") {
  const Hollow hollow;
  const TemporaryDirectory directory;
  UptrainSettings settings = hollow_run(directory.path(), kSmall, 4);
  settings.sequence_length = 8192;
  settings.sequence_ranks = GENERATE(2, 4);
  settings.accumulation = settings.shares();
  settings.sharding.weights = GENERATE(false, true);
  CAPTURE(settings.sequence_ranks, settings.sharding.weights);
  const Measured measured = measure(settings);
  CHECK(measured.memory > 0.95 * measured.planned_memory);
  CHECK(measured.memory < 1.01 * measured.planned_memory);
  CHECK(std::abs(measured.travelled() / measured.planned_travelled() - 1) < 0.01);
  settings.sequence_ranks = 1;
  settings.accumulation = settings.shares();
  CHECK(measured.memory < 0.95 * measure(settings).memory);
}

TEST_CASE("a rank that loads its part holds no more than that and two blocks", "[paper]") {
  const Hollow hollow;
  const TemporaryDirectory directory;
  UptrainSettings settings = hollow_run(directory.path(), kSmall, 4);
  settings.sharding.weights = true;
  const ModelSpec spec = open_model_outline(settings.model).spec;
  const TrainingMemory planned = training_memory(settings, spec, {}, 2048);
  const BlockElements blocks = block_elements(spec);
  // The share of the rank that owns most: a quarter, or one tensor more.
  const double share = 2 * (blocks.inside + blocks.outside) / 4;
  for (const int rank : {0, 3}) {
    const RankRecord record = rank_alone(settings, rank);
    CHECK(record.loading < share + planned.masters + planned.optimizer + 2 * 2 * blocks.largest);
    CHECK(record.loading > share + planned.masters);  // nothing is measured elsewhere
  }
}

TEST_CASE("all ranks talk to each other in the same order", "[paper]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), GENERATE("llama", "olmoe"), 2);
  put_file(settings.data.front(), bytes_of_numbers(learnable_text(2000, 32)));
  settings.device = paper_device();
  settings.memory = MemoryMode::kFull;
  settings.ranks = settings.local_ranks = settings.accumulation = 4;
  settings.sequence_length = 12;
  settings.sequence_ranks = GENERATE(1, 2, 4);
  settings.precision = Precision::kBf16;
  settings.recomputing = true;
  settings.sharding =
      GENERATE(Sharding{}, Sharding{.weights = true}, Sharding{.weights = true, .copies = 2});
  CAPTURE(settings.model, settings.sequence_ranks, settings.sharding.weights,
          settings.sharding.copies);
  const std::vector<std::string> first = rank_alone(settings, 0).calls;
  CHECK(first.size() > 10);
  // The other rank with the same part of the two copies: ranks sum the gradients that they own.
  const int other = settings.sharding.copies > 1 ? 2 : 3;
  CHECK(rank_alone(settings, other).calls == first);
}

// Takes minutes: a rank reads its part of each model's (empty) file.
TEST_CASE("memory and traffic of ranks on paper and in the plan", "[.ranks-table]") {
  const Hollow hollow;
  constexpr double kGiB = 1 << 30;
  fmt::print(
      "\n| model | ranks | shard | memory mode | loading, GiB | memory, GiB | of the plan's | "
      "received, GiB | of the plan's | sent, GiB | of the plan's |\n"
      "|---|--:|---|---|--:|--:|--:|--:|--:|--:|--:|\n");
  struct Row {
    HollowLlama size;
    std::int64_t ranks;
    Sharding sharding;
    MemoryMode mode;
  };
  constexpr Sharding kFullSharding{.weights = true}, kTwoCopies{.weights = true, .copies = 2};
  for (const auto& [size, ranks, sharding, mode] :
       {Row{kSmall, 2, {}, MemoryMode::kFull}, Row{kSmall, 2, kFullSharding, MemoryMode::kFull},
        Row{kSmall, 8, kFullSharding, MemoryMode::kCompact},
        Row{kSmall, 8, kFullSharding, MemoryMode::kHost}, Row{k7B, 8, {}, MemoryMode::kFull},
        Row{k7B, 8, kFullSharding, MemoryMode::kFull}, Row{k7B, 8, kTwoCopies, MemoryMode::kFull},
        Row{k7B, 8, kFullSharding, MemoryMode::kCompact},
        Row{k70B, 8, kFullSharding, MemoryMode::kFull},
        Row{k70B, 16, kFullSharding, MemoryMode::kFull},
        Row{k70B, 64, kFullSharding, MemoryMode::kFull},
        Row{k70B, 16, kTwoCopies, MemoryMode::kCompact}}) {
    const TemporaryDirectory directory;
    UptrainSettings settings = hollow_run(directory.path(), size, ranks);
    settings.sharding = sharding;
    settings.memory = mode;
    const Measured measured = measure(settings);
    fmt::print(
        "| {} | {} | {}{} | {} | {:.1f} | {:.1f} | {:.3f} | {:.2f} | {:.3f} | {:.2f} | {:.3f} |\n",
        size.name, ranks, sharding.weights ? "full" : "optimizer",
        sharding.copies > 1 ? ", 2 copies" : "", name_of(mode), measured.loading / kGiB,
        measured.memory / kGiB, measured.memory / measured.planned_memory, measured.received / kGiB,
        measured.received / measured.planned_received, measured.sent / kGiB,
        measured.sent / measured.planned_sent);
    CHECK((sharding.copies > 1 || measured.same_order));
    CHECK(measured.memory > 0.9 * measured.planned_memory);
    CHECK(measured.memory < 1.005 * measured.planned_memory);
  }
}

// Takes minutes, as above.
TEST_CASE("memory of ranks that share long sequences on paper and in the plan",
          "[.sequences-table]") {
  const Hollow hollow;
  constexpr double kGiB = 1 << 30;
  fmt::print(
      "\n| context | ranks of a sequence | memory, GiB | of the plan's | keys and values, GiB | "
      "all "
      "that travels, GiB | of the plan's |\n|--:|--:|--:|--:|--:|--:|--:|\n");
  for (const std::int64_t context : {8192, 32768, 131072}) {
    for (const std::int64_t ranks : {1, 2, 4, 8}) {
      const TemporaryDirectory directory;
      UptrainSettings settings = hollow_run(directory.path(), k7B, 8);
      put_file(settings.data.front(),
               bytes_of_numbers(learnable_text(static_cast<std::size_t>(17 * context), 32000)));
      settings.sharding.weights = true;
      settings.sequence_length = context;
      settings.sequence_ranks = ranks;
      settings.accumulation = settings.shares();
      const Measured measured = measure(settings);
      fmt::print("| {} | {} | {:.1f} | {:.3f} | {:.2f} | {:.1f} | {:.3f} |\n", context, ranks,
                 measured.memory / kGiB, measured.memory / measured.planned_memory,
                 measured.planned_sequences / kGiB, measured.travelled() / kGiB,
                 measured.travelled() / measured.planned_travelled());
      CHECK(measured.memory > 0.9 * measured.planned_memory);
      CHECK(measured.memory < 1.03 * measured.planned_memory);
    }
  }
}

}  // namespace regroup
