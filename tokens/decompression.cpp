#include <memory>
#include <utility>

#include "tokens/text_stream.h"

#if REGROUP_WITH_ZLIB
#include <zlib.h>
#endif
#if REGROUP_WITH_ZSTD
#include <zstd.h>
#endif

#include "formats/base/error.h"

namespace regroup {
namespace {

constexpr std::string_view kGzip = "\x1f\x8b\x08";
constexpr std::string_view kZstd = "\x28\xb5\x2f\xfd";

// The compressed bytes that are still to be read, and what the two formats have in common: parts
// (gzip's members, zstd's frames) that follow one another.
class PartedDecompressor {
 public:
  // `padded`: zeros between parts belong to none.
  PartedDecompressor(std::string_view start, ByteSource source, const std::string& name,
                     bool padded)
      : name_(name), input_(start), source_(std::move(source)), padded_(padded) {}
  PartedDecompressor(const PartedDecompressor&) = delete;
  PartedDecompressor& operator=(const PartedDecompressor&) = delete;
  virtual ~PartedDecompressor() = default;

  // A ByteSource.
  std::size_t read(std::span<char> room) {
    std::size_t written = 0;
    while (written == 0) {
      if (!more_ && at_ == input_.size() && !refill()) {
        if (inside_) {
          throw_bad_input("{}: the compressed data ends too early: the file is incomplete", name_);
        }
        return 0;
      }
      if (!inside_ && skip_padding()) {
        continue;
      }
      inside_ = true;
      written = step(room);
      more_ = inside_ && written == room.size();
    }
    check_growth(written);
    return written;
  }

 protected:
  // Reads from left(), calls take() and, at the end of a part, end_part(); returns the bytes
  // written.
  virtual std::size_t step(std::span<char> room) = 0;

  std::span<char> left() { return std::span(input_).subspan(at_); }
  void take(std::size_t bytes) { at_ += bytes; }
  void end_part() { inside_ = false; }
  [[noreturn]] void refuse(std::string_view why) const {
    throw_bad_input("{}: cannot be decompressed: {}", name_, why);
  }

 private:
  bool refill() {
    constexpr std::size_t kBlock = 256U << 10;
    input_.resize(kBlock);
    input_.resize(source_(input_));
    at_ = 0;
    taken_ += input_.size();
    return !input_.empty();
  }

  bool skip_padding() {
    const std::size_t begin = at_;
    while (padded_ && at_ < input_.size() && input_[at_] == '\0') {
      ++at_;
    }
    return at_ != begin;
  }

  void check_growth(std::size_t written) {
    constexpr std::uint64_t kAlwaysAllowed = 256U << 20, kMostGrowth = 1000;
    written_ += written;
    if (written_ > kAlwaysAllowed && written_ / kMostGrowth > taken_) {
      throw_bad_input("{}: more than {} bytes come of each compressed byte: no text does that",
                      name_, kMostGrowth);
    }
  }

  std::string name_;
  std::string input_;
  std::size_t at_ = 0;
  ByteSource source_;
  bool padded_;
  bool inside_ = false;  // a part
  bool more_ = false;    // the library may hold text for which there was no room
  std::uint64_t taken_ = input_.size(), written_ = 0;
};

#if REGROUP_WITH_ZLIB
class GzipDecompressor : public PartedDecompressor {
 public:
  GzipDecompressor(std::string_view start, ByteSource source, const std::string& name)
      : PartedDecompressor(start, std::move(source), name, true) {
    constexpr int kGzipHeader = 16;
    if (::inflateInit2(&stream_, MAX_WBITS + kGzipHeader) != Z_OK) {
      throw_environment("{}: no memory to decompress it", name);
    }
  }

 private:
  std::size_t step(std::span<char> room) override {
    const std::span<char> input = left();
    stream_.next_in = reinterpret_cast<Bytef*>(input.data());
    stream_.avail_in = static_cast<uInt>(input.size());
    stream_.next_out = reinterpret_cast<Bytef*>(room.data());
    stream_.avail_out = static_cast<uInt>(room.size());
    const int result = ::inflate(&stream_, Z_NO_FLUSH);
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
      refuse(stream_.msg == nullptr ? "damaged data" : stream_.msg);
    }
    take(input.size() - stream_.avail_in);
    if (result == Z_STREAM_END) {
      ::inflateReset(&stream_);
      end_part();
    }
    return room.size() - stream_.avail_out;
  }

  z_stream stream_{};
  std::unique_ptr<z_stream, decltype(&::inflateEnd)> owner_{&stream_, &::inflateEnd};
};
#endif

#if REGROUP_WITH_ZSTD
class ZstdDecompressor : public PartedDecompressor {
 public:
  ZstdDecompressor(std::string_view start, ByteSource source, const std::string& name)
      : PartedDecompressor(start, std::move(source), name, false) {
    if (context_ == nullptr) {
      throw_environment("{}: no memory to decompress it", name);
    }
  }

 private:
  std::size_t step(std::span<char> room) override {
    ZSTD_inBuffer input{left().data(), left().size(), 0};
    ZSTD_outBuffer output{room.data(), room.size(), 0};
    const std::size_t result = ::ZSTD_decompressStream(context_.get(), &output, &input);
    if (::ZSTD_isError(result) != 0) {
      refuse(::ZSTD_getErrorName(result));  // also windows above the library's limit of 128 MiB
    }
    take(input.pos);
    if (result == 0) {
      end_part();
    }
    return output.pos;
  }

  std::unique_ptr<ZSTD_DCtx, decltype(&::ZSTD_freeDCtx)> context_{::ZSTD_createDCtx(),
                                                                  &::ZSTD_freeDCtx};
};
#endif

[[noreturn, maybe_unused]] void refuse_without(std::string_view library, std::string_view package,
                                               std::string_view reader, const std::string& name) {
  throw_usage(
      "{}: compressed text, and this build of regroup is without {}: install {} and build again "
      "(scripts/setup does it), or type {} FILE | regroup …, with - in place of FILE",
      name, library, package, reader);
}

template <typename Kind>
ByteSource read_by(std::string_view start, ByteSource source, const std::string& name) {
  const auto reader = std::make_shared<Kind>(start, std::move(source), name);
  return [reader](std::span<char> room) { return reader->read(room); };
}

}  // namespace

ByteSource decompressed(std::string_view start, [[maybe_unused]] ByteSource source,
                        const std::string& name) {
  if (start.starts_with(kGzip)) {
#if REGROUP_WITH_ZLIB
    return read_by<GzipDecompressor>(start, std::move(source), name);
#else
    refuse_without("zlib", "zlib1g-dev", "zcat", name);
#endif
  }
  if (start.starts_with(kZstd)) {
#if REGROUP_WITH_ZSTD
    return read_by<ZstdDecompressor>(start, std::move(source), name);
#else
    refuse_without("libzstd", "libzstd-dev", "zstdcat", name);
#endif
  }
  return nullptr;
}

}  // namespace regroup
