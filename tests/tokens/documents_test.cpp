// Documents from text files and JSON lines.
#include "tokens/documents.h"

#include <sys/stat.h>
#include <thread>
#include <tuple>

#include <catch2/catch_test_macros.hpp>

#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

const std::atomic<bool> kNever{false};

// The documents, joined from their parts. "(…" marks a part that ends too early.
std::vector<std::string> documents_in(const std::vector<std::string>& inputs,
                                      const TextSettings& settings = {}) {
  DocumentReader reader(inputs, settings, kNever);
  std::vector<std::string> documents;
  bool ended = true;
  for (TextPart part; reader.next(part); ended = part.ends) {
    CHECK(part.begins == ended);
    CHECK(part.text.size() <= 1U << 20);
    if (part.begins) {
      documents.emplace_back();
    }
    documents.back() += part.text;
  }
  CHECK(ended);
  return documents;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("a text file is one document including white space", "[tokens]") {
  const TemporaryDirectory directory;
  put_file(directory / "a.txt", " one\r\n\n two");
  put_file(directory / "b.txt", "three\n");
  put_file(directory / "empty.txt", "");
  CHECK(documents_in({directory / "a.txt", directory / "empty.txt", directory / "b.txt"}) ==
        Texts{" one\r\n\n two", "", "three\n"});
}

TEST_CASE("a line between documents separates them", "[tokens]") {
  const TemporaryDirectory directory;
  const TextSettings settings{.separator = "<|end|>"};
  put_file(directory / "a", "one\n<|end|>\ntwo <|end|>\n<|end|> \n<|end|>\r\nthree");
  CHECK(documents_in({directory / "a"}, settings) ==
        Texts{"one\n", "two <|end|>\n<|end|> \n", "three"});
  // None after the last separator.
  put_file(directory / "a", "one\n<|end|>\n<|end|>\ntwo\n<|end|>\n");
  CHECK(documents_in({directory / "a"}, settings) == Texts{"one\n", "", "two\n"});
}

TEST_CASE("a long document is read in parts that end before white space", "[tokens]") {
  const TemporaryDirectory directory;
  std::string text;
  for (int i = 0; text.size() < 3'000'000; ++i) {
    text += "word" + std::to_string(i) + (i % 10 == 0 ? "\n" : " ");
  }
  put_file(directory / "long", text);
  CHECK(documents_in({directory / "long"}) == Texts{text});
  DocumentReader reader({directory / "long"}, {}, kNever);
  CHECK(reader.bytes_in_all() == text.size());
  int parts = 0;
  for (TextPart part; reader.next(part); ++parts) {
    CHECK((part.begins || part.text.front() == ' ' || part.text.front() == '\n'));
  }
  CHECK(parts == 3);
  CHECK(reader.bytes_read() == text.size());
  // A line without end and without white space: characters stay whole.
  std::string euros;
  while (euros.size() < 2'500'000) {
    euros += "\u20ac";
  }
  put_file(directory / "long", euros);
  CHECK(documents_in({directory / "long"}) == Texts{euros});
}

TEST_CASE("each line of JSON is a document", "[tokens]") {
  const TemporaryDirectory directory;
  const std::string lines =
      "{\"text\": \"one\\n\\u00e4\", \"id\": 3}\n\n  \r\n{\"text\": \"\"}\r\n{\"id\": [{\"text\": "
      "1}], \"text\": "
      "\"two\"}";
  put_file(directory / "a.jsonl", lines);
  put_file(directory / "b", lines);
  CHECK(documents_in({directory / "a.jsonl"}) == Texts{"one\n\u00e4", "", "two"});
  CHECK(documents_in({directory / "b"}, {.json_lines = true}) == Texts{"one\n\u00e4", "", "two"});
  CHECK(documents_in({directory / "b"}) == Texts{"one\n\u00e4", "", "two"});
  CHECK(documents_in({directory / "b"}, {.json_lines = false}) == Texts{lines});
  put_file(directory / "c.jsonl", "{\"body\": \"" + std::string(2'000'000, 'x') + "\"}");
  CHECK(documents_in({directory / "c.jsonl"}, {.field = "body"}) ==
        Texts{std::string(2'000'000, 'x')});
}

TEST_CASE("JSON is recognised by its content", "[tokens]") {
  const TemporaryDirectory directory;
  const std::string line = "{\"text\": \"one\", \"n\": [1, {\"a\": NaN}]}\n";
  const auto read = [&](const std::string& bytes, const TextSettings& settings = {}) {
    put_file(directory / "a.json", bytes);
    return documents_in({directory / "a.json"}, settings);
  };
  const std::string plain_line = "{\"text\": \"one\", \"n\": [1, {\"a\": 2}]}\n";
  CHECK(read(plain_line) == Texts{"one"});
  CHECK(read("\xef\xbb\xbf\n " + plain_line + plain_line) == Texts{"one", "one"});
  CHECK(read("{\"text\": \"" + std::string(200'000, 'x') + "\"}\n") ==
        Texts{std::string(200'000, 'x')});
  CHECK(read(line) == Texts{"one"});  // NaN as Python writes it
  for (const std::string text :
       {"{}", "{ return \"x\"; }", "[1] a note", "{\"a\": 1} is JSON", "[\"a\"] is JSON",
        "[link](x)", "{\"a\", \"b\"}", "[[1], [2]]", "[[\"Heroes\" (album)]]\nby David Bowie"}) {
    CAPTURE(text);
    CHECK(read(text) == Texts{text});
  }
  for (const auto& [text, place, words] :
       {std::tuple{"[[\"a\", \"b\"], [\"c\"]]", "/a.json:1", "JSON array"},
        {"[\"a\"]\nmore", "/a.json:2", "after the end of the list"},
        {"{\"text\": \"a\"}\nmore", "/a.json:2", "not valid JSON"}}) {
    CAPTURE(text);
    CHECK_THAT(refusal_of([&, text = text] { read(text); }), is_bad_input(place, words));
  }
  put_file(directory / "p", plain_line);
  CHECK(is_json(directory / "p", {}) == true);
  put_file(directory / "q", "text");
  CHECK(is_json(directory / "q", {}) == false);
  CHECK_FALSE(is_json("-", {}).has_value());
  CHECK_THAT(refusal_of([&] { read("{\"body\": \"x\", \"n\": 3}"); }),
             is_bad_input("\"text\" is missing", "--field names another key: body"));
}

TEST_CASE("a list of objects or strings, and objects of any form, are documents", "[tokens]") {
  const TemporaryDirectory directory;
  const auto read = [&](const std::string& bytes, const TextSettings& settings = {}) {
    put_file(directory / "a", bytes);
    return documents_in({directory / "a"}, settings);
  };
  const std::string object = "{\"text\": \"o]n}e,\\\"\\\\\", \"n\": [1, {\"a\": NaN}]}";
  const std::string text = "o]n}e,\"\\";
  CHECK(read("[" + object + "\n, " + object + " ]\n") == Texts{text, text});
  CHECK(read("\xef\xbb\xbf[\n" + object + std::string(200'000, ' ') + "]") == Texts{text});
  CHECK(read("[\"one\", \"t\\u00e4o\" ,\"\"]") == Texts{"one", "t\u00e4o", ""});
  CHECK(read("{\n  \"text\": \"one\"\n}\n{\"text\":\n\"two\"}") == Texts{"one", "two"});
  CHECK(read(object + " " + object) == Texts{text, text});
  CHECK(read("[" + object + "]", {.json_lines = true}) == Texts{text});
  CHECK(read("[" + object + "]", {.json_lines = false}) == Texts{"[" + object + "]"});
  CHECK(read("[\"" + std::string(2'000'000, 'x') + "\"]") == Texts{std::string(2'000'000, 'x')});
  CHECK(is_json(directory / "a", {}) == true);
  CHECK(read("[\"one\", 2, {\"n\": 3}, {\"text\": \"four\"}]", {.skip_invalid = true}) ==
        Texts{"one", "four"});
  const auto refusal = [&](const std::string& bytes) { return refusal_of([&] { read(bytes); }); };
  CHECK_THAT(refusal("[\"one\",\n\n{\"body\": 3}]"), is_bad_input("/a:3", "\"text\" is missing"));
  CHECK_THAT(refusal("[\"one\",\n 2]"), is_bad_input("/a:2", "object"));
  CHECK_THAT(refusal("[\"one\"]\n[\"two\"]"), is_bad_input("/a:2", "end of the list"));
  CHECK_THAT(refusal("[\"one\",, \"two\"]"), is_bad_input("/a:1", "element", "--no-jsonl"));
  CHECK_THAT(refusal("[\"one\",]"), is_bad_input("/a:1", "element"));
  CHECK_THAT(refusal("[\"one\", \"two"), is_bad_input("/a:1", "ends inside"));
  CHECK_THAT(refusal("[\"one\", \"two\""), is_bad_input("/a:1", "ends inside"));
  CHECK_THAT(refusal("[\"one\"," + std::string(70'000, ' ') + "}]"),
             is_bad_input("/a:1", "not opened"));
  CHECK_THAT(refusal("[{\"text\": \"a\" \"b\"}]"), is_bad_input("/a:1", "not valid JSON"));
}

TEST_CASE("a field may be inside another, and chats are refused with what to type", "[tokens]") {
  const TemporaryDirectory directory;
  const auto read = [&](const std::string& line, const std::string& field) {
    put_file(directory / "a", line + "\n");
    return documents_in({directory / "a"}, {.field = field});
  };
  CHECK(read(R"({"a": {"b": {"c": "x"}}})", "a.b.c") == Texts{"x"});
  CHECK(read(R"({"a.b": "x", "a": {"b": "y"}})", "a.b") == Texts{"x"});
  CHECK_THAT(refusal_of([&] { read(R"({"a": {"b": 3}})", "a.b"); }), is_bad_input("JSON number"));
  CHECK_THAT(refusal_of([&] { read(R"({"a": ["x"]})", "a.0"); }), is_bad_input("missing"));
  const std::string chat = R"([{"role": "user", "content": "Hi"}])";
  for (const std::string field : {"messages", "conversations", "text"}) {
    CHECK_THAT(refusal_of([&] { read("{\"messages\": " + chat + "}", field); }),
               is_bad_input("\"messages\" is a list of chat messages",
                            "regroup.documents FILE --chat MODEL"));
  }
  CHECK_THAT(refusal_of([&] { read("{\"data\": {\"turns\": " + chat + "}}", "data.turns"); }),
             is_bad_input("\"data.turns\" is a list of chat messages"));
  CHECK(read("{\"messages\": " + chat + ", \"text\": \"x\"}", "text") == Texts{"x"});
}

TEST_CASE("a mark of UTF-8 at the beginning is no text", "[tokens]") {
  const TemporaryDirectory directory;
  put_file(directory / "a", "\xef\xbb\xbfone\xff");
  CHECK_THAT(refusal_of([&] { documents_in({directory / "a"}); }), is_bad_input("byte 6 (0xff)"));
  CHECK(documents_in({directory / "a"}, {.replace_invalid = true}) == Texts{"one\ufffd"});
  CHECK(documents_in({directory / "a"}, {.utf8 = false}) == Texts{"\xef\xbb\xbfone\xff"});
}

TEST_CASE("containers are refused with their name, replaced bytes or not", "[tokens]") {
  const TemporaryDirectory directory;
  const auto refusal = [&](const std::string& bytes) {
    put_file(directory / "a", bytes);
    return refusal_of([&] { documents_in({directory / "a"}, {.replace_invalid = true}); });
  };
  const std::string some("\0\1text", 6);
  for (const auto& [bytes, name, reader] :
       {std::tuple{"PAR1" + some, "a Parquet file", "regroup.documents FILE | regroup"},
        {"ARROW1" + some, "an Arrow file", "regroup.documents FILE | regroup"},
        {"\xff\xff\xff\xff" + some, "an Arrow stream", "regroup.documents FILE | regroup"},
        {"PK\3\4" + some, "a zip archive", "unzip -p"},
        {std::string(257, 'n') + "ustar" + some, "a tar archive", "tar -xO"},
        {"\xfd\x37zXZ" + some, "xz data", "xzcat FILE | regroup"},
        {"\xff\xfet\0e\0" + some, "text in UTF-16", "iconv -f UTF-16"},
        {std::string("\xff\xfe\0\0t\0\0\0", 8), "text in UTF-32", "iconv -f UTF-32"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "a git-LFS pointer",
         "pull"},
        {"\x1e{\"text\": \"a\"}\n", "JSON text sequences", "tr -d '\\036' < FILE | regroup"},
        {"GGUF" + some, "a GGUF file", ""}}) {
    CAPTURE(name);
    CHECK_THAT(refusal(bytes), is_bad_input("/a: " + std::string(name), reader));
  }
  std::string binary;
  for (int i = 0; i < 4000; ++i) {
    binary += static_cast<char>(i * 151 % 256);
  }
  CHECK_THAT(refusal(binary), is_bad_input("binary data"));
  put_file(directory / "b", "GGUF and PAR1 are formats");  // a text may begin with such a word
  CHECK(documents_in({directory / "b"}) == Texts{"GGUF and PAR1 are formats"});
  put_file(directory / "c", std::string(500, '\xe9') + std::string(1000, 'x'));  // Latin-1
  DocumentReader reader({directory / "c"}, {.replace_invalid = true}, kNever);
  for (TextPart part; reader.next(part);) {
  }
  CHECK(reader.replaced_bytes() == 500);
}

TEST_CASE("invalid documents are refused with their line", "[tokens]") {
  const TemporaryDirectory directory;
  const auto refusal = [&](const std::string& bytes) {
    put_file(directory / "a.jsonl", bytes);
    return refusal_of([&] { documents_in({directory / "a.jsonl"}); });
  };
  CHECK_THAT(refusal("{\"text\": \"a\"}\n{\"body\": \"b\"}\n"),
             is_bad_input("a.jsonl:2", "\"text\" is missing"));
  CHECK_THAT(refusal("{\"text\": 3}"), is_bad_input("a.jsonl:1", "JSON number", "string"));
  CHECK_THAT(refusal("\n\nplain text\n"), is_bad_input("a.jsonl:3", "not valid JSON"));
  CHECK_THAT(refusal("3"), is_bad_input("a.jsonl:1", "object is needed"));
  CHECK_THAT(refusal("[\"text\"] x"), is_bad_input("a.jsonl:1", "not valid JSON"));
  CHECK_THAT(refusal("[\"a\", 1]\n[\"b\", 2]"), is_bad_input("a.jsonl:1", "JSON array"));
  CHECK_THAT(refusal("{\"text\": \"a\", \"text\": \"b\"}"), is_bad_input("duplicate key"));
  CHECK_THAT(refusal("{\"text\": \"\\ud800\"}"), is_bad_input("a.jsonl:1"));
  CHECK_THAT(refusal("{\"text\": \"\xff\"}"), is_bad_input("a.jsonl:1"));
  CHECK_THAT(refusal(std::string(100'000, '[')), is_bad_input("a.jsonl:1"));
  CHECK_THAT(refusal_of([&] { documents_in({directory / "none"}); }),
             is_bad_input("none", "No such file"));
  CHECK_THAT(refusal_of([&] { documents_in({directory.path()}); }), is_bad_input("directory"));
  put_file(directory / "a.txt", "BZh\1 and so on");
  CHECK_THAT(refusal_of([&] { documents_in({directory / "a.txt"}); }),
             is_bad_input("a.txt", "bzip2", "bzcat"));
}

TEST_CASE("invalid UTF-8 is refused with its position or replaced", "[tokens]") {
  const TemporaryDirectory directory;
  const std::string text = std::string(1'500'000, 'x') + " one\n\xff two";
  put_file(directory / "a", text);
  CHECK_THAT(refusal_of([&] { documents_in({directory / "a"}); }),
             is_bad_input("/a: byte 1500005 (0xff) is no UTF-8; iconv"));
  CHECK_THAT(refusal_of([&] { documents_in({directory / "a"}, {.advice = "try this"}); }),
             is_bad_input("is no UTF-8; try this"));
  CHECK(documents_in({directory / "a"}, {.utf8 = true, .replace_invalid = true})
            .front()
            .ends_with("x one\n\ufffd two"));
  CHECK(documents_in({directory / "a"}, {.utf8 = false}) == Texts{text});
  put_file(directory / "b.jsonl", "{\"text\": \"\xff\"}");
  CHECK(documents_in({directory / "b.jsonl"}, {.replace_invalid = true}) == Texts{"\ufffd"});
}

TEST_CASE("half a surrogate pair is refused or replaced, and a whole one kept", "[tokens]") {
  const TemporaryDirectory directory;
  put_file(directory / "a.jsonl", R"({"text": "\ud83d a \udE00 \ud83d\ude00 \\ud83d \ud83d"})");
  CHECK_THAT(refusal_of([&] { documents_in({directory / "a.jsonl"}); }),
             is_bad_input("a.jsonl:1", "surrogate"));
  DocumentReader reader({directory / "a.jsonl"}, {.replace_invalid = true}, kNever);
  TextPart part;
  CHECK(reader.next(part));
  CHECK(part.text == "\ufffd a \ufffd \U0001f600 \\ud83d \ufffd");
  CHECK(reader.replaced_bytes() == 3);
}

TEST_CASE("lines that are no document are skipped and counted if that is wished", "[tokens]") {
  const TemporaryDirectory directory;
  put_file(directory / "a.jsonl",
           "{\"text\": \"one\", \"score\": NaN}\n{\"text\": null}\n{\"n\": 1}\nnot JSON\n"
           "{\"text\": \"two\", \"score\": -Infinity}\n\n{\"text\": \"cut");
  CHECK_THAT(refusal_of([&] { documents_in({directory / "a.jsonl"}); }),
             is_bad_input("a.jsonl:2", "null"));
  DocumentReader reader({directory / "a.jsonl"}, {.skip_invalid = true}, kNever);
  Texts texts;
  for (TextPart part; reader.next(part);) {
    texts.push_back(part.text);
  }
  CHECK(texts == Texts{"one", "two"});
  CHECK(reader.skipped_lines() == 4);
}

TEST_CASE("a pipe is read to its end and reading stops on request", "[tokens]") {
  const TemporaryDirectory directory;
  const std::string pipe = directory / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  {
    const std::jthread writer([&] { put_file(pipe, std::string(300'000, 'y') + "\nend"); });
    CHECK(documents_in({pipe}) == Texts{std::string(300'000, 'y') + "\nend"});
  }
  const std::atomic<bool> stop{true};
  DocumentReader reader({pipe}, {}, stop);
  CHECK(reader.bytes_in_all() == 0);
  TextPart part;
  CHECK(refusal_of([&] { reader.next(part); }).kind() == ErrorKind::kInterrupted);
}

TEST_CASE("a text file that changes while it is read is refused", "[tokens]") {
  const TemporaryDirectory directory;
  put_file(directory / "a", std::string(4'000'000, 'x'));
  DocumentReader reader({directory / "a"}, {}, kNever);
  TextPart part;
  REQUIRE(reader.next(part));
  std::filesystem::resize_file(directory / "a", 3'000'000);
  CHECK_THAT(refusal_of([&] {
               while (reader.next(part)) {
               }
             }),
             is_bad_input("/a", "truncated"));
}

}  // namespace regroup
