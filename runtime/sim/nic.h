// The NICs between nodes: one per rank, with several queues.
//
// What a rank sends to another node is posted to one of its NIC's queues, in
// turns that the seed chooses. A queue keeps its order, queues among themselves
// have none, and one may be slow: so two puts to one peer arrive in order or
// not, whereas copies within a node go their own way.
#pragma once

#include "random.h"

#include <cstdint>
#include <deque>
#include <vector>

namespace ditron::sim {

struct Delivery;

class Nics {
public:
  Nics(int32_t numRanks, int32_t ranksPerNode, uint64_t seed);

  /// A put or a signal leaves: give it a queue, if it leaves the node. Reads
  /// keep no order with it.
  void post(Delivery &delivery);
  /// Whether everything posted to its queue before has arrived.
  bool first(const Delivery &delivery) const;
  bool slow(const Delivery &delivery) const;
  /// It has arrived, with its signal.
  void done(const Delivery &delivery);

private:
  struct Queue {
    std::deque<uint64_t> posted; ///< Ids.
    bool slow = false;
  };
  const Queue &queueOf(const Delivery &delivery) const;

  Random random;
  int32_t ranksPerNode;
  int32_t perRank;
  std::vector<Queue> queues;
};

} // namespace ditron::sim
