#include "uptrain/distributed/process_group.h"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "uptrain/distributed/backend.h"

namespace regroup {

namespace {

constexpr const char* kDone = "done";
constexpr const char* kFailed = "failed";
constexpr int kPatienceWithFirst = 10;  // the number of timeouts to wait for work of rank 0 alone

// "[.../pair.cc:553] Connection closed by peer [::1]:4. This is typically ..." -> "Connection
// closed by peer [::1]:4".
std::string first_sentence(std::string text) {
  text = text.substr(0, text.find('\n'));
  if (text.starts_with('[') && text.find("] ") != text.npos) {
    text = text.substr(text.find("] ") + 2);
  }
  return printable(text.substr(0, text.find(". ")), 300);
}

// Calls `work`. Converts exceptions of c10d and Gloo to one-line errors that begin with `where`.
template <typename Work>
auto with_rank_errors(const std::string& where, Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& fault) {
    throw_environment("{}: {}", where, first_sentence(fault.what_without_backtrace()));
  } catch (const std::exception& fault) {
    throw_environment("{}: {}", where, first_sentence(fault.what()));
  }
}

constexpr const char* kLost = "another rank has ended or does not answer";

// Keys and values side by side, [t, B, n, 2d]: parts follow each other in memory.
struct Exchanged {
  at::Tensor both;

  Exchanged(std::int64_t positions, const at::Tensor& like, at::ScalarType type)
      : both(at::empty({positions, like.size(0), like.size(1), 2 * like.size(3)},
                       like.options().dtype(type))) {}

  at::Tensor at(std::int64_t first, std::int64_t count) const {
    return both.narrow(0, first, count);
  }

  // The same as heads, [B, n, count, d].
  KeysAndValues heads(std::int64_t first, std::int64_t count) const {
    const at::Tensor turned = at(first, count).permute({1, 2, 0, 3});
    const std::int64_t width = turned.size(-1) / 2;
    return {turned.narrow(-1, 0, width), turned.narrow(-1, width, width)};
  }

  void write(std::int64_t first, const KeysAndValues& heads_there) const {
    const KeysAndValues to = heads(first, heads_there.k.size(2));
    to.k.copy_(heads_there.k);
    to.v.copy_(heads_there.v);
  }
};

}  // namespace

struct ProcessGroup::Group {
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::Backend> backend;
  bool is_shut_down = false;

  Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  // NCCL's communicators wait for all ranks when they shut down. They are aborted if this rank ends
  // in an error, be it while it connects, or if another one does not arrive.
  ~Group() {
    if (backend == nullptr || is_shut_down) {
      return;
    }
    try {
      backend->abort();
    } catch (const std::exception&) {  // a destructor cannot report it
    }
  }

  // Throws kInterrupted soon after check_stop() would.
  void wait_for(const std::string& key, std::chrono::milliseconds timeout) const {
    constexpr std::chrono::milliseconds kPause{10};
    const auto end = std::chrono::steady_clock::now() + timeout;
    while (!store->check({key})) {
      check_stop();
      if (std::chrono::steady_clock::now() > end) {
        throw_environment("{}", kLost);
      }
      std::this_thread::sleep_for(kPause);
    }
  }
};

ProcessGroup::ProcessGroup(const Launch& launch, c10::Device device,
                           std::chrono::milliseconds timeout)
    : rank_(launch.rank),
      size_(launch.ranks),
      device_(device),
      timeout_(timeout),
      group_(std::make_unique<Group>()) {
  // c10d also logs the errors that it throws, NCCL's as several lines. TORCH_CPP_LOG_LEVEL
  // re-enables them.
  ::setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*replace=*/0);
  c10::initLogging();
  const std::string where =
      fmt::format("cannot connect to the other ranks, {} in all, at {} port {}", size_,
                  printable(launch.address), launch.port);
  with_rank_errors(where, [&] {
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(launch.port);
    options.isServer = first() && !launch.has_store;
    options.waitWorkers = false;
    options.timeout = timeout;
    const auto store = c10::make_intrusive<c10d::TCPStore>(launch.address, options);
    group_->store = c10::make_intrusive<c10d::PrefixStore>(
        "regroup/" + meet_in(*store, rank_, size_, timeout), store);
    group_->backend = make_backend(group_->store, rank_, size_, device, timeout);
  });
  connect();
}

ProcessGroup::ProcessGroup(const ProcessGroup& whole, const std::string& name, int rank, int size)
    : rank_(rank),
      size_(size),
      device_(whole.device_),
      timeout_(whole.timeout_),
      group_(std::make_unique<Group>()),
      communication_(whole.communication_) {
  with_rank_errors(kLost, [&] {
    group_->store = c10::make_intrusive<c10d::PrefixStore>(name, whole.group_->store);
    group_->backend = make_backend(group_->store, rank_, size_, device_, timeout_);
  });
  connect();
}

// NCCL connects the ranks of a group in its first operation, Gloo when it is made. Two groups that
// first meet in a backward pass could wait for each other, so each does it when all ranks are here.
void ProcessGroup::connect() const {
  if (!device_.is_cpu()) {
    meet();
  }
}

void ProcessGroup::divide(int copies) {
  if (copies == 1 || sharing_ != nullptr) {
    return;
  }
  const int ranks = size_ / copies;
  const int copy = rank_ / ranks;
  const int part = rank_ % ranks;
  sharing_.reset(new ProcessGroup(*this, fmt::format("copy/{}", copy), part, ranks));
  copies_.reset(new ProcessGroup(*this, fmt::format("part/{}", part), copy, copies));
}

void ProcessGroup::divide_sequences(int parts) {
  if (parts == 1 || sequences_ != nullptr) {
    return;
  }
  parts_ = parts;
  const std::string name = fmt::format("sequences/{}", rank_ / parts);
  sequences_.reset(new ProcessGroup(*this, name, rank_ % parts, parts));
}

ProcessGroup::~ProcessGroup() {
  sharing_.reset();
  copies_.reset();
  sequences_.reset();
  if (std::uncaught_exceptions() > exceptions_) {
    return;
  }
  try {
    wait_for_all_to_leave();
    group_->backend->shutdown();
    group_->is_shut_down = true;
  } catch (const std::exception&) {  // the group is aborted
  }
}

// Throws if that takes longer than the timeout or 30 s.
void ProcessGroup::wait_for_all_to_leave() const {
  constexpr std::chrono::milliseconds kPatience = std::chrono::seconds(30);
  const auto key_of = [](int rank) { return "leaves/" + std::to_string(rank); };
  group_->store->set(key_of(rank_), kDone);
  std::vector<std::string> keys;
  for (int rank = 0; rank < size_; ++rank) {
    keys.push_back(key_of(rank));
  }
  group_->store->wait(keys, std::min(timeout_, kPatience));
}

Pending ProcessGroup::counted(const c10::intrusive_ptr<c10d::Work>& work, double sent,
                              double received) const {
  communication_->sent += sent;
  communication_->received += received;
  const auto wait = [work, all = communication_] {
    const auto begin = std::chrono::steady_clock::now();
    with_rank_errors(kLost, [&] { work->wait(); });
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    all->seconds += waited.count();
  };
  const auto order = [work] { with_rank_errors(kLost, [&] { work->synchronize(); }); };
  return {[work] { return work->isCompleted(); }, wait,
          device_.is_cuda() ? std::function<void()>(order) : wait};
}

// What each rank sends and receives in a sum over all, as a ring.
double ProcessGroup::ring_bytes(const at::Tensor& tensor) const {
  return 2 * (1 - 1.0 / size_) * static_cast<double>(tensor.nbytes());
}

at::Tensor ProcessGroup::sum(const at::Tensor& tensor) const {
  const at::Tensor own = tensor.detach().to(device_, /*non_blocking=*/false, /*copy=*/true);
  sum_in_place(own).wait();
  return own;
}

Pending ProcessGroup::sum_in_place(const at::Tensor& tensor) const {
  return with_rank_errors(kLost, [&] {
    std::vector<at::Tensor> tensors{tensor};
    return counted(group_->backend->allreduce(tensors), ring_bytes(tensor), ring_bytes(tensor));
  });
}

Pending ProcessGroup::reduce(const at::Tensor& tensor, int root) const {
  return with_rank_errors(kLost, [&] {
    std::vector<at::Tensor> tensors{tensor};
    c10d::ReduceOptions options;
    options.rootRank = root;
    const double sent = rank_ == root ? 0.0 : static_cast<double>(tensor.nbytes());
    return counted(group_->backend->reduce(tensors, options), sent, 0.0);
  });
}

Pending ProcessGroup::broadcast(const at::Tensor& tensor, int root) const {
  return with_rank_errors(kLost, [&] {
    std::vector<at::Tensor> tensors{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    const double received = rank_ == root ? 0.0 : static_cast<double>(tensor.nbytes());
    return counted(group_->backend->broadcast(tensors, options), 0.0, received);
  });
}

std::string ProcessGroup::next_key() { return "exchange/" + std::to_string(keys_++); }

// Rank 0 hosts the store, and must not exit before the other ranks have read its values.
void ProcessGroup::meet() const { sum(at::zeros({})); }

std::vector<std::string> ProcessGroup::exchange(const std::string& text) {
  std::vector<std::string> texts;
  with_rank_errors(kLost, [&] {
    const std::string key = next_key() + "/";
    group_->store->set(key + std::to_string(rank_), text);
    for (int rank = 0; rank < size_; ++rank) {
      const std::string theirs = key + std::to_string(rank);
      group_->wait_for(theirs, timeout_);
      texts.push_back(group_->store->get_to_str(theirs));
    }
  });
  meet();
  return texts;
}

void ProcessGroup::on_first(const std::function<void()>& work) {
  const std::string key = next_key();
  if (first()) {
    const auto say = [&](const char* outcome) {
      with_rank_errors(kLost, [&] { group_->store->set(key, outcome); });
    };
    try {
      work();
    } catch (...) {
      say(kFailed);
      throw;
    }
    say(kDone);
  } else {
    const std::string outcome = with_rank_errors(kLost, [&] {
      group_->wait_for(key, timeout_ * kPatienceWithFirst);
      return group_->store->get_to_str(key);
    });
    if (outcome != kDone) {
      throw_environment("rank 0 failed, see its error");
    }
  }
  meet();
}

KeysAndValues RanksOfSequence::joined(const KeysAndValues& own) const {
  const std::int64_t length = own.k.size(2);
  const std::int64_t positions = (number() + 1) * length;
  const Exchanged all(positions, own.k, own.k.scalar_type());
  all.write(number() * length, own);
  std::vector<Pending> arriving;
  for (std::int64_t from = 0; from <= number(); ++from) {
    arriving.push_back(ranks_.broadcast(all.at(from * length, length), static_cast<int>(from)));
  }
  for (const Pending& pending : arriving) {
    pending.in_order();
  }
  at::Tensor later;  // what this rank has no use for
  for (std::int64_t from = number() + 1; from < parts(); ++from) {
    later = later.defined() ? later : at::empty_like(all.at(0, length));
    ranks_.broadcast(later, static_cast<int>(from)).in_order();
  }
  return all.heads(0, positions);
}

KeysAndValues RanksOfSequence::own_sums(const KeysAndValues& all) const {
  const std::int64_t positions = all.k.size(2);
  const std::int64_t length = positions / (number() + 1);
  const Exchanged sums(parts() * length, all.k, wide_type(all.k));
  sums.write(0, all);
  sums.at(positions, parts() * length - positions).zero_();
  std::vector<Pending> arriving;
  for (std::int64_t to = 0; to < parts(); ++to) {
    arriving.push_back(ranks_.reduce(sums.at(to * length, length), static_cast<int>(to)));
  }
  for (const Pending& pending : arriving) {
    pending.in_order();
  }
  return sums.heads(number() * length, length);
}

std::optional<RanksOfSequence> ranks_of_sequence(ProcessGroup* group) {
  return group != nullptr && group->sequences() != nullptr
             ? std::optional<RanksOfSequence>(std::in_place, *group->sequences())
             : std::nullopt;
}

}  // namespace regroup
