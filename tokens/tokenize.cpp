#include "tokens/tokenize.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "formats/base/callback.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "tokens/hf/work.h"

namespace regroup {
namespace {

// Parts of documents that are encoded in parallel.
struct Batch {
  std::vector<TextPart> parts;
  std::vector<std::vector<std::uint32_t>> ids;  // one list per part
};

bool read_batch(DocumentReader& reader, std::size_t bytes, Batch& batch) {
  batch.parts.clear();
  std::size_t read = 0;
  for (TextPart part; read < bytes && reader.next(part);) {
    read += part.text.size() + 1;  // empty parts take memory, too
    batch.parts.push_back(std::move(part));
  }
  return !batch.parts.empty();
}

void encode_batch(const Tokenizer& tokenizer, int threads, const std::atomic<bool>& stop,
                  Batch& batch) {
  batch.ids.assign(batch.parts.size(), {});
  std::atomic<std::size_t> next{0};
  std::vector<std::exception_ptr> faults(threads);
  const auto work = [&](int thread) {
    try {
      const Work::Watch watch(stop);
      for (std::size_t i = next++; i < batch.parts.size() && !stop; i = next++) {
        tokenizer.encode(batch.parts[i].text, batch.parts[i].begins, batch.ids[i]);
      }
    } catch (...) {
      faults[thread] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    try {
      for (int thread = 1; thread < threads; ++thread) {
        others.emplace_back(work, thread);
      }
    } catch (const std::system_error&) {
      // Continue with fewer threads.
    }
    work(0);
  }
  for (const std::exception_ptr& fault : faults) {
    if (fault) {
      std::rethrow_exception(fault);
    }
  }
}

// Joins the ids of parts into documents.
class DocumentWriter {
 public:
  DocumentWriter(TokenWriter& writer, const Tokenizer& tokenizer)
      : writer_(writer), tokenizer_(tokenizer), ends_(tokenizer.ends()) {}

  // Ids after so many tokens, counted from the file's first, are left out.
  void stop_at(std::int64_t tokens) { limit_ = tokens; }
  bool full() const { return writer_.tokens() >= limit_; }

  void add(const TextPart& part, const std::vector<std::uint32_t>& ids) {
    if (part.begins) {
      empty_ = true;
    }
    if (empty_ && !ids.empty() && ends_.add_bos) {
      write(*ends_.bos);
    }
    empty_ = empty_ && ids.empty();
    write(ids);
    if (!part.ends) {
      return;
    }
    if (!empty_ && ends_.add_eos) {
      write(*ends_.eos);
    }
    empty_documents_ += empty_ ? 1 : 0;
    writer_.end_document();
  }

  std::int64_t empty_documents() const { return empty_documents_; }

 private:
  void write(std::int64_t id) {
    const auto token = static_cast<std::uint32_t>(id);
    write({&token, 1});
  }

  void write(std::span<const std::uint32_t> ids) {
    const auto unknown = std::ranges::find_if(ids, [&](std::uint32_t id) { return id >= rows_; });
    if (unknown != ids.end()) {
      refuse(*unknown);
    }
    const std::int64_t room = std::max<std::int64_t>(0, limit_ - writer_.tokens());
    writer_.write(ids.first(std::min(ids.size(), static_cast<std::size_t>(room))));
  }

  [[noreturn]] void refuse(std::uint32_t unknown) const {
    std::string token;
    tokenizer_.for_each_token([&](std::int64_t id, std::string_view text) {
      token = id == unknown ? std::string(text) : token;
    });
    if (token.empty()) {
      throw_usage("{} is the id of no token: the vocabulary has {} tokens", unknown, rows_);
    }
    throw_bad_input(
        "{}: the text gives the token {}, which has the id {}, but the model has {} tokens: add "
        "rows to its embedding, or use the tokenizer that it was trained with",
        tokenizer_.file().empty() ? "bytes" : printable_path(tokenizer_.file()),
        printable(token, 60), unknown, rows_);
  }

  TokenWriter& writer_;
  const Tokenizer& tokenizer_;
  DocumentEnds ends_;
  std::int64_t rows_ =
      tokenizer_.rows().value_or(std::numeric_limits<std::uint32_t>::max() + std::int64_t{1});
  std::int64_t limit_ = std::numeric_limits<std::int64_t>::max();
  bool empty_ = true;
  std::int64_t empty_documents_ = 0;
};

// Inputs that are read one after the other without regard to where one ends. With a limit, each has
// its own share.
std::vector<std::vector<std::string>> groups_of(const TokenizeSettings& settings) {
  if (!settings.max_tokens) {
    return {settings.inputs};
  }
  std::vector<std::vector<std::string>> groups;
  for (const std::string& input : settings.inputs) {
    groups.push_back({input});
  }
  return groups;
}

}  // namespace

std::int64_t vocabulary_of(const Tokenizer& tokenizer) {
  const DocumentEnds& ends = tokenizer.ends();
  return std::max(
      {tokenizer.vocabulary(), ends.add_bos ? *ends.bos + 1 : 0, ends.add_eos ? *ends.eos + 1 : 0});
}

TokenizeResult tokenize(const Tokenizer& tokenizer, const TokenizeSettings& settings,
                        const TokenizeProgress& progress, const std::atomic<bool>& stop) {
  constexpr std::size_t kBytesPerThread = 2 << 20;
  TextSettings text = settings.text;
  text.utf8 = tokenizer.reads_utf8();
  const std::int64_t vocabulary = vocabulary_of(tokenizer);
  TokenWriter writer(settings.output, settings.layout,
                     std::min(vocabulary, tokenizer.rows().value_or(vocabulary)));
  writer.set_origin(settings.origin);
  DocumentWriter documents(writer, tokenizer);
  const int threads = std::max(settings.threads, 1);
  TokenizeResult result;
  std::uint64_t stored_bytes = 0;
  auto groups = groups_of(settings);
  for (std::size_t group = 0; group < groups.size(); ++group) {
    if (settings.max_tokens) {
      const std::int64_t left = *settings.max_tokens - writer.tokens();
      const auto sharing = static_cast<std::int64_t>(groups.size() - group);
      documents.stop_at(writer.tokens() + (left + sharing - 1) / sharing);
    }
    DocumentReader reader(std::move(groups[group]), text, stop);
    for (Batch batch; !documents.full() && read_batch(reader, kBytesPerThread * threads, batch);) {
      encode_batch(tokenizer, threads, stop, batch);
      throw_if_stopped(stop, "tokenizing was stopped; nothing was written");
      for (std::size_t i = 0; i < batch.parts.size(); ++i) {
        documents.add(batch.parts[i], batch.ids[i]);
      }
      call_if_given(progress, stored_bytes + reader.position(),
                    groups.size() == 1 ? reader.bytes_in_all() : 0);
    }
    result.text_bytes += reader.bytes_read();
    stored_bytes += reader.position();
    result.json_inputs += reader.json_inputs();
    result.replaced_bytes += reader.replaced_bytes();
    result.skipped_lines += reader.skipped_lines();
    writer.end_document();
  }
  if (writer.tokens() == 0) {
    throw_bad_input("{}: no text{}", printable(settings.inputs.front(), 0),
                    settings.inputs.size() == 1
                        ? ""
                        : fmt::format(", nor in {} other inputs", settings.inputs.size() - 1));
  }
  writer.publish();
  result.documents = writer.documents();
  result.empty_documents = documents.empty_documents();
  result.tokens = writer.tokens();
  result.token_bytes = writer.token_bytes();
  return result;
}

}  // namespace regroup
