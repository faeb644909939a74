// The launches of a machine until they complete, and the slots for programs
// that each rank has, as a GPU has SMs.
#pragma once

#include "scheduler/fiber.h"
#include "scheduler/launch.h"
#include "scheduler/random.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

namespace ditron::sim {

class LaunchQueue {
public:
  LaunchQueue(int32_t numRanks, int32_t slots, uint64_t seed);

  uint64_t newId() { return nextId++; }
  Launch &add(std::unique_ptr<Launch> launch);
  /// The launch of which a program may start now on that rank; null: none.
  Launch *startable(int32_t rank) const;
  /// Start the next program of that launch, which takes a slot.
  Fiber &startProgram(int32_t rank);
  /// A program is about to run for the first time. Launches of two streams that
  /// compete for slots may get them in any order: it may become a program of
  /// another launch, and its own gets a slot later.
  void mayExchange(Fiber &fiber);
  /// Launches keep their order.
  void setInOrder() { exchanges = false; }
  /// Take all of that launch out of the queue: it runs without slots.
  void takeWhole(int32_t rank);
  /// A program has ended. Returns whether it was its launch's last.
  bool endProgram(Fiber &fiber);
  /// A launch has completed, and is destroyed.
  void remove(Launch &launch) { launches.erase(launch.id); }

  bool empty() const { return launches.empty(); }
  /// Per rank: launches with programs that have not started.
  const std::vector<std::deque<Launch *>> &notStarted() const { return queued; }

private:
  std::array<int32_t, 3> nextProgram(int32_t rank, size_t index);

  int32_t slots;  ///< Per rank.
  Random random;  ///< Of exchanges only.
  bool exchanges; ///< Chosen by the seed.
  uint64_t nextId = 1;
  std::unordered_map<uint64_t, std::unique_ptr<Launch>> launches;
  std::vector<std::deque<Launch *>> queued;
  std::vector<int32_t> resident; ///< Parts of SMs that are taken, per rank.
  std::deque<Fiber> fibers;
  std::vector<Fiber *> unused;
};

} // namespace ditron::sim
