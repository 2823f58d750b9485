#include "tests/torch_builder.h"

namespace regroup {
namespace {

std::string joined(const std::vector<std::string>& pieces) {
  std::string all;
  for (const std::string& piece : pieces) {
    all += piece;
  }
  return all;
}

// Bitwise, from the polynomial.
std::uint32_t crc32_of(std::string_view bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0xedb88320U : 0U);
    }
  }
  return ~crc;
}

std::string u16(std::uint64_t number) { return little_endian(number, 2); }
std::string u32(std::uint64_t number) { return little_endian(number, 4); }
std::string u64(std::uint64_t number) { return little_endian(number, 8); }

std::string zip64_extra(const std::string& values) { return u16(1) + u16(values.size()) + values; }

std::string local_record(const BuiltZipEntry& entry) {
  const std::string& name = entry.local_name.empty() ? entry.name : entry.local_name;
  const std::uint64_t size = entry.data.size() + entry.local_size_error;
  const std::string extra = entry.zip64 ? zip64_extra(u64(size) + u64(size)) : "";
  const std::string shown_size = u32(entry.zip64 ? 0xffffffff : size);
  return "PK\x03\x04" + u16(45) + u16(entry.flags ^ entry.local_flags) + u16(entry.method) +
         u32(0) + u32(crc32_of(entry.data) + entry.crc_error + entry.local_crc_error) + shown_size +
         shown_size + u16(name.size()) + u16(extra.size()) + name + extra + entry.data;
}

std::string central_record(const BuiltZipEntry& entry, std::uint64_t at) {
  const std::uint64_t size = entry.data.size() + static_cast<std::uint64_t>(entry.size_error);
  const std::uint64_t offset = at + static_cast<std::uint64_t>(entry.offset_error);
  const std::string extra = entry.zip64 ? zip64_extra(u64(size) + u64(size) + u64(offset)) : "";
  const std::string shown_size = u32(entry.zip64 ? 0xffffffff : size);
  return "PK\x01\x02" + u16(45) + u16(45) + u16(entry.flags) + u16(entry.method) + u32(0) +
         u32(crc32_of(entry.data) + entry.crc_error) + shown_size + shown_size +
         u16(entry.name.size()) + u16(extra.size()) + u16(0) + u16(0) + u16(0) + u32(0) +
         u32(entry.zip64 ? 0xffffffff : offset) + entry.name + extra;
}

}  // namespace

std::string little_endian(std::uint64_t number, std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) {
    text += static_cast<char>(number >> (8 * i) & 0xffU);
  }
  return text;
}

namespace pickle {

std::string text(std::string_view value) {
  return "X" + little_endian(value.size(), 4) + std::string(value);
}

std::string integer(std::int64_t value) {
  return "\x8a\x08" + little_endian(static_cast<std::uint64_t>(value), 8);
}

std::string global(std::string_view module, std::string_view name) {
  return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}

std::string tuple(const std::vector<std::string>& items) { return "(" + joined(items) + "t"; }

std::string call(const std::string& callable, const std::string& arguments) {
  return callable + arguments + "R";
}

std::string dict(const std::vector<std::string>& items) { return "}(" + joined(items) + "u"; }

std::string storage(std::string_view type, std::string_view key, std::int64_t elements) {
  const std::string module = type == "UntypedStorage" ? "torch.storage" : "torch";
  return tuple({text("storage"), global(module, type), text(key), text("cpu"), integer(elements)}) +
         "Q";
}

std::string legacy_storage(std::string_view type, std::string_view key, std::int64_t elements,
                           const std::string& view) {
  return tuple({text("storage"), global("torch", type), text(key), text("cpu"), integer(elements),
                view}) +
         "Q";
}

namespace {

// The arguments that all versions of the function have.
std::vector<std::string> rebuild_arguments(const Tensor& tensor) {
  std::vector<std::string> shape;
  std::vector<std::string> strides;
  for (const std::int64_t size : tensor.shape) {
    shape.push_back(integer(size));
  }
  for (const std::int64_t stride : tensor.strides) {
    strides.push_back(integer(stride));
  }
  return {tensor.storage, integer(tensor.offset),
          tuple(shape),   tuple(strides),
          "\x89",         call(global("collections", "OrderedDict"), ")")};
}

}  // namespace

std::string tensor(const Tensor& tensor) {
  return call(global("torch._utils", "_rebuild_tensor_v2"), tuple(rebuild_arguments(tensor)));
}

std::string tensor_of_dtype(const Tensor& tensor, std::string_view dtype) {
  std::vector<std::string> arguments = rebuild_arguments(tensor);
  arguments.push_back(global("torch", dtype));
  return call(global("torch._utils", "_rebuild_tensor_v3"), tuple(arguments));
}

std::string program(const std::string& value) { return "\x80\x02" + value + "."; }

}  // namespace pickle

std::string BuiltZip::bytes() const {
  std::string file;
  std::string directory;
  for (const BuiltZipEntry& entry : entries) {
    directory += central_record(entry, file.size());
    file += local_record(entry);
  }
  directory += after_directory;
  const std::uint64_t count = claimed_entries == 0 ? entries.size() : claimed_entries;
  const std::uint64_t begin = file.size();
  file += directory;
  if (!zip64_end) {
    return file + "PK\x05\x06" + u16(0) + u16(0) + u16(count) + u16(count) + u32(directory.size()) +
           u32(begin) + u16(0);
  }
  const std::uint64_t end64 = file.size();
  file += "PK\x06\x06" + u64(44) + u16(45) + u16(45) + u32(0) + u32(0) + u64(count) + u64(count) +
          u64(directory.size()) + u64(begin);
  file += "PK\x06\x07" + u32(0) + u64(end64) + u32(1);
  return file + "PK\x05\x06" + u16(0) + u16(0) + u16(0xffff) + u16(0xffff) + u32(0xffffffff) +
         u32(0xffffffff) + u16(0);
}

BuiltZip torch_archive(const std::string& pickle, const std::vector<std::string>& storages) {
  BuiltZip zip{{{"weights/data.pkl", pickle}, {"weights/byteorder", "little"}}};
  for (std::size_t i = 0; i < storages.size(); ++i) {
    zip.entries.push_back({"weights/data/" + std::to_string(i), storages[i]});
  }
  zip.entries.push_back({"weights/version", "3\n"});
  return zip;
}

std::string LegacyTorchFile::bytes() const {
  const auto pickle_or = [](const std::string& given, const std::string& value) {
    return given.empty() ? pickle::program(value) : given;
  };
  std::vector<std::string> listed;
  std::string numbers;
  for (const LegacyStorage& storage : storages) {
    listed.push_back(pickle::text(storage.key));
    numbers += u64(storage.elements) + storage.bytes;
  }
  return pickle_or(magic, "\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19") +
         pickle_or(version, pickle::integer(1001)) +
         pickle_or(system, pickle::dict({pickle::text("protocol_version"), pickle::integer(1001),
                                         pickle::text("little_endian"), "\x88"})) +
         object + pickle_or(keys, "](" + joined(listed) + "e") + numbers;
}

}  // namespace regroup
