// Shapes: N predictions, k tokens kept.
#include "uptrain/run/teach.h"

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "formats/base/callback.h"
#include "formats/base/checksum.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/staged_directory.h"
#include "formats/tensors/checkpoint_writer.h"
#include "uptrain/model/language_model.h"
#include "uptrain/model/parameters.h"
#include "uptrain/ops/loss.h"
#include "uptrain/run/uptrain_plan.h"
#include "uptrain/train/objective.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

// The k most likely tokens of softmax(logits/τ) and the sum of the rest, on the device of
// `teacher`. Memory: a few chunks of logits.
TopKLogits top_k_logits(const LmHeadInputs& teacher, std::int64_t k, double temperature) {
  std::vector<at::Tensor> ids, log_probabilities;
  const std::int64_t step = default_loss_rows(teacher.head.size(0), teacher.head.is_cpu());
  for (std::int64_t begin = 0; begin < teacher.hidden.size(0); begin += step) {
    const std::int64_t count = std::min(step, teacher.hidden.size(0) - begin);
    const at::Tensor log_p =
        at::_log_softmax(logits_of(teacher, begin, count) / temperature, 1, false);  // [n, V]
    const auto [top, index] = log_p.topk(k, 1);
    const at::Tensor rest =
        log_p.scatter(1, index, -std::numeric_limits<double>::infinity()).logsumexp(1, true);
    ids.push_back(index);
    log_probabilities.push_back(at::cat({top, rest}, 1));
  }
  return {at::cat(ids), at::cat(log_probabilities)};
}

// Writes one file of teacher logits, window by window.
class TeacherLogitsWriter {
 public:
  TeacherLogitsWriter(const fs::path& path, const TeacherLogitsFacts& facts, std::int64_t number)
      : facts_(facts),
        first_(number * facts.samples_per_file),
        file_(File::create(path)),
        tensors_(teacher_logits_tensors(facts, number)) {
    const std::string header = teacher_logits_header(facts, number);
    header_hash_ = xxh64(std::as_bytes(std::span(header)));
    file_.write_at(0, std::as_bytes(std::span(header)));
    for (TensorInfo& tensor : tensors_) {
      tensor.begin += header.size();
    }
  }

  // `answers` are the top-k logits of one window, in the order of its predictions.
  void add(const at::Tensor& window, const TopKLogits& answers) {
    const std::int64_t count = answers.ids.size(0);
    const bool narrow = facts_.id_type() == DType::kU16;
    const at::Tensor ids =
        at::zeros({facts_.predictions, facts_.top}, narrow ? at::kShort : at::kInt);
    const at::Tensor probabilities = at::zeros({facts_.predictions, facts_.top + 1}, at::kHalf);
    ids.narrow(0, 0, count).copy_(answers.ids);
    probabilities.narrow(0, 0, count).copy_(answers.log_probabilities);
    std::vector<std::byte> all(bytes_of(ids).begin(), bytes_of(ids).end());
    all.insert(all.end(), bytes_of(probabilities).begin(), bytes_of(probabilities).end());
    const std::uint64_t hash = window_hash(window);
    const std::uint64_t checksum =
        teacher_logits_checksum(header_hash_, first_ + static_cast<std::int64_t>(row_), hash, all);
    put(0, std::as_bytes(std::span(&hash, 1)));
    put(1, std::as_bytes(std::span(&checksum, 1)));
    put(2, bytes_of(ids));
    put(3, bytes_of(probabilities));
    ++row_;
  }

  void finish() { file_.sync_and_close(); }

 private:
  // Writes the next row of a tensor. `tensor` is its index in teacher_logits_tensors().
  void put(std::size_t tensor, std::span<const std::byte> row) {
    file_.write_at(tensors_[tensor].begin + row_ * row.size(), row);
  }

  const TeacherLogitsFacts& facts_;
  std::int64_t first_;  // the first window in the file
  std::uint64_t header_hash_ = 0;
  File file_;
  std::vector<TensorInfo> tensors_;
  std::uint64_t row_ = 0;
};

// Writes the files of one directory in sequence.
struct Teaching {
  const TeachPlan& plan;
  const Model& teacher;
  const DataLoader& data;
  const CountProgress& progress;
  const std::atomic<bool>& stop;

  const TeacherLogitsFacts& facts = plan.facts;
  Transformer model =
      load_transformer(teacher, scalar_type_of(plan.run.precision), plan.run.device);

  void write(const fs::path& parts, std::int64_t number) const {
    StagedDirectory staged(parts / teacher_logits_file_name(number));
    const std::string name = teacher_logits_file_name(number);
    TeacherLogitsWriter writer(staged.path() / name, facts, number);
    const std::int64_t begin = number * facts.samples_per_file;
    const std::int64_t end = begin + facts.samples_in(number);
    for (std::int64_t first = begin; first < end; first += plan.run.batch) {
      if (stop) {
        throw Error(
            ErrorKind::kInterruptedSaved,
            fmt::format(
                "stopped; {} of {} windows are done in {}; run the same command to continue", begin,
                facts.samples, printable_path(parts)));
      }
      const std::int64_t count = std::min(plan.run.batch, end - first);
      answer(writer, first, count);
      call_if_given(progress, first + count, facts.samples);
    }
    writer.finish();
    staged.publish_file(name);
  }

  void answer(TeacherLogitsWriter& writer, std::int64_t first, std::int64_t count) const {
    const at::NoGradGuard no_gradients;
    const at::Tensor windows = data.batch(first, count);
    const at::Tensor ids =
        windows.narrow(1, 0, window_width(plan.task.objective, data.sequence_length()));
    const TopKLogits answers =
        top_k_logits(model.lm_head_inputs(predict(model, ids, first, plan.task).hidden), facts.top,
                     facts.temperature);
    const TopKLogits here{answers.ids.to(at::kCPU),
                          answers.log_probabilities.to(at::kHalf).to(at::kCPU)};
    if (here.log_probabilities.isnan().any().item<bool>()) {
      throw_bad_input(
          "windows {} to {}: NaN in the teacher's predictions: regroup eval tells its loss, "
          "regroup inspect --stats which weights are not finite",
          first, first + count - 1);
    }
    std::int64_t row = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const at::Tensor window = windows.select(0, i);
      const std::int64_t asked = predictions_of(window, facts.predictions);
      writer.add(window,
                 {here.ids.narrow(0, row, asked), here.log_probabilities.narrow(0, row, asked)});
      row += asked;
    }
  }
};

// The number of complete files that an earlier call left in `parts`.
std::int64_t files_there(const fs::path& parts, const TeacherLogitsFacts& facts) {
  std::int64_t there = 0;
  while (there < facts.files() && path_exists(parts / teacher_logits_file_name(there))) {
    try {
      check_teacher_logits(open_teacher_logits_file(parts, facts, there++), facts);
    } catch (const Error& fault) {
      throw_usage("{}; remove {} to start again", fault.what(), printable_path(parts));
    }
  }
  return there;
}

void check(const TeachSettings& settings, std::int64_t vocab_size) {
  if (settings.windows < 0) {
    throw_usage("windows is {}, allowed is 0 (one epoch) or more", settings.windows);
  }
  if (settings.top < 1 || settings.top > vocab_size) {
    throw_usage("top is {}, allowed is 1 to {}, the vocabulary", settings.top, vocab_size);
  }
  const double temperature = settings.run.teacher.distillation.temperature;
  if (!(temperature >= 0.01 && temperature <= 100)) {
    throw_usage("temperature is {}, allowed is 0.01 to 100", temperature);
  }
  settings.run.validate_step();
}

}  // namespace

std::uint64_t TeachPlan::bytes() const {
  return static_cast<std::uint64_t>(facts.samples) * facts.sample_bytes();
}

TeachPlan plan_teaching(const TeachSettings& settings, const Model& teacher,
                        const DataLoader& data) {
  const std::int64_t vocab_size = teacher.spec.vocab_size;
  check(settings, vocab_size);
  TeachPlan plan{settings.run, {}, {}};
  plan.run.sequence_length = data.sequence_length();
  plan.run.task = with_special_tokens(settings.run.task, teacher);
  plan.run.task.seed = settings.run.seed;
  plan.task = make_training_task(plan.run.task, teacher.spec, data.sequence_length());
  check_documents(settings.run.documents, plan.task);
  Json recipe = recipe_of(plan.run);
  add_task(recipe, plan.task);

  TeacherLogitsFacts& facts = plan.facts;
  facts.questions = questions_in(recipe);
  facts.teacher = fingerprint_of(teacher);
  facts.vocab_size = vocab_size;
  facts.samples = settings.windows > 0 ? settings.windows : data.windows();
  facts.predictions = predictions_in(plan.task, data.sequence_length());
  facts.top = settings.top;
  facts.temperature = settings.run.teacher.distillation.temperature;
  facts.samples_per_file = static_cast<std::int64_t>(
      std::max<std::uint64_t>(1, settings.file_bytes / facts.sample_bytes()));
  return plan;
}

void teach(const TeachPlan& plan, const Model& teacher, const DataLoader& data,
           const fs::path& output, const CountProgress& progress, const std::atomic<bool>& stop) {
  const StopScope scope(nullptr);  // it stops between files, which are kept
  check_is_new(output);
  const fs::path target = (fs::absolute(output) / "").parent_path();  // "a/" is the directory "a"
  const fs::path parts = target.string() + ".parts";
  std::int64_t file = files_there(parts, plan.facts);
  const auto answered = static_cast<std::uint64_t>(file * plan.facts.samples_per_file);
  check_free_space(target.parent_path(),
                   plan.bytes() - std::min(plan.bytes(), answered * plan.facts.sample_bytes()));
  const Teaching teaching{plan, teacher, data, progress, stop};
  for (; file < plan.facts.files(); ++file) {
    teaching.write(parts, file);
  }
  std::error_code fault;
  fs::rename(parts, target, fault);
  if (fault) {
    throw_environment("{}: cannot be named {}: {}", printable_path(parts), printable_path(target),
                      fault.message());
  }
  sync_directory(target.parent_path());
}

}  // namespace regroup
