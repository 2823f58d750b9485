// Forms of chats, with ids put together by hand.
#include <string>
#include <variant>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "formats/base/json.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tokens/tokenizer.h"

namespace regroup {
namespace {

using TokenIds = std::vector<std::uint32_t>;

// A tokenizer of characters with these special tokens from id 200 on, whose EOS is </s> (199).
class Characters : public Tokenizer {
 public:
  explicit Characters(std::vector<std::string> special, const std::string& chat_template)
      : special_(std::move(special)) {
    set_ends({.bos = 198, .eos = 199});
    set_chat_template(chat_template);
  }
  void encode(std::string_view text, bool begins_document, TokenIds& ids) const override {
    begun_ += begins_document ? 1 : 0;
    ids.insert(ids.end(), text.begin(), text.end());
  }
  int begun() const { return begun_; }  // documents
  std::string decode(std::span<const std::uint32_t>) const override { return ""; }
  std::optional<std::int64_t> id_of(std::string_view token) const override {
    for (std::size_t i = 0; i < special_.size(); ++i) {
      if (special_[i] == token) {
        return 200 + static_cast<std::int64_t>(i);
      }
    }
    return std::nullopt;
  }
  void for_each_token(const std::function<void(std::int64_t, std::string_view)>&) const override {}
  std::int64_t vocabulary() const override { return 300; }
  bool reads_utf8() const override { return true; }

 private:
  std::vector<std::string> special_;
  mutable int begun_ = 0;
};

std::optional<ChatForm> form_of(const std::vector<std::string>& special,
                                const std::string& chat_template) {
  Characters tokenizer(special, chat_template);
  return chat_form_of(tokenizer);
}

// Characters as they are; ids as they are.
TokenIds ids_of(std::initializer_list<std::variant<std::string, std::uint32_t>> parts) {
  TokenIds ids;
  for (const auto& part : parts) {
    if (const auto* text = std::get_if<std::string>(&part)) {
      ids.insert(ids.end(), text->begin(), text->end());
    } else {
      ids.push_back(std::get<std::uint32_t>(part));
    }
  }
  return ids;
}

}  // namespace

TEST_CASE("ChatML is recognised with its default system prompt", "[tokens]") {
  const std::string chat_template =
      R"({% if messages[0]['role'] == 'system' %}{{ '<|im_start|>system\n' + messages[0]['content'] )"
      R"(+ '<|im_end|>\n' }}{% else %}{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif %})"
      R"({{ '<|im_start|>assistant\n' }})";
  const auto form = form_of({"<|im_start|>", "<|im_end|>"}, chat_template);
  REQUIRE(form);
  CHECK(form->name == "ChatML");
  CHECK(form->opening == ids_of({200U, "system\nBe kind.", 201U, "\n", 200U, "user\n"}));
  CHECK(form->to_answer == ids_of({201U, "\n", 200U, "assistant\n"}));
  CHECK(form->to_user == ids_of({201U, "\n", 200U, "user\n"}));
}

TEST_CASE("Phi-4's form is not ChatML's", "[tokens]") {
  const auto form =
      form_of({"<|im_start|>", "<|im_sep|>", "<|im_end|>"},
              "{% for message in messages %}{{ '<|im_start|>user<|im_sep|>' + message['content'] + "
              "'<|im_end|>' }}{% endfor %}{{ '<|im_start|>assistant<|im_sep|>' }}");
  REQUIRE(form);
  CHECK(form->name == "Phi-4");
  CHECK(form->opening == ids_of({200U, "user", 201U}));
  CHECK(form->to_answer == ids_of({202U, 200U, "assistant", 201U}));
  CHECK(form->to_user == ids_of({202U, 200U, "user", 201U}));
}

TEST_CASE("other known forms are recognised by their tokens", "[tokens]") {
  const auto llama3 =
      form_of({"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
              "{{ bos_token }}<|start_header_id|>{{ role }}<|end_header_id|>\n\n<|eot_id|>");
  REQUIRE(llama3);
  CHECK(llama3->opening == ids_of({198U, 200U, "user", 201U, "\n\n"}));
  CHECK(llama3->to_answer == ids_of({202U, 200U, "assistant", 201U, "\n\n"}));
  const auto gemma =
      form_of({"<start_of_turn>", "<end_of_turn>"},
              "{{ bos_token }}{% set role = 'model' %}<start_of_turn>{{ role }}\n<end_of_turn>\n");
  REQUIRE(gemma);
  CHECK(gemma->to_answer == ids_of({201U, "\n", 200U, "model\n"}));
  const auto llama2 =
      form_of({}, "{{ bos_token + '[INST] ' + content + ' [/INST]' }} {{ eos_token }}");
  REQUIRE(llama2);
  CHECK(llama2->opening == ids_of({198U, "[INST]"}));
  CHECK(llama2->to_answer == ids_of({" [/INST]"}));
  CHECK(llama2->to_user == ids_of({199U, 198U, "[INST]"}));
  const auto zephyr =
      form_of({}, "{{ '<|user|>\\n' + message['content'] + eos_token }}'<|assistant|>'");
  REQUIRE(zephyr);
  CHECK(zephyr->to_answer == ids_of({199U, "\n<|assistant|>\n"}));
}

TEST_CASE("a form is not guessed", "[tokens]") {
  CHECK_FALSE(form_of({"<|im_start|>", "<|im_end|>"}, ""));
  CHECK_FALSE(form_of({}, "<|im_start|><|im_end|>assistant"));
  CHECK_FALSE(form_of({}, "### Instruction:\n{{ content }}\n### Response:"));
}

TEST_CASE("parts of a chat go on from other text", "[tokens]") {
  Characters tokenizer({}, "{{ bos_token + '[INST] ' + content + ' [/INST]' }} {{ eos_token }}");
  REQUIRE(chat_form_of(tokenizer));
  CHECK(tokenizer.begun() == 0);  // the opening begins with BOS
}

TEST_CASE("Llama 3.1 always has a system turn", "[tokens]") {
  const auto form = form_of(
      {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
      "{{ bos_token }}<|start_header_id|>{{ role }}<|end_header_id|>\\n\\n"
      "{{ \"Cutting Knowledge Date: December 2023\\n\" }}{{ \"Today Date: \" + date }}<|eot_id|>");
  REQUIRE(form);
  const std::string dates =
      "\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
  CHECK(form->opening ==
        ids_of({198U, 200U, "system", 201U, dates, 202U, 200U, "user", 201U, "\n\n"}));
}

#if REGROUP_WITH_TOKENIZER_JSON

TEST_CASE("each part of a chat is encoded as in the whole text", "[tokens]") {
  // SentencePiece's BPE as tokenizer.json: each section between special tokens gets a space.
  const TemporaryDirectory directory;
  put_file(directory / "tokenizer.json", R"({
    "version": "1.0",
    "added_tokens": [
      {"id": 1, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
       "normalized": false, "special": true},
      {"id": 2, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
       "normalized": false, "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>",
      "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": true,
      "byte_fallback": false,
      "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "▁": 3, "[": 4, "/": 5, "I": 6, "N": 7, "S": 8,
                "T": 9, "]": 10, "H": 11, "i": 12, "▁[": 13, "▁H": 14},
      "merges": ["▁ [", "▁ H"]}})");
  put_file(directory / "tokenizer_config.json",
           R"({"bos_token": "<s>", "eos_token": "</s>", "chat_template":
               "{{ bos_token + '[INST] ' + content + ' [/INST]' }}{{ answer + eos_token }}"})");
  const auto tokenizer = open_tokenizer(directory.path().string());
  const auto form = chat_form_of(*tokenizer);
  REQUIRE(form);
  CHECK(form->opening == TokenIds{1, 13, 6, 7, 8, 9, 10});
  CHECK(form->to_answer == TokenIds{13, 5, 6, 7, 8, 9, 10});
  CHECK(form->to_user == TokenIds{2, 1, 13, 6, 7, 8, 9, 10});
  CHECK(asked_in(*form, "Hi", *tokenizer) ==
        TokenIds{1, 13, 6, 7, 8, 9, 10, 14, 12, 13, 5, 6, 7, 8, 9, 10});
}

TEST_CASE("a tokenizer has its model's chat template", "[tokens]") {
  const TemporaryDirectory directory;
  put_file(directory / "vocab.json", R"({"a": 0, "b": 1, "<|im_start|>": 2})");
  put_file(directory / "merges.txt", "#version: 0.2\n");
  put_file(directory / "config.json", R"({"model_type": "gpt2"})");
  put_file(directory / "tokenizer_config.json", R"({"chat_template": "x"})");
  CHECK(open_tokenizer(directory.path().string())->chat_template() == "x");
  put_file(directory / "tokenizer_config.json", "{}");
  put_file(directory / "chat_template.jinja", "y");
  CHECK(open_tokenizer(directory.path().string())->chat_template() == "y");
}

#endif

}  // namespace regroup
