#include "nic.h"

#include "network.h"

namespace ditron::sim {

Nics::Nics(int32_t numRanks, int32_t ranksPerNode, uint64_t seed)
    : random(seed ^ 0x1b000000u), ranksPerNode(ranksPerNode) {
  constexpr int32_t counts[] = {1, 2, 4, 4}; // one queue keeps every order
  perRank = counts[random.below(4)];
  queues.resize(size_t(numRanks) * perRank);
  for (Queue &queue : queues) {
    queue.slow = random.oneIn(4);
  }
}

const Nics::Queue &Nics::queueOf(const Delivery &delivery) const {
  return queues[size_t(delivery.origin) * perRank + delivery.queue];
}

void Nics::post(Delivery &delivery) {
  bool leaves =
      delivery.origin / ranksPerNode != delivery.target / ranksPerNode;
  if (leaves && !delivery.isGet) {
    delivery.queue = int32_t(random.below(perRank));
    queues[size_t(delivery.origin) * perRank + delivery.queue].posted.push_back(
        delivery.id);
  }
}

bool Nics::first(const Delivery &delivery) const {
  return delivery.queue < 0 || queueOf(delivery).posted.front() == delivery.id;
}

bool Nics::slow(const Delivery &delivery) const {
  return delivery.queue >= 0 && queueOf(delivery).slow;
}

void Nics::done(const Delivery &delivery) {
  if (delivery.queue >= 0) {
    queues[size_t(delivery.origin) * perRank + delivery.queue]
        .posted.pop_front();
  }
}

} // namespace ditron::sim
