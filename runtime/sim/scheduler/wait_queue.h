// The fibers that wait, indexed by what can end the wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

namespace ditron::sim {

class Clock;
class Network;
struct Fiber;

class WaitQueue {
public:
  /// Fibers whose wait ends are put into `ready`.
  WaitQueue(const Network &network, std::deque<Fiber *> &ready)
      : network(network), ready(ready) {}

  /// Add a fiber, which waits for `fiber.wait`.
  void add(Fiber &fiber);
  bool isSatisfied(const Fiber &fiber) const;
  void wake(Fiber &fiber);
  /// Memory has changed: wake the fibers that watch it.
  void memoryChanged(const void *address, size_t bytes);
  /// A transfer has been delivered: wake the fibers that waited for it.
  void wakeDelivered();
  // Each returns whether a fiber was woken.
  /// Check all waits: ordinary stores change memory without a notice.
  bool wakeSatisfied();
  bool wakeSpinning();

  const std::vector<Fiber *> &fibers() const { return waiting; }
  Clock *clock = nullptr; ///< Null: none.

private:
  const Network &network;
  std::deque<Fiber *> &ready;
  std::vector<Fiber *> waiting;
  std::vector<Fiber *> forDelivery; ///< Those that wait for transfers.
  std::unordered_multimap<uintptr_t, Fiber *> watchers; ///< By word.
  std::vector<Fiber *> woken; ///< Scratch of `memoryChanged`.
};

} // namespace ditron::sim
