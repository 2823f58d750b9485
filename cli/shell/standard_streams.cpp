#include "cli/shell/standard_streams.h"

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <limits>
#include <malloc.h>
#include <string>
#include <string_view>
#include <sys/prctl.h>
#include <unistd.h>

namespace regroup {
namespace {

extern "C" void on_parent_end(int) { request_interrupt(SIGTERM); }

void set_handler(int signal, void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // reads and writes continue: work stops between its steps
  sigaction(signal, &action, nullptr);
}

// Globals, since a signal handler can access nothing else.
std::atomic<bool> requested{false};
std::atomic<int> signal_number{0};
std::atomic<std::int64_t> requested_at{0};  // in milliseconds; 0: no stop is requested

// `timeout` and launchers send a signal to the process and then to its group, which is no second
// Ctrl-C.
constexpr std::int64_t kSameRequest = 1000;

std::int64_t milliseconds_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

// Requests a stop unless one is requested. Returns the milliseconds since the first request.
std::int64_t request(int number) {
  const std::int64_t now = milliseconds_now();
  std::int64_t first = 0;
  if (requested_at.compare_exchange_strong(first, now)) {
    signal_number = number;
    requested = true;
    return 0;
  }
  return now - first;
}

// Whether stderr is a terminal, where a first Ctrl-C is acknowledged: a step may take minutes.
std::atomic<bool> acknowledges{false};

extern "C" void on_interrupt(int number) {
  const std::int64_t since = request(number);
  if (since > kSameRequest) {
    ::_exit(128 + number);
  }
  if (since == 0 && number == SIGINT && acknowledges) {
    constexpr std::string_view kStopping = "\nstopping; Ctrl-C again ends at once\n";
    static_cast<void>(::write(STDERR_FILENO, kStopping.data(), kStopping.size()));
  }
}

}  // namespace

void keep_freed_memory() {
  constexpr int kNever = std::numeric_limits<int>::max();
  constexpr int kAtOnce = 4 << 20;  // bytes
  ::mallopt(M_MMAP_THRESHOLD, kNever);
  ::mallopt(M_TRIM_THRESHOLD, kNever);
  ::mallopt(M_TOP_PAD, kAtOnce);
}

void stop_with_parent() {
  const char* named = std::getenv("REGROUP_PARENT");
  const std::string parent = std::to_string(::getppid());
  if (named == nullptr || parent != named) {
    return;
  }
  // A signal of its own: it comes several times if the parent has threads, which end one by one,
  // and a second SIGTERM ends the program at once.
  set_handler(SIGUSR1, on_parent_end);
  ::prctl(PR_SET_PDEATHSIG, SIGUSR1);
  if (std::to_string(::getppid()) != parent) {  // it ended before the call
    request_interrupt(SIGTERM);
  }
}

void secure_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) == -1 && errno == EBADF) {
      // open() returns the lowest free descriptor, which is this one. The access mode is the wrong
      // one on purpose: using the stream fails.
      ::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
  }
  std::signal(SIGPIPE, SIG_IGN);
}

void install_interrupt_handlers() {
  acknowledges = ::isatty(STDERR_FILENO) == 1;
  set_handler(SIGINT, on_interrupt);
  set_handler(SIGTERM, on_interrupt);
  struct sigaction hangup{};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) {  // nohup ignores it
    set_handler(SIGHUP, on_interrupt);
  }
  // A file size limit becomes an error of write() and does not end the process. So does a closed
  // pipe, see secure_standard_streams().
  std::signal(SIGXFSZ, SIG_IGN);
}

void request_interrupt(int number) { request(number); }

const std::atomic<bool>& interrupt_requested() { return requested; }

int interrupting_signal() { return signal_number; }

}  // namespace regroup
