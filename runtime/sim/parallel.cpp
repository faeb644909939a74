// Each thread runs programs from begin to end on a stack of its own. They call
// only what concerns nobody else: identities, checks of addresses, products,
// failures, and atomics whose order does not matter (one at a time per place).
#include "parallel.h"

#include "crew.h"
#include "fault.h"
#include "machine.h"

#include <new>

namespace ditron::sim {

/// What a launch must take before others are woken for it.
constexpr auto worthwhile = std::chrono::microseconds(100);
/// After this the host gets a turn, to look for an interrupt.
constexpr auto patience = std::chrono::milliseconds(200);

struct Machine::Worker {
  Batch &batch;
  Batch::Time until;
  Fiber fiber;
  void *home = nullptr; ///< This thread, while it runs a program.

  void work() {
    Launch &launch = batch.launch;
    do {
      int64_t pid = batch.next.fetch_add(1);
      if (pid >= launch.programs()) {
        return;
      }
      fiber.pid = launch.program(pid);
      fiber.loc = -1;
      fiber.done = false;
      fiber.stack.prepare(programEntry);
      switchContext(&home, fiber.stack.context);
      if (!fiber.done) {
        batch.failed = true;
      }
    } while (!batch.failed && std::chrono::steady_clock::now() < until);
  }
};

/// Run programs on this thread.
void Machine::work(Batch &batch, Batch::Time until) {
  Worker worker{batch, until, Fiber()};
  Fiber &fiber = worker.fiber;
  fiber.launch = &batch.launch;
  fiber.home = &worker.home;
  try {
    std::lock_guard<std::mutex> guard(sharing);
    fiber.stack = stacks.take();
  } catch (const std::bad_alloc &) {
    batch.failed = true;
    fail(fiber, noStack());
    return;
  }
  Machine *outer = occupy(this, &fiber);
  Fault fault;
  auto body = [](void *context) { static_cast<Worker *>(context)->work(); };
  if (!survives(body, &worker, fault)) {
    batch.failed = true;
    failByFault(fault.signal, fault.address);
  }
  occupy(outer, nullptr);
  std::lock_guard<std::mutex> guard(sharing);
  stacks.give(std::move(fiber.stack));
}

/// Run the oldest batch on all cores; false when it is not over yet.
bool Machine::runBatch() {
  Batch &batch = *batches.front();
  Launch &launch = batch.launch;
  auto now = std::chrono::steady_clock::now();
  auto over = [&] { return batch.failed || batch.next >= launch.programs(); };
  work(batch, now + worthwhile);
  if (!over()) {
    Crew &crew = Crew::ofProcess();
    bool helped = crew.call(cores - 1, [this, &batch, until = now + patience] {
      FaultGuard guard;
      work(batch, until);
    });
    work(batch, now + patience);
    if (helped) {
      crew.finish();
    }
  }
  if (!over()) {
    return false;
  }
  if (!batch.failed) {
    launch.finished = launch.programs();
    int32_t rank = launch.rank;
    batches.pop_front();
    conclude(launch);
    admit(rank);
  }
  return true;
}

} // namespace ditron::sim
