// Writes the seed corpus: for each fuzz target a folder of well-formed and nearly well-formed
// files.
#include <fmt/format.h>

#include "tests/charsmap_builder.h"
#include "tests/file_tree.h"
#include "tests/gguf_builder.h"
#include "tests/tiny_models.h"
#include "tests/tokens/sentencepiece_builder.h"
#include "tests/torch_builder.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

class Seeds {
 public:
  explicit Seeds(fs::path directory) : directory_(std::move(directory)) {}

  void put(const std::string& target, std::string_view bytes) {
    put_file(directory_ / target / fmt::format("seed-{}", count_++), bytes);
  }

 private:
  fs::path directory_;
  int count_ = 0;
};

// The target needs the length of the data instead of the length of the header.
void put_safetensors(Seeds& seeds) {
  const auto put = [&](std::string_view header, std::uint64_t data_bytes) {
    seeds.put("safetensors", little_endian(data_bytes, 8) + std::string(header));
    seeds.put("weight_file", file_with_header(header, data_bytes < 1000 ? data_bytes : 0));
  };
  put(R"({})", 0);
  put(R"({"__metadata__":{"format":"pt","a":"b"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}   )",
      24);
  put(R"({"a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},"b":{"dtype":"F4","shape":[2,2],"data_offsets":[2,4]},"\u0063":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[4,7]}})",
      7);
  put(R"({"a":{"shape":[0,9],"dtype":"F8_E4M3","data_offsets":[0,0]},"b":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})",
      8);
  put(R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,18446744073709551615]}})",
      1);
  put(R"({"a":{"dtype":"F32","shape":[-1,2.5],"data_offsets":[1,0]},"a":[[[[]]]],"x":null})", 4);
}

void put_archives(Seeds& seeds) {
  const BuiltZipEntry plain{.name = "a/0", .data = "0123"};
  BuiltZipEntry follows = plain;
  follows.name = "a/1";
  follows.flags = 8;  // sizes after the data
  BuiltZipEntry wide = plain;
  wide.name = "a/2";
  wide.zip64 = true;
  for (const bool zip64 : {false, true}) {
    seeds.put("zip", BuiltZip{.entries = {plain, follows, wide}, .zip64_end = zip64}.bytes());
  }
}

// Two sequences of three u16 tokens, one document each.
void put_megatron(Seeds& seeds) {
  std::string index =
      little_endian(1, 8) + little_endian(8, 1) + little_endian(2, 8) + little_endian(3, 8);
  for (const auto& [number, size] :
       {std::pair{3, 4}, {3, 4}, {0, 8}, {6, 8}, {0, 8}, {1, 8}, {2, 8}}) {
    index += little_endian(static_cast<std::uint64_t>(number), static_cast<std::size_t>(size));
  }
  seeds.put("megatron", index);
}

// Two pieces with scores and the settings for training and normalisation, and a BPE with all its
// options.
void put_tokenizers(Seeds& seeds) {
  using std::string_literals::operator""s;
  seeds.put("tokenizer",
            "\x0a\x08\x0a\x01"
            "a\x15\0\0\x80\xbf\x0a\x05\x0a\x01"
            "b\x18\x02"s +
                "\x12\x02\x18\x02\x1a\x04\x18\0\x20\0"s);
  seeds.put(
      "tokenizer",
      R"({"added_tokens":[{"id":3,"content":"<s>","special":true},{"id":4,"content":"x y"}],)"
      R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},)"
      R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}}]},)"
      R"("model":{"type":"BPE","byte_fallback":true,"unk_token":"a",)"
      R"("vocab":{"a":0,"b":1,"ab":2,"<0x41>":5},"merges":["a b",["a","b"]]}})");
}

// One of each model, with normalizers, pre-tokenizers, added tokens and post-processors of all
// kinds, then a text.
void put_gguf_tokenizers(Seeds& seeds) {
  const std::string special = "2 0 <unk>\n3 0 <s>\n3 0 </s>\n";
  seeds.put("gguf_tokenizer", "llama default 1 0 0 1 0 2\n" + special +
                                  "1 -3 a\n1 -4 b\n1 -1 ab\n1 -2 \u2581a\n1 -5 \u2581\n4 0 <u>\n");
  seeds.put("gguf_tokenizer", "gpt2 smollm\n1 0 a\n1 0 b\n1 0 ab\n3 0 <s>\n1 0 \u0120\n\na b\n");
  seeds.put("gguf_tokenizer", "gpt2 deepseek-llm\n1 0 a\n1 0 b\n1 0 ab\n3 0 <s>\n\na b\n");
  seeds.put("gguf_tokenizer",
            "t5 default 1 1\n3 0 <pad>\n3 0 </s>\n2 0 <unk>\n1 -1 \u2581a\n1 -2 b\n");
  seeds.put("gguf_tokenizer", "bert default 0 0 1 0 1\n3 0 [CLS]\n3 0 [UNK]\n1 0 \u2581a\n1 0 b\n");
  std::string bytes = "llama default\n" + special + "1 -1 a\n";
  for (int byte = 0; byte < 256; ++byte) {
    bytes += fmt::format("6 0 <0x{:02X}>\n", byte);
  }
  seeds.put("gguf_tokenizer", bytes);
}

void put_json_tokenizers(Seeds& seeds) {
  constexpr std::string_view kAdded =
      R"([{"id":4,"content":" x","single_word":true,"lstrip":true,"rstrip":true,)"
      R"("normalized":true,"special":false}])";
  constexpr std::string_view kBpe =
      R"({"type":"BPE","unk_token":"b","fuse_unk":true,"byte_fallback":true,"ignore_merges":true,)"
      R"("vocab":{"a":0,"b":1,"ab":2,"<0x41>":3},"merges":["a b"]})";
  constexpr std::string_view kUnigram = R"({"type":"Unigram","unk_id":0,"byte_fallback":false,)"
                                        R"("vocab":[["a",-1],["b",-2.5],["ab",-3e-1],["c",0]]})";
  constexpr std::string_view kWordPiece =
      R"({"type":"WordPiece","unk_token":"a","continuing_subword_prefix":"##",)"
      R"("max_input_chars_per_word":9,"vocab":{"a":0,"b":1,"##b":2,"##ab":3}})";
  const auto put = [&](std::string_view normalizer, std::string_view pre_tokenizer,
                       std::string_view model, std::string_view post_processor) {
    seeds.put("json_tokenizer",
              fmt::format(R"({{"version":"1.0","added_tokens":{},"normalizer":{},)"
                          R"("pre_tokenizer":{},"post_processor":{},"model":{}}})"
                          "\nab b  ab x \u00e4\u0308 AB12",
                          kAdded, normalizer, pre_tokenizer, post_processor, model));
  };
  put(R"({"type":"Sequence","normalizers":[{"type":"NFC"},)"
      R"({"type":"Strip","strip_left":true,"strip_right":true},)"
      R"({"type":"Replace","pattern":{"Regex":"\\s+|(?i:q)+"},"content":" "}]})",
      R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":)"
      R"({"Regex":"\\p{L}+|[^\\s\\p{N}]{1,3}|(?=a)b"},"behavior":"MergedWithNext","invert":true},)"
      R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}]})",
      kBpe, R"({"type":"RobertaProcessing","sep":["a",0],"cls":["b",1],"trim_offsets":true})");
  put(R"({"type":"Prepend","prepend":"a"})",
      R"({"type":"Metaspace","replacement":"\u2581","prepend_scheme":"first","split":true})",
      kUnigram,
      R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"A"}},)"
      R"({"SpecialToken":{"id":"a"}}],"pair":[],"special_tokens":{"a":{"ids":[0]}}})");
  put(R"({"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,)"
      R"("strip_accents":null,"lowercase":true})",
      R"({"type":"BertPreTokenizer"})", kWordPiece, "null");
  put("null",
      R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},)"
      R"({"type":"Punctuation","behavior":"Contiguous"},{"type":"CharDelimiterSplit","delimiter":"-"}]})",
      R"({"type":"WordLevel","unk_token":"a","vocab":{"a":0,"b":1,"ab":2,"x":3}})", "null");
}

// Tokenizers that would take all time or memory if nothing counted what they do.
void put_hostile_tokenizers(Seeds& seeds) {
  constexpr std::string_view kModel =
      R"({"type":"BPE","unk_token":"b","vocab":{"a":0,"b":1,"#":2},"merges":[]})";
  const auto put = [&](std::string_view added, std::string_view normalizer,
                       std::string_view pre_tokenizer, std::string_view model) {
    seeds.put("json_tokenizer",
              fmt::format(R"({{"version":"1.0","added_tokens":[{}],"normalizer":{},)"
                          R"("pre_tokenizer":{},"post_processor":null,"model":{}}})"
                          "\n{}",
                          added, normalizer, pre_tokenizer, model, std::string(300, 'a')));
  };
  const auto split = [](std::string_view pattern) {
    return fmt::format(
        R"({{"type":"Split","pattern":{{"Regex":"{}"}},"behavior":"Isolated","invert":false}})",
        pattern);
  };
  for (const char* pattern :
       {"(?:[^#]|##)*?(?>[^#]*)[%$]", "(?=(?:a+a?)*b)|a*a*a*[^a]", "(a|a?)+#|a{0,99}a{0,99}b"}) {
    put("", "null", split(pattern), kModel);
  }
  const std::string many = fmt::format(
      R"({{"type":"Replace","pattern":{{"String":"a"}},"content":"{}"}})", std::string(100, 'b'));
  put("", many, split("b"), kModel);
  put(R"({"id":3,"content":" ","single_word":false,"lstrip":true,"rstrip":true,)"
      R"("normalized":true,"special":false})",
      many, "null", kModel);
  std::string pieces = R"(["b",0])";
  for (std::size_t length = 1; length < 40; ++length) {
    pieces += fmt::format(R"(,["{}",-{}])", std::string(length, 'a'), length);
  }
  put("", "null", "null", fmt::format(R"({{"type":"Unigram","unk_id":0,"vocab":[{}]}})", pieces));
}

// Rules alone after a 'C', and whole models with and without rules.
void put_charsmaps(Seeds& seeds) {
  BuiltSentencePiece model{
      {{"<unk>", 0, 2}, {"<s>", 0, 3}, {"\u2581", -1}, {"a", -2}, {"aa", -3, 4}}};
  for (const bool unigram : {true, false}) {
    model.unigram = unigram;
    seeds.put("charsmap", model.bytes());
  }
  BuiltCharsmap map;
  seeds.put("charsmap", "C" + map.bytes());
  map.add_rule("a", 0);
  map.add_rule("\u00e4", 2);
  map.replacements = std::string("b\0ab\0", 5);
  seeds.put("charsmap", "C" + map.bytes());
  model.charsmap = map.bytes();
  seeds.put("charsmap", model.bytes());
}

// For the tiny Llama, then with fused tensors, then with faults.
void put_layouts(Seeds& seeds) {
  seeds.put(
      "layout",
      R"({"layers":"num_hidden_layers","hidden_size":6,"query_heads":"num_attention_heads",)"
      R"("head_dim":"head_dim","q":"model.layers.{layer}.self_attn.q_proj.weight",)"
      R"("k":"model.layers.{layer}.self_attn.k_proj.weight",)"
      R"("v":"model.layers.{layer}.self_attn.v_proj.weight",)"
      R"("o":"model.layers.{layer}.self_attn.o_proj.weight","kv_heads_key":"a.b","kv_heads":12})");
  seeds.put("layout",
            R"({"layers":1,"hidden_size":6,"query_heads":4,"packing":"query_key_value",)"
            R"("qkv":"model.layers.{layer}.self_attn.q_proj.weight","alibi":{"bias_max":8},)"
            R"("o":"model.layers.{layer}.self_attn.o_proj.weight","input_major":true})");
  seeds.put("layout", R"({"layers":-1,"q":7,"kv_heads":[1,2],"kv_heads_key":"a..b","x":{}})");
}

// Options of each type, inside and outside of a command's table, and faults.
void put_tomls(Seeds& seeds) {
  seeds.put("toml", "quiet = true\n[train]\ntext = \"a\\u00e4\"\nnumber = 1_000\nreal = 1e-3\n");
  seeds.put("toml", "# what\n[train]\nlist = [\"a\", 'b']\nnumber = 0x1f\nreal = inf\n");
  seeds.put("toml", "train.number = 99999999999999999999\n[other]\nx = {a = {b = [[[1]]]}}\n");
  seeds.put("toml", "[train]\ntext = \"not closed\nnumber = 1979-05-27\n");
  // Undefined behaviour in toml++ 3.3, so regroup must refuse it first.
  seeds.put("toml", "\u01db\u00c4");
}

void put_torch(Seeds& seeds) {
  const std::string storage = pickle::storage("FloatStorage", "0", 6);
  const std::string plain = pickle::tensor({storage, 0, {2, 3}, {3, 1}});
  const std::string turned = pickle::tensor({storage, 1, {2, 2}, {1, 2}});
  const std::string typed = pickle::tensor_of_dtype(
      {pickle::storage("UntypedStorage", "0", 24), 0, {4}, {1}}, "float8_e4m3fn");
  for (const std::string& value :
       {pickle::dict({pickle::text("w"), plain, pickle::text("v"), turned}),
        pickle::dict({pickle::text("state_dict"), pickle::dict({pickle::text("w"), typed})}),
        pickle::dict({pickle::text("n"), pickle::integer(3)}), pickle::global("os", "system")}) {
    const std::string program = pickle::program(value);
    const BuiltZip archive = torch_archive(program, {std::string(24, 'x')});
    seeds.put("pickle", program);
    seeds.put("torch", program);
    seeds.put("zip", archive.bytes());
    seeds.put("weight_file", archive.bytes());
  }
  put_archives(seeds);
  const std::string old =
      pickle::tensor({pickle::legacy_storage("FloatStorage", "a", 2), 0, {2}, {1}});
  LegacyTorchFile file{pickle::program(pickle::dict({pickle::text("w"), old})),
                       {{"a", 2, std::string(8, 'y')}}};
  seeds.put("weight_file", file.bytes());
}

std::vector<std::string> gguf_entries() {
  const auto u32 = [](std::string_view key, std::uint32_t value) {
    return gguf_entry(key, 4, gguf_u32(value));
  };
  return {gguf_entry("general.architecture", 8, gguf_string("llama")),
          u32("general.alignment", 32),
          u32("llama.block_count", 1),
          u32("llama.embedding_length", 4),
          u32("llama.attention.head_count", 2),
          u32("llama.feed_forward_length", 4),
          u32("llama.context_length", 8),
          u32("llama.attention.head_count_kv", 2),
          gguf_entry("llama.attention.layer_norm_rms_epsilon", 6, gguf_u32(0x3727c5ac)),
          gguf_array_entry("tokenizer.ggml.tokens", 8, 2, gguf_string("a") + gguf_string("b"))};
}

// All tensors of one layer. Sets `offset` to the end of their data.
std::vector<std::string> gguf_tensors(std::uint64_t& offset) {
  std::vector<std::string> tensors;
  offset = 0;
  const auto add = [&](std::string_view name, const std::vector<std::uint64_t>& dimensions) {
    tensors.push_back(gguf_tensor(name, dimensions, 0, offset));
    std::uint64_t bytes = 4;
    for (const std::uint64_t size : dimensions) {
      bytes *= size;
    }
    offset += (bytes + 31) / 32 * 32;
  };
  add("token_embd.weight", {4, 2});
  add("output_norm.weight", {4});
  for (const char* name : {"attn_norm", "ffn_norm"}) {
    add(fmt::format("blk.0.{}.weight", name), {4});
  }
  for (const char* name :
       {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
    add(fmt::format("blk.0.{}.weight", name), {4, 4});
  }
  return tensors;
}

void put_gguf(Seeds& seeds) {
  const auto both = [&](const GgufPieces& pieces) {
    seeds.put("gguf", pieces.text());
    seeds.put("weight_file", pieces.text());
  };
  const std::vector<std::string> entries = gguf_entries();
  std::uint64_t bytes = 0;
  const std::vector<std::string> tensors = gguf_tensors(bytes);
  both({});
  both({.entries = entries, .tensors = tensors, .data_bytes = bytes});
  both({.entries = {gguf_array_entry("a", 9, 1, gguf_u32(4) + gguf_u64(0))}});
  both({.version = 2, .entries = entries, .more_tensors = 1U << 30, .more_entries = 7});
}

// Two parts with a tensor each, and a third that says it is the second one.
void put_gguf_parts(Seeds& seeds) {
  const auto part = [](std::uint32_t number, std::uint32_t count) {
    return GgufPieces{.entries = {gguf_entry("split.no", 4, gguf_u32(number)),
                                  gguf_entry("split.count", 4, gguf_u32(count)),
                                  gguf_entry("split.tensors.count", 4, gguf_u32(count))},
                      .tensors = {gguf_tensor(fmt::format("w{}", number), {4}, 0, 0)},
                      .data_bytes = 16}
        .text();
  };
  const std::string next = "\n--part--\n";
  seeds.put("gguf_split", "m-00001-of-00002.gguf\n" + part(0, 2) + next + part(1, 2));
  seeds.put("gguf_split", "m.gguf\n" + part(0, 3) + next + part(1, 3) + next + part(1, 3));
}

void put_json(Seeds& seeds) {
  seeds.put("index", R"({"metadata":{"total_size":24},"weight_map":{"x":"a","y":"b","z":"b"}})");
  seeds.put("index", R"({"weight_map":{"x":"a","y":"../b","z":"/b","w":"c"}})");
  seeds.put("index", R"({"metadata":3,"weight_map":[{"x":"a"}]})");
  for (const TinyModel& model : {tiny_llama(), tiny_gpt2(), tiny_bloom()}) {
    seeds.put("config", model.config);
  }
  for (const auto& entry : fs::directory_iterator(golden(""))) {
    if (fs::exists(entry.path() / "config.json")) {
      seeds.put("config", bytes_of_file(entry.path() / "config.json"));
    }
  }
}

}  // namespace
}  // namespace regroup

int main(int argc, char** argv) {
  if (argc != 2) {
    return 2;
  }
  regroup::Seeds seeds(argv[1]);
  regroup::put_safetensors(seeds);
  regroup::put_torch(seeds);
  regroup::put_megatron(seeds);
  regroup::put_tokenizers(seeds);
  regroup::put_charsmaps(seeds);
  regroup::put_json_tokenizers(seeds);
  regroup::put_hostile_tokenizers(seeds);
  regroup::put_gguf_tokenizers(seeds);
  regroup::put_layouts(seeds);
  regroup::put_tomls(seeds);
  regroup::put_gguf(seeds);
  regroup::put_gguf_parts(seeds);
  regroup::put_json(seeds);
  return 0;
}
