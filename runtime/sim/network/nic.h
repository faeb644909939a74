// The NICs between nodes: one per rank, with several queue pairs.
//
// What a rank sends to another node is posted to one of its NIC's queue pairs,
// which the seed chooses. A queue pair keeps its order, there is none between
// queue pairs, and one may be slow: so two puts to one peer arrive in order or
// not. Transfers within a node do not go through NICs.
#pragma once

#include "scheduler/random.h"

#include <cstdint>
#include <deque>
#include <vector>

namespace ditron::sim {

struct Transfer;

class Nics {
public:
  Nics(int32_t numRanks, int32_t ranksPerNode, uint64_t seed);

  /// A put or a signal is sent: post it to a queue pair, if it leaves the node.
  /// Gets are not ordered with it.
  void post(Transfer &transfer);
  /// Whether all that was posted before to its queue pair has been delivered.
  bool isFirst(const Transfer &transfer) const;
  bool isSlow(const Transfer &transfer) const;
  /// It has been delivered, with its signal.
  void completed(const Transfer &transfer);

private:
  struct QueuePair {
    std::deque<uint64_t> posted; ///< Ids.
    bool isSlow = false;
  };
  const QueuePair &of(const Transfer &transfer) const;
  QueuePair &of(const Transfer &transfer);

  Random random;
  int32_t ranksPerNode;
  int32_t perRank;
  std::vector<QueuePair> queuePairs;
};

} // namespace ditron::sim
