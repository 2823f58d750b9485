// The devices and ranks on which a command computes: several processes (ranks), one per device;
// what is slow on a device.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/shell/console.h"
#include "uptrain/distributed/launch.h"
#include "uptrain/distributed/process_group.h"
#include "uptrain/model/device.h"

namespace regroup {

/// The device of a rank for `text` (--device): "cuda" is the GPU with the rank's local number, or
/// the only visible one. Throws as parse_device() does.
c10::Device device_of_rank(const std::string& text, const Launch& launch);

/// The number of compute threads of a rank: `requested` if positive, otherwise its share of the
/// machine's cores. Returns 0, which leaves the choice to LibTorch, for a single process and if
/// OMP_NUM_THREADS is set.
int threads_of_rank(int requested, const Launch& launch);

/// Connects to the other ranks; null for a single process. Calls `say` once if that takes seconds.
/// Throws kEnvironment after `timeout`, whatever listens at their address, and
/// kInterrupted soon after check_stop() would.
std::unique_ptr<ProcessGroup> join_process_group(
    const Launch& launch, c10::Device device, std::chrono::seconds timeout,
    const std::function<void(const std::string&)>& say);

/// Calls `work`; if there are several ranks, puts the number of the rank before an error's message.
void with_rank_named(const Launch& launch, const std::function<void()>& work);

/// The words of options that name a Precision, which parse_precision() reads.
inline const std::vector<std::string> kPrecisions{"fp32", "bf16"};

/// Prints device_notes() on stderr, and a line if matrix products in `precision` are slow on
/// `device`.
void warn_of_precision(Precision precision, c10::Device device, const Console& console);

/// The help of an option that precision_or_fast() completes.
inline constexpr const char* kFasterPrecision = "dtype to compute in (default: the faster)";

/// What was chosen, or else what `device` computes faster. Warns as above.
Precision precision_or_fast(std::optional<Precision> chosen, c10::Device device,
                            const Console& console);

}  // namespace regroup
