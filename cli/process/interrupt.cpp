#include "cli/process/interrupt.h"

#include <csignal>
#include <unistd.h>

namespace regroup {
namespace {

// A signal handler can only access globals; the program has no others.
std::atomic<bool> requested{false};
std::atomic<int> signal_number{0};

extern "C" void on_interrupt(int number) {
  if (requested.exchange(true)) {
    ::_exit(128 + number);
  }
  signal_number = number;
}

}  // namespace

void install_interrupt_handlers() {
  struct sigaction action{};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // reads and writes continue: work stops between its steps
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction hangup{};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) {  // nohup ignores it
    sigaction(SIGHUP, &action, nullptr);
  }
  // A file size limit becomes an error of write() and does not end the process. So does a closed
  // pipe, see secure_standard_streams().
  std::signal(SIGXFSZ, SIG_IGN);
}

void request_interrupt(int number) {
  if (!requested.exchange(true)) {
    signal_number = number;
  }
}

const std::atomic<bool>& interrupt_requested() { return requested; }

int interrupting_signal() { return signal_number; }

}  // namespace regroup
