#include "tests/paper/paper_device.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "tests/paper/paper_state.h"

namespace regroup {
namespace {

constexpr c10::DeviceType kPaper = c10::DeviceType::PrivateUse1;
constexpr std::size_t kDefaultMemory = std::size_t{1} << 34;

// Counts bytes, rounded up as CUDA's caching allocator rounds them, and gives none beyond a limit.
class PaperAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    constexpr std::size_t kBlock = 512;
    const std::size_t rounded = (bytes + kBlock - 1) / kBlock * kBlock;
    const std::scoped_lock lock(mutex_);
    if (static_cast<std::size_t>(allocated().current) + rounded > limit_) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, "paper device out of memory. Tried to allocate ",
                       static_cast<double>(rounded) / (1U << 30), " GiB");
    }
    allocated().increase(rounded);
    auto* block = new Block{rounded, std::aligned_alloc(kBlock, std::max(rounded, kBlock))};
    return {block->data, block, &free_block, c10::Device(kPaper, 0)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}
  void recordStream(const c10::DataPtr& /*data*/, c10::Stream /*stream*/) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex /*device*/) override {
    const std::scoped_lock lock(mutex_);
    return stats_;
  }
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {
    const std::scoped_lock lock(mutex_);
    allocated().reset_accumulated();
  }
  void resetPeakStats(c10::DeviceIndex /*device*/) override {
    const std::scoped_lock lock(mutex_);
    allocated().reset_peak();
  }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex /*device*/) override {
    const std::scoped_lock lock(mutex_);
    return {limit_ - static_cast<std::size_t>(allocated().current), limit_};
  }

  void set_limit(std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    limit_ = bytes == 0 ? kDefaultMemory : bytes;
  }

 private:
  struct Block {
    std::size_t bytes;
    void* data;
  };

  static void free_block(void* context);

  c10::CachingAllocator::Stat& allocated() {
    return stats_.allocated_bytes.at(
        static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE));
  }

  std::mutex mutex_;
  std::size_t limit_ = kDefaultMemory;
  c10::CachingDeviceAllocator::DeviceStats stats_;
};

PaperAllocator& allocator() {
  static auto* one = new PaperAllocator;  // tensors may outlive static objects
  return *one;
}

void PaperAllocator::free_block(void* context) {
  const auto* block = static_cast<const Block*>(context);
  {
    const std::scoped_lock lock(allocator().mutex_);
    allocator().allocated().decrease(block->bytes);
  }
  std::free(block->data);
  delete block;
}

// Host memory from which a copy need not wait.
class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = std::aligned_alloc(64, (bytes + 127) / 64 * 64);
    const std::scoped_lock lock(mutex_);
    blocks_[data] = bytes;
    return {data, data, &free_block, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

  bool holds(const void* data) {
    const std::scoped_lock lock(mutex_);
    const auto after = blocks_.upper_bound(data);
    if (after == blocks_.begin()) {
      return false;
    }
    const auto& [begin, bytes] = *std::prev(after);
    const auto* first = static_cast<const char*>(begin);
    return static_cast<const char*>(data) < first + std::max<std::size_t>(bytes, 1);
  }

 private:
  static void free_block(void* data);

  std::mutex mutex_;
  std::map<const void*, std::size_t> blocks_;
};

PinnedAllocator& pinned_allocator() {
  static auto* one = new PinnedAllocator;
  return *one;
}

void PinnedAllocator::free_block(void* data) {
  {
    const std::scoped_lock lock(pinned_allocator().mutex_);
    pinned_allocator().blocks_.erase(data);
  }
  std::free(data);
}

// One device with one stream, on which everything is done at once.
class PaperGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kPaper; }
  c10::Device exchangeDevice(c10::Device /*device*/) const override { return getDevice(); }
  c10::Device getDevice() const override { return {kPaper, 0}; }
  void setDevice(c10::Device /*device*/) const override {}
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}
  c10::Stream getStream(c10::Device device) const override {
    const c10::DeviceIndex index = std::max<c10::DeviceIndex>(device.index(), 0);
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(kPaper, index));
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high*/) const override {
    return getStream(device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  void destroyEvent(void* /*event*/, c10::DeviceIndex /*device*/) const noexcept override {}
  void record(void** /*event*/, const c10::Stream& /*stream*/, c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {}
  void block(void* /*event*/, const c10::Stream& /*stream*/) const override {}
  bool queryEvent(void* /*event*/) const override { return true; }
  bool queryStream(const c10::Stream& /*stream*/) const override { return true; }
  void synchronizeStream(const c10::Stream& /*stream*/) const override { wait("stream"); }
  void synchronizeEvent(void* /*event*/) const override { wait("event"); }
  void synchronizeDevice(c10::DeviceIndex /*device*/) const override { wait("device"); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void recordDataPtrOnStream(const c10::DataPtr& /*data*/,
                             const c10::Stream& /*stream*/) const override {}

 private:
  static void wait(std::string_view what) { PaperState::get().wait(what); }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, PaperGuard);

struct PaperHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex /*device*/) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex /*device*/) const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex /*device*/) const override {}
  bool isPinnedPtr(const void* data) const override { return is_pinned_for_paper(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  at::Device getDeviceFromPtr(void* /*data*/) const override { return {kPaper, 0}; }
};

}  // namespace

PaperState& PaperState::get() {
  static auto* one = new PaperState;
  return *one;
}

void PaperState::launch(std::string_view name, std::int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  ++counts_.launches;
  counts_.bytes += bytes;
  ++counts_.operators[std::string(name)];
}

void PaperState::wait(std::string_view cause) {
  const std::scoped_lock lock(mutex_);
  ++counts_.waits;
  ++counts_.waiting[std::string(cause)];
}

void PaperState::upload(bool waits) {
  {
    const std::scoped_lock lock(mutex_);
    ++counts_.uploads;
  }
  if (waits) {
    wait("upload");
  }
}

void PaperState::download(bool waits) {
  {
    const std::scoped_lock lock(mutex_);
    ++counts_.downloads;
  }
  if (waits) {
    wait("download");
  }
}

void PaperState::attention_by_fused_kernel() {
  const std::scoped_lock lock(mutex_);
  ++counts_.fused_attentions;
}

void PaperState::attention_by_math(const std::string& reason) {
  const std::scoped_lock lock(mutex_);
  counts_.math_attentions.push_back(reason);
}

PaperCounts PaperState::counts() {
  const std::scoped_lock lock(mutex_);
  return counts_;
}

void PaperState::reset() {
  const std::scoped_lock lock(mutex_);
  counts_ = {};
}

// Where there is a GPU, too, LibTorch takes pinned memory from CUDA.
bool is_pinned_for_paper(const void* data) {
  return pinned_allocator().holds(data) ||
         (at::globalContext().hasCUDA() && at::detail::getCUDAHooks().isPinnedPtr(data));
}

c10::Device paper_device() {
  static const bool registered = [] {
    c10::register_privateuse1_backend("paper");
    c10::SetAllocator(kPaper, &allocator());
    at::RegisterPrivateUse1HooksInterface(new PaperHooks);
    register_paper_kernels();
    set_graph_recorder(kPaper, record_on_paper);
    return true;
  }();
  static_cast<void>(registered);
  return {kPaper, 0};
}

PaperCounts paper_counts() { return PaperState::get().counts(); }

void reset_paper_counts() { PaperState::get().reset(); }

void set_paper_hollow(bool hollow) { PaperState::get().hollow = hollow; }

void set_paper_memory(std::int64_t bytes) {
  allocator().set_limit(static_cast<std::size_t>(bytes));
}

}  // namespace regroup
