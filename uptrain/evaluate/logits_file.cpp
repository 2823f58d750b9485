#include "uptrain/evaluate/logits_file.h"

#include <span>
#include <string>
#include <unistd.h>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/safetensors/safetensors.h"
#include "uptrain/model/tensor_bytes.h"

namespace regroup {
namespace {

std::filesystem::path staging_name(const std::filesystem::path& path) {
  if (std::filesystem::exists(std::filesystem::symlink_status(path))) {
    throw_usage("{}: exists already", printable(path.string(), 0));
  }
  return path.string() + ".partial-" + std::to_string(::getpid());
}

std::string logits_header(std::int64_t windows, std::int64_t positions, std::int64_t vocab) {
  TensorInfo logits;
  logits.name = "logits";
  logits.dtype = DType::kF32;
  logits.shape = {windows, positions, vocab};
  logits.end = tensor_bytes(logits.dtype, logits.shape);
  return encode_safetensors_header(std::span(&logits, 1), {{"format", "pt"}});
}

}  // namespace

LogitsFile::LogitsFile(std::filesystem::path path, std::int64_t windows, std::int64_t positions,
                       std::int64_t vocab)
    : path_(std::move(path)), staging_(staging_name(path_)), file_(File::create(staging_)) {
  const std::string header = logits_header(windows, positions, vocab);
  file_.write_at(0, std::as_bytes(std::span(header)));
  offset_ = header.size();
}

LogitsFile::~LogitsFile() {
  std::error_code ignored;
  std::filesystem::remove(staging_, ignored);  // a published file is no longer there
}

void LogitsFile::append(const at::Tensor& logits, const std::filesystem::path& source,
                        std::int64_t first) {
  const at::Tensor stored = logits.to(at::kCPU, at::kFloat).contiguous();
  if (!stored.isfinite().all().item<bool>()) {
    throw_bad_input("{}: windows {} to {}: NaN or infinity among the logits; nothing was written",
                    printable(source.string(), 0), first, first + stored.size(0) - 1);
  }
  file_.write_at(offset_, bytes_of(stored));
  offset_ += stored.nbytes();
}

void LogitsFile::publish() {
  file_.sync_and_close();
  std::error_code fault;
  std::filesystem::create_hard_link(staging_, path_, fault);  // never replaces, unlike a rename
  if (fault) {
    throw_environment("{}: cannot publish: {}", printable(path_.string(), 0), fault.message());
  }
}

}  // namespace regroup
