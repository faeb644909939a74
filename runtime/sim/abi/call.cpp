#include "abi/call.h"

namespace ditron::sim {

int32_t worldRank(const Fiber &fiber, int32_t rank) {
  const std::vector<int32_t> &ranks =
      fiber.launch->teams[int(TeamKind::Group)]->ranks;
  if (rank < 0 || size_t(rank) >= ranks.size()) {
    throw Failure{format("rank ", rank, " is outside the group's ",
                         ranks.size(), " ranks"),
                  format("ranks of this group are 0 to ", ranks.size() - 1,
                         "; a peer is often (rank + i) % dl.num_ranks()")};
  }
  return ranks[rank];
}

/// Reads of an unchanged value after which a spin loop gets the current one: a
/// stale line does not stay for ever.
constexpr int32_t staleReads = 8;

void observeRead(Machine &machine, Fiber &fiber, const void *address,
                 uint64_t bits, int32_t bytes) {
  machine.scheduler.spins.read(fiber, address, bits, bytes);
}

void observeWrite(Machine &machine, Fiber &fiber, const void *address) {
  if (!fiber.workerContext) {
    machine.scheduler.spins.write(fiber, address);
  }
}

void observeEffect(Machine &machine, Fiber &fiber) {
  machine.scheduler.spins.effect(fiber);
}

void pollOrdinary(Machine &machine, Fiber &fiber, const void *address,
                  uint64_t bits, int32_t bytes, bool isElement) {
  AccessHistory &history = fiber.history;
  if (machine.scheduler.spins.read(fiber, address, bits, bytes) !=
          SpinDetector::Value::Unchanged ||
      (isElement && history.readTwiceInTensor())) {
    return;
  }
  if (machine.weakMemory && history.repeats >= staleReads) {
    machine.weakMemory->invalidate(fiber, address, size_t(bytes));
  }
  ++history.repeats;
  if (!history.spins()) {
    machine.scheduler.maybeYield(8);
    return;
  }
  {
    TracedCall traced(machine.trace.get(), fiber, "spin",
                      [&] { return "on " + machine.heap.nameOf(address); });
    machine.scheduler.blockSpinning();
  }
  history.restart();
}

void pollAtomic(Machine &machine, Fiber &fiber, const void *address,
                uint64_t bits, int32_t bytes, bool isElement) {
  pollOrdinary(machine, fiber, address, bits, bytes, isElement);
  machine.scheduler.maybeYield(8);
}

} // namespace ditron::sim
