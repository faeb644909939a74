#include "scheduler/parallel_launch.h"

#include "machine.h"
#include "scheduler/fault.h"
#include "scheduler/thread_pool.h"

#include <new>

namespace ditron::sim {

/// What a launch must take before other threads are woken for it.
constexpr auto worthwhile = std::chrono::microseconds(100);
/// After this the host gets to look for an interrupt.
constexpr auto patience = std::chrono::milliseconds(200);

bool ParallelLauncher::accepts(const Launch &launch) const {
  return launch.independent && launch.programs() > 1 && cores > 1;
}

void ParallelLauncher::add(Launch &launch) {
  batches.push_back(std::make_unique<Batch>(launch));
}

bool ParallelLauncher::Batch::isOver() const {
  return failed || next >= launch.programs();
}

struct ParallelLauncher::Worker {
  Batch &batch;
  Time until;
  Fiber fiber;
  void *context = nullptr; ///< This thread's, while it runs a program.

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
      fiber.stack.prepare(Machine::runProgram);
      switchContext(&context, fiber.stack.context);
      if (!fiber.done) {
        batch.failed = true;
      }
    } while (!batch.failed && std::chrono::steady_clock::now() < until);
  }
};

void ParallelLauncher::runOnThisThread(Batch &batch, Time until) {
  Worker worker{batch, until, Fiber()};
  Fiber &fiber = worker.fiber;
  fiber.launch = &batch.launch;
  fiber.workerContext = &worker.context;
  try {
    std::lock_guard<std::mutex> guard(mutex);
    fiber.stack = machine.stacks.take();
  } catch (const std::bad_alloc &) {
    batch.failed = true;
    machine.diagnostics.fail(fiber, outOfStacks(machine.stacks));
    return;
  }
  Machine *outer = Machine::exchangeCurrent(&machine, &fiber);
  Fault fault;
  auto body = [](void *context) { static_cast<Worker *>(context)->work(); };
  if (!runCatchingFaults(body, &worker, fault)) {
    batch.failed = true;
    machine.diagnostics.fail(fiber, describeFault(machine, fiber, fault));
  }
  Machine::exchangeCurrent(outer, nullptr);
  std::lock_guard<std::mutex> guard(mutex);
  machine.stacks.give(std::move(fiber.stack));
}

bool ParallelLauncher::run() {
  Batch &batch = *batches.front();
  auto now = std::chrono::steady_clock::now();
  runOnThisThread(batch, now + worthwhile);
  if (!batch.isOver()) {
    ThreadPool &threads = ThreadPool::ofProcess();
    bool helped =
        threads.start(cores - 1, [this, &batch, until = now + patience] {
          FaultGuard guard;
          runOnThisThread(batch, until);
        });
    runOnThisThread(batch, now + patience);
    if (helped) {
      threads.finish();
    }
  }
  if (!batch.isOver()) {
    return false;
  }
  if (!batch.failed) {
    Launch &launch = batch.launch;
    launch.finished = launch.programs();
    int32_t rank = launch.rank;
    batches.pop_front();
    machine.complete(launch);
    machine.startPrograms(rank);
  }
  return true;
}

} // namespace ditron::sim
