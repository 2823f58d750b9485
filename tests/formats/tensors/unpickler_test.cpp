// Pickles as data: what a state dict needs is read, and everything else is refused.
#include "formats/tensors/unpickler.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/refusal.h"
#include "tests/torch_builder.h"

namespace regroup {
namespace {

using namespace std::string_literals;

const std::string kStorage = pickle::storage("FloatStorage", "0", 6);
const std::string kTensor = pickle::tensor({kStorage, 1, {2, 3}, {3, 1}});
const std::string kDict = pickle::dict({pickle::text("w"), kTensor});

Error refusal_of_pickle(const std::string& bytes) {
  return refusal_of([&] { read_state_dict(bytes, "f.bin"); });
}

// The error for a program whose dict holds a tensor and the value that `value` makes.
Error refusal_of_value(const std::string& value) {
  return refusal_of_pickle(
      pickle::program(pickle::dict({pickle::text("w"), kTensor, pickle::text("evil"), value})));
}

TEST_CASE("a state dict gives its tensors and skips other values", "[formats]") {
  const std::string bytes = pickle::program(pickle::dict(
      {pickle::text("w"), kTensor, pickle::text("step"), pickle::integer(-3), pickle::text("b"),
       pickle::call(pickle::global("torch._utils", "_rebuild_parameter"),
                    pickle::tuple({kTensor, "\x88", "}"})),
       pickle::text("param_shapes"),
       pickle::call(pickle::global("torch", "Size"),
                    pickle::tuple({pickle::tuple({pickle::integer(2), pickle::integer(3)})}))}));
  const NamedPickledTensors tensors = read_state_dict(bytes, "f.bin");
  REQUIRE(tensors.size() == 2);
  CHECK(tensors[0].first == "w");
  CHECK(tensors[1].first == "b");
  CHECK(tensors[1].second.storage_type == "FloatStorage");
  CHECK(tensors[1].second.storage_key == "0");
  CHECK(tensors[1].second.storage_elements == 6);
  CHECK(tensors[1].second.offset == 1);
  CHECK(tensors[1].second.shape == std::vector<std::int64_t>{2, 3});
  CHECK(tensors[1].second.strides == std::vector<std::int64_t>{3, 1});
}

TEST_CASE("a state dict inside a checkpoint is found with the opcodes of every protocol",
          "[formats]") {
  for (const char* key : {"state_dict", "model", "module", "model_state_dict"}) {
    const std::string bytes =
        pickle::program(pickle::dict({pickle::text("epoch"), "K\x07", pickle::text(key), kDict}));
    CHECK(read_state_dict(bytes, "f.bin").front().first == "w");
  }
  // PROTO 4, FRAME, an OrderedDict through STACK_GLOBAL, MEMOIZE, SETITEM, BUILD.
  const std::string bytes = "\x80\x04\x95" + little_endian(0, 8) + "\x8c\x0b" + "collections" +
                            "\x8c\x0bOrderedDict\x93)R\x94" + pickle::text("w") + "\x94" + kTensor +
                            "s}b.";
  CHECK(read_state_dict(bytes, "f.bin").front().first == "w");
}

TEST_CASE("globals that tensors do not need are refused by name", "[formats]") {
  for (const auto& [module, name] :
       {std::pair{"os", "system"}, std::pair{"posix", "system"}, std::pair{"builtins", "eval"},
        std::pair{"builtins", "getattr"}, std::pair{"torch", "load"},
        std::pair{"torch._utils", "_rebuild_tensor"}, std::pair{"torch.storage", "FloatStorage"},
        std::pair{"collections", "OrderedDict.fromkeys"}, std::pair{"", ""}}) {
    const std::string full = fmt::format("{}.{}", module, name);
    CAPTURE(full);
    CHECK_THAT(refusal_of_value(pickle::call(pickle::global(module, name),
                                             pickle::tuple({pickle::text("touch /tmp/x")}))),
               is_bad_input("f.bin", "the global " + full, "not among those allowed"));
    CHECK_THAT(refusal_of_value(pickle::text(module) + pickle::text(name) + "\x93"),
               is_bad_input("f.bin", "the global " + full));
  }
  CHECK_THAT(refusal_of_value(pickle::global("os\x1b[2J", "system")),
             is_bad_input("f.bin", R"(os\x1b[2J.system)"));
}

TEST_CASE("reading an unset memo slot is refused", "[formats]") {
  const auto recalled = [](const std::string& slot) {
    return pickle::tuple({"K\x07q\x05", "h" + slot});
  };
  CHECK(read_state_dict(pickle::program(pickle::dict(
                            {pickle::text("w"), kTensor, pickle::text("x"), recalled("\x05")})),
                        "f.bin")
            .size() == 1);
  CHECK_THAT(refusal_of_value(recalled("\x03")), is_bad_input("f.bin", "unknown memo slot"));
  CHECK_THAT(refusal_of_value(recalled("\x06")), is_bad_input("f.bin", "unknown memo slot"));
}

TEST_CASE("storages and dtypes not named by a global are refused", "[formats]") {
  const auto refusal_of_storage = [](const std::string& type, const std::string& key) {
    return refusal_of_value(pickle::tuple({pickle::text("storage"), type, key, pickle::text("cpu"),
                                           pickle::integer(6)}) +
                            "Q");
  };
  const std::string type = pickle::global("torch", "FloatStorage");
  const auto names_none = is_bad_input("f.bin", "does not name a storage");
  CHECK_THAT(refusal_of_storage(pickle::text("FloatStorage"), pickle::text("0")), names_none);
  CHECK_THAT(refusal_of_storage(type, pickle::integer(0)), names_none);
  CHECK_THAT(refusal_of_storage(type, pickle::text(std::string(256, '0'))), names_none);
  const std::string dtype = pickle::global("torch", "uint16");
  std::string tensor =
      pickle::tensor_of_dtype({pickle::storage("UntypedStorage", "0", 6), 0, {3}, {1}}, "uint16");
  tensor.replace(tensor.find(dtype), dtype.size(), pickle::text("uint16"));
  CHECK_THAT(refusal_of_value(tensor), is_bad_input("f.bin", "a tensor without a dtype"));
}

TEST_CASE("a member named model that is not a dict is skipped", "[formats]") {
  const std::string bytes = pickle::program(
      pickle::dict({pickle::text("model"), pickle::text("llama"), pickle::text("w"), kTensor}));
  CHECK(read_state_dict(bytes, "f.bin").front().first == "w");
}

TEST_CASE("a pickle inside a pickle stays text", "[formats]") {
  const std::string inner = pickle::program(
      pickle::call(pickle::global("os", "system"), pickle::tuple({pickle::text("true")})));
  const std::string bytes = pickle::program(
      pickle::dict({pickle::text("w"), kTensor, pickle::text("inner"), pickle::text(inner)}));
  CHECK(read_state_dict(bytes, "f.bin").size() == 1);
  // A pickle after the end is never run. One in place of a value is refused.
  CHECK(read_state_dict(pickle::program(kDict) + inner, "f.bin").size() == 1);
  CHECK_THAT(refusal_of_value(inner), is_bad_input("f.bin", "os.system"));
}

TEST_CASE("only the opcodes of state dicts are accepted", "[formats]") {
  // INST, OBJ, NEWOBJ, NEWOBJ_EX, PERSID, EXT1, DUP, POP, BUILD's kin, text opcodes, binary
  // strings.
  for (const char opcode :
       "i"
       "o"
       "\x81"
       "\x92"
       "P"
       "\x82"
       "2"
       "0"
       "1"
       "I"
       "L"
       "F"
       "S"
       "V"
       "T"
       "B"
       "C"
       "\x8b"
       "\x8d"
       "\x8e"
       "\x8f"
       "\x90"
       "\x91"
       "\x96"
       "d"
       "g"
       "p"
       "\xff") {
    CAPTURE(static_cast<int>(opcode));
    CHECK_THAT(refusal_of_value("K\x01"s + opcode),
               is_bad_input("f.bin", "opcode", "not among those allowed"));
  }
  CHECK_THAT(refusal_of_pickle("\x80\x05" + kDict + "."), is_bad_input("f.bin", "protocol"));
}

TEST_CASE("a pickle truncated at any byte is refused", "[formats]") {
  const std::string bytes = pickle::program(kDict);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CAPTURE(size);
    CHECK_THAT(refusal_of_pickle(bytes.substr(0, size)), is_bad_input("f.bin", "pickle"));
  }
}

TEST_CASE("a pickle with any one byte changed is read or refused", "[formats]") {
  const std::string good = pickle::program(kDict);
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(value);
      try {
        read_state_dict(bytes, "f.bin");
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kBadInput) {
          FAIL(i << " " << value << " " << error.what());
        }
      }
    }
  }
}

TEST_CASE("invalid calls are refused", "[formats]") {
  CHECK_THAT(refusal_of_value(pickle::call(pickle::text("system"), ")")),
             is_bad_input("f.bin", "not a function"));
  CHECK_THAT(refusal_of_value(pickle::call(pickle::global("collections", "OrderedDict"), "N")),
             is_bad_input("f.bin", "not a function"));
  CHECK_THAT(refusal_of_value(pickle::call(pickle::global("collections", "OrderedDict"),
                                           pickle::tuple({pickle::tuple({})}))),
             is_bad_input("f.bin", "OrderedDict", "invalid arguments"));
  CHECK_THAT(refusal_of_value(pickle::call(pickle::global("torch._utils", "_rebuild_parameter"),
                                           pickle::tuple({pickle::text("w")}))),
             is_bad_input("f.bin", "_rebuild_parameter", "invalid arguments"));
  CHECK_THAT(refusal_of_value(pickle::call(pickle::global("torch", "Size"), ")")),
             is_bad_input("f.bin", "Size", "invalid arguments"));
  CHECK_THAT(refusal_of_value(pickle::call(pickle::global("torch", "FloatStorage"), ")")),
             is_bad_input("f.bin", "FloatStorage", "arguments"));
  CHECK_THAT(
      refusal_of_value(pickle::call(pickle::global("torch._utils", "_rebuild_tensor_v2"), ")")),
      is_bad_input("f.bin", "without a storage"));
  CHECK_THAT(
      refusal_of_value(pickle::call(pickle::global("torch._utils", "_rebuild_parameter"), ")")),
      is_bad_input("f.bin", "_rebuild_parameter"));
}

TEST_CASE("missing values and values of the wrong type are refused", "[formats]") {
  for (const char* bytes :
       {"\x80\x02.", "\x80\x02R.", "\x80\x02Q.", "\x80\x02s.", "\x80\x02(s.", "\x80\x02t.",
        "\x80\x02u.", "\x80\x02}e.", "\x80\x02](u.", "\x80\x02}(Nu.", "\x80\x02\x85.",
        "\x80\x02q\x01.", "\x80\x02h\x01.", "\x80\x02N\x93.", "\x80\x02NQ.", "\x80\x02(."}) {
    CAPTURE(bytes);
    CHECK_THAT(refusal_of_pickle(bytes), is_bad_input("f.bin", "pickle"));
  }
  CHECK_THAT(refusal_of_pickle("\x80\x02N\x8a\x09"
                               "123456789."),
             is_bad_input("f.bin", "64 bits"));
}

TEST_CASE("tensor sizes must be whole numbers with one stride each", "[formats]") {
  CHECK_THAT(refusal_of_value(pickle::tensor({kStorage, -1, {2}, {1}})),
             is_bad_input("f.bin", "offset"));
  CHECK_THAT(refusal_of_value(pickle::tensor({kStorage, 0, {-2}, {1}})),
             is_bad_input("f.bin", "shape"));
  CHECK_THAT(refusal_of_value(pickle::tensor({kStorage, 0, {2}, {-1}})),
             is_bad_input("f.bin", "strides"));
  CHECK_THAT(refusal_of_value(pickle::tensor({kStorage, 0, {2}, {1, 1}})),
             is_bad_input("f.bin", "differ in length"));
  const std::vector<std::int64_t> many(65, 1);
  CHECK_THAT(refusal_of_value(pickle::tensor({kStorage, 0, many, many})),
             is_bad_input("f.bin", "shape", "at most 64"));
  CHECK_THAT(refusal_of_value(pickle::storage("FloatStorage", std::string(256, '0'), 1)),
             is_bad_input("f.bin", "persistent id"));
}

TEST_CASE("a dict without tensors and a duplicate name are refused", "[formats]") {
  CHECK_THAT(refusal_of_pickle(pickle::program("}")), is_bad_input("f.bin", "no dict of tensors"));
  CHECK_THAT(refusal_of_pickle(pickle::program("N")), is_bad_input("f.bin", "no dict of tensors"));
  CHECK_THAT(refusal_of_pickle(pickle::program(
                 pickle::dict({pickle::text("w"), kTensor, pickle::text("w"), kTensor}))),
             is_bad_input("f.bin", "tensor w", "twice"));
}

TEST_CASE("work and memory are bounded for pickles that multiply", "[formats]") {
  CHECK_THAT(refusal_of_value(std::string(8 << 20, 'N')), is_bad_input("f.bin", "steps"));
  CHECK_THAT(refusal_of_value("Nr" + little_endian(0xffffffff, 4)),
             is_bad_input("f.bin", "memo slot"));
  std::string views = kTensor + "q"s + "\0"s + "(";
  for (int i = 0; i < 1'000'000; ++i) {
    views += "h"s + "\0"s;
  }
  CHECK_THAT(refusal_of_value(views), is_bad_input("f.bin", "steps"));
  std::string names;
  for (int i = 0; i <= 50'000; ++i) {
    names += pickle::text(std::to_string(i)) + "h"s + "\0"s;
  }
  CHECK_THAT(refusal_of_pickle(pickle::program(kTensor + "q"s + "\0"s + "}(" + names + "u")),
             is_bad_input("f.bin", "more than 50000 tensors"));
  // A list that contains itself is only a list.
  const std::string circle = "]q"s + "\x01" + "h\x01" + "a";
  CHECK_THAT(refusal_of_pickle(pickle::program(circle)), is_bad_input("f.bin", "no dict"));
}

}  // namespace
}  // namespace regroup
