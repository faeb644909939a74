// Waits for signals.
#include "abi/call.h"
#include "abi/compare.h"

#include <optional>

using namespace ditron::sim;

/// The bounds check of checkAccess, with a message about signals.
static void checkSignals(Machine &machine, const void *sig, int32_t n,
                         const char *what) {
  if (n < 0) {
    throw Failure{
        format(what, ": expected a count of at least 0 signals, got ", n),
        "check how the count is computed"};
  }
  std::optional<Heap::Location> location = machine.heap.locate(sig);
  std::optional<size_t> left =
      location ? machine.heap.bytesFrom(location->offset) : std::nullopt;
  if (left && size_t(n) > *left / 8) {
    throw Failure{format(what, " for ", n, " signals from ",
                         machine.heap.nameOf(sig), " on, where there are ",
                         *left / 8),
                  "check the pointer and the count (it counts signals, not "
                  "bytes), or allocate more",
                  "bounds"};
  }
}

static void waitForSignals(Machine &machine, Fiber &fiber, void *sig, int32_t n,
                           int64_t value, int32_t cmp, const char *what,
                           bool acquires = true, Scope scope = Scope::World) {
  checkSignals(machine, sig, n, what);
  checkAccess(machine, fiber, sig, int64_t(n) * 8, what);
  if (reinterpret_cast<uintptr_t>(sig) % 8 != 0) {
    throw Failure{
        format(what, ": expected a signal aligned to 8 bytes, got ", sig),
        "signals are int64 elements"};
  }
  Wait wait;
  wait.kind = Wait::Kind::Signals;
  wait.signals = static_cast<const int64_t *>(sig);
  wait.count = n;
  wait.value = value;
  wait.compare = Compare(cmp);
  TracedCall traced(
      machine.trace.get(), fiber, what,
      [&] {
        return format("for ", machine.heap.nameOf(sig),
                      n > 1 ? format(" and ", n - 1, " more") : "", " ",
                      spelling(wait.compare), " ", value);
      },
      n > 0 ? sig : nullptr, n);
  observeEffect(machine, fiber);
  settle(machine, fiber);
  machine.scheduler.maybeYield();
  if (machine.weakMemory) {
    machine.weakMemory->flush(fiber, sig, size_t(n) * 8);
  }
  machine.scheduler.block(wait);
  if (machine.weakMemory && acquires) {
    machine.weakMemory->acquire(fiber);
  }
  if (machine.races) {
    machine.races->access(fiber, sig, size_t(n) * 8, Access::Wait);
    for (int32_t index = 0; index < n; ++index) {
      const int64_t *signal = wait.signals + index;
      if (acquires) {
        machine.races->acquire(fiber, signal, sizeof *signal, scope);
      } else {
        machine.races->acquireAtFence(fiber, signal, sizeof *signal, scope);
      }
    }
  }
}

void ditron_sim_wait(void *sig, int32_t n, int64_t value, int32_t cmp,
                     int32_t scope, int32_t sem, int32_t loc) {
  call(loc, [=](Machine &machine, Fiber &fiber) {
    waitForSignals(machine, fiber, sig, n, value, cmp, "wait", acquires(sem),
                   Scope(scope));
  });
}

int64_t ditron_sim_signal_wait_until(void *sig, int64_t value, int32_t cmp,
                                     int32_t loc) {
  return call(loc, [=](Machine &machine, Fiber &fiber) {
    waitForSignals(machine, fiber, sig, 1, value, cmp, "signal_wait_until");
    return *static_cast<const int64_t *>(sig);
  });
}
