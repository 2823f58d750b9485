// regroup tokenize TEXT... --tokenizer MODEL --output FILE
#include "tokens/tokenize.h"

#include "cli/commands/commands.h"
#include "cli/measure/data_origin.h"
#include "cli/shell/option_needs.h"
#include "cli/shell/text_input.h"
#include "formats/base/staged_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

struct TokenizeOptions {
  TokenizeSettings settings;
  std::string tokenizer;
  std::string layout;  // of the token file
  std::string field, separator;
  std::optional<bool> bos, eos;
  std::optional<std::int64_t> bos_token, eos_token;
  int threads = 0;
  bool parse_special = false;
  bool json = false;
};

TokenLayout layout_of(const TokenizeOptions& options) {
  if (!options.layout.empty()) {
    return parse_token_layout(options.layout);
  }
  const fs::path extension = options.settings.output.extension();
  if (extension == ".bin" || extension == ".npy") {
    return extension == ".bin" ? TokenLayout::kMegatron : TokenLayout::kNumpy;
  }
  throw_usage("{}: names that do not end in .bin or .npy need --format",
              printable_path(options.settings.output));
}

// Sets the id of the token at one end of documents, and whether it is added. `flag` is --bos or
// --no-bos, `given_id` is that of --bos-token; `id` and `added` hold the tokenizer's defaults.
void choose_end(std::string_view name, std::optional<bool> flag,
                std::optional<std::int64_t> given_id, std::optional<std::int64_t>& id,
                bool& added) {
  if (given_id && flag == false) {
    throw_usage("--{0}-token and --no-{0} contradict each other", name);
  }
  id = given_id ? given_id : id;
  added = flag.value_or(given_id.has_value() || added);
  if (added && !id) {
    throw_usage("--{0}: the tokenizer has no such token; set one with --{0}-token ID", name);
  }
}

DocumentEnds ends_of(const TokenizeOptions& options, const Tokenizer& tokenizer) {
  DocumentEnds ends = tokenizer.ends();
  choose_end("bos", options.bos, options.bos_token, ends.bos, ends.add_bos);
  choose_end("eos", options.eos, options.eos_token, ends.eos, ends.add_eos);
  return ends;
}

Json ends_json(const DocumentEnds& ends) {
  return {{"bos", ends.add_bos ? Json(*ends.bos) : Json()},
          {"eos", ends.add_eos ? Json(*ends.eos) : Json()}};
}

// "each begins with token 1, ends with token 2".
std::string ends_text(const DocumentEnds& ends) {
  if (!ends.add_bos && !ends.add_eos) {
    return "nothing between them";
  }
  return fmt::format(
      "each{}{}", ends.add_bos ? fmt::format(" begins with token {}", *ends.bos) : "",
      ends.add_eos ? fmt::format("{} ends with token {}", ends.add_bos ? "," : "", *ends.eos) : "");
}

void report(const TokenizeOptions& options, const Tokenizer& tokenizer,
            const TokenizeResult& result, double seconds, const Console& console) {
  const auto text = static_cast<double>(result.text_bytes);
  if (options.json) {
    Json facts = {
        {"output", options.settings.output.string()},
        {"layout", name_of(options.settings.layout)},
        {"token_bytes", result.token_bytes},
        {"tokenizer", tokenizer.file().empty() ? Json() : Json(tokenizer.file().string())},
        {"vocabulary", vocabulary_of(tokenizer)},
        {"tokens", result.tokens},
        {"documents", result.documents},
        {"empty_documents", result.empty_documents},
        {"text_bytes", result.text_bytes},
        {"json_lines", result.json_inputs > 0},
        {"replaced_bytes", result.replaced_bytes},
        {"skipped_lines", result.skipped_lines},
        {"left_out_characters", tokenizer.left_out()},
        {"seconds", seconds}};
    facts.update(ends_json(tokenizer.ends()));
    console.print(text_of_json(facts));
    return;
  }
  const auto count = [](std::int64_t number, const char* rest) {
    return number > 0 ? with_thousands(number) + rest : "";
  };
  console.print(text_of_facts(
      {{"tokenizer", tokenizer.file().empty() ? "bytes" : printable_path(tokenizer.file())},
       {"tokens", fmt::format("{}, {:.2f} bytes of text each", with_thousands(result.tokens),
                              text / static_cast<double>(result.tokens))},
       {"documents",
        fmt::format("{}{}, {}{}", with_thousands(result.documents),
                    result.json_inputs == std::ssize(options.settings.inputs) ? " of JSON"
                    : result.json_inputs > 0                                  ? " of JSON and text"
                                                                              : "",
                    ends_text(tokenizer.ends()),
                    result.empty_documents > 0 ? fmt::format("; {} empty ones skipped",
                                                             with_thousands(result.empty_documents))
                                               : "")},
       {"wrote", fmt::format("{}: {}, {} bits each", printable_path(options.settings.output),
                             name_of(options.settings.layout), 8 * result.token_bytes)},
       {"replaced", count(result.replaced_bytes, " bytes that are not UTF-8 by U+FFFD")},
       {"skipped",
        count(result.skipped_lines, " lines or elements that are no JSON object with the text")},
       {"left out",
        count(tokenizer.left_out(), " characters: the tokenizer has no tokens for them")}},
      11));
}

// --field applies to JSON, --document-separator to all other text.
void choose_document_options(TokenizeOptions& options) {
  TokenizeSettings& settings = options.settings;
  const auto& inputs = settings.inputs;
  // Whether all inputs are JSON, or none is.
  const auto all_are = [&](bool json) {
    return std::all_of(inputs.begin(), inputs.end(), [&](const std::string& input) {
      return is_json(input, settings.text) == json;
    });
  };
  set_field(settings, options.field);
  if (settings.text.skip_invalid && all_are(false)) {
    refuse_without_effect("--skip-invalid", "no input is JSON");
  }
  if (!options.separator.empty()) {
    if (all_are(true)) {
      refuse_without_effect("--document-separator", "each JSON object is a document");
    }
    settings.text.separator = options.separator;
  }
}

void run_tokenize(TokenizeOptions options, const Console& console) {
  TokenizeSettings& settings = options.settings;
  settings.layout = layout_of(options);
  settings.text.advice += "; --replace-invalid puts U+FFFD there";
  settings.threads = options.threads > 0
                         ? options.threads
                         : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  choose_document_options(options);
  check_is_new(settings.output);
  const std::unique_ptr<Tokenizer> tokenizer =
      open_tokenizer(options.tokenizer, interrupt_requested());
  if (options.parse_special && !tokenizer->parse_special()) {
    throw_usage("--parse-special needs a tokenizer.json or a GGUF file, {} is none",
                options.tokenizer == "bytes" ? "bytes" : printable_path(tokenizer->file()));
  }
  settings.origin = origin_of(*tokenizer);
  tokenizer->set_ends(ends_of(options, *tokenizer));
  const auto begin = std::chrono::steady_clock::now();
  std::optional<Progress> progress;
  const TokenizeProgress on_progress = [&](std::uint64_t done, std::uint64_t total) {
    if (!progress) {
      progress.emplace(console, "tokenize", total, "bytes");
    }
    progress->update(done);
  };
  const TokenizeResult result = tokenize(*tokenizer, settings, on_progress, interrupt_requested());
  progress->finish();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  report(options, *tokenizer, result, seconds, console);
}

// Adds --bos, --no-bos and --bos-token, or the same for EOS.
void add_end_options(Command command, const std::string& name, std::string_view verb,
                     std::optional<bool>& flag, std::optional<std::int64_t>& token) {
  command.add_flag(
      fmt::format("--{0},!--no-{0}", name), flag,
      fmt::format("{} each document with that token, or not (default: as the tokenizer does)",
                  verb));
  add_count(command, fmt::format("--{}-token", name), token,
            fmt::format("id of that token (default: the tokenizer's); implies --{}", name),
            kAnyToken);
}

void add_document_options(Command command, TokenizeOptions& options) {
  TextSettings& text = options.settings.text;
  add_jsonl_option(command, text.json_lines);
  command.add_option(
      "--field", options.field,
      "JSON: the field that holds the document, such as body or data.text (default: text)");
  command.add_option("--document-separator", options.separator,
                     "a line that separates documents, such as <|endoftext|> (default: a file is "
                     "one document)");
  add_end_options(command, "bos", "begin", options.bos, options.bos_token);
  add_end_options(command, "eos", "end", options.eos, options.eos_token);
  command.add_flag("--parse-special", options.parse_special,
                   "read special tokens that the text spells out, such as <|im_end|>, as those "
                   "tokens: for text that you trust, such as chats");
  command.add_flag("--replace-invalid", text.replace_invalid,
                   "replace bytes that are not UTF-8 by U+FFFD");
  command.add_flag(
      "--skip-invalid", text.skip_invalid,
      "JSON: leave out lines and elements of lists that are no JSON object with that field");
}

}  // namespace

void add_tokenize_command(Command program, Console& console) {
  auto options = std::make_shared<TokenizeOptions>();
  Command command =
      program.add_command("tokenize", "Make a token file of text, for uptrain and eval");
  command
      .add_option("inputs", options->settings.inputs,
                  "text or JSON, also in .gz or .zst; - for standard input")
      .required()
      .default_text("");
  command
      .add_option(
          "--tokenizer", options->tokenizer,
          "tokenizer.json, a tokenizer.model of SentencePiece or tiktoken, vocab.json with "
          "merges.txt, vocab.txt, a model directory that holds one of them, a GGUF file, or bytes")
      .required();
  command
      .add_option("-o,--output", options->settings.output,
                  "token file to make: X.bin, with X.idx, or X.npy; must not exist yet")
      .required();
  command
      .add_option("--format", options->layout,
                  "megatron (.bin and .idx, which marks documents), npy or raw (default: by the "
                  "output's extension)")
      .one_of({"megatron", "npy", "raw"});
  add_document_options(command, *options);
  add_threads_option(command, options->threads, "threads that encode (default: one per core)");
  command.add_flag("--json", options->json, "report as JSON");
  command.footer(
      "Example: regroup tokenize articles.jsonl --tokenizer Llama-2-7b-hf -o corpus.bin\n"
      "Documents are JSON lines, elements of a JSON list, files, or the text between separators; "
      "empty ones are skipped.\n"
      "Ids have 16 bits if the vocabulary allows it, otherwise 32. Special tokens spelled out in\n"
      "text, such as \"</s>\", are encoded as text.");
  command.on_run([options, &console] { run_tokenize(*options, console); });
}

}  // namespace regroup
