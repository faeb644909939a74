#include "network/nic.h"

#include "network/network.h"

namespace ditron::sim {

Nics::Nics(int32_t numRanks, int32_t ranksPerNode, uint64_t seed)
    : random(seed ^ 0x1b000000u), ranksPerNode(ranksPerNode) {
  constexpr int32_t counts[] = {1, 2, 4, 4}; // a single one keeps all in order
  perRank = counts[random.below(4)];
  queuePairs.resize(size_t(numRanks) * perRank);
  for (QueuePair &pair : queuePairs) {
    pair.isSlow = random.oneIn(4);
  }
}

const Nics::QueuePair &Nics::of(const Transfer &transfer) const {
  return queuePairs[size_t(transfer.origin) * perRank + transfer.queuePair];
}

Nics::QueuePair &Nics::of(const Transfer &transfer) {
  return queuePairs[size_t(transfer.origin) * perRank + transfer.queuePair];
}

void Nics::post(Transfer &transfer) {
  bool leavesNode =
      transfer.origin / ranksPerNode != transfer.target / ranksPerNode;
  if (leavesNode && !transfer.isGet) {
    transfer.queuePair = int32_t(random.below(perRank));
    of(transfer).posted.push_back(transfer.id);
  }
}

bool Nics::isFirst(const Transfer &transfer) const {
  return transfer.queuePair < 0 || of(transfer).posted.front() == transfer.id;
}

bool Nics::isSlow(const Transfer &transfer) const {
  return transfer.queuePair >= 0 && of(transfer).isSlow;
}

void Nics::completed(const Transfer &transfer) {
  if (transfer.queuePair >= 0) {
    of(transfer).posted.pop_front();
  }
}

} // namespace ditron::sim
