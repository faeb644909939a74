#include "network.h"

#include <cstring>
#include <utility>

namespace ditron::sim {

/// Beyond this, what can land lands: copies of sources must not eat the
/// machine.
constexpr size_t maxCopiedBytes = size_t(256) << 20;
/// Longer data may arrive in two parts, in either order.
constexpr size_t packetBytes = 4096;

Network::Network(int32_t numRanks, int32_t ranksPerNode, uint64_t seed,
                 Random &random,
                 std::function<void(const void *, size_t)> landed)
    : numRanks(numRanks), nics(numRanks, ranksPerNode, seed), random(random),
      landed(std::move(landed)), pendingOf(numRanks),
      channels(size_t(numRanks) * numRanks) {}

void Network::send(Delivery delivery, bool readNow) {
  Channel &line = channel(delivery.origin, delivery.target);
  delivery.id = sent++;
  delivery.epoch = line.epoch;
  if (!delivery.isGet) {
    ++line.pendingPerEpoch[line.epoch];
  }
  pendingOf[delivery.origin].insert(delivery.id);
  nics.post(delivery);
  pending.push_back(std::make_unique<Delivery>(std::move(delivery)));
  if (readNow) {
    read(*pending.back());
    while (copied > maxCopiedBytes && landOne()) {
    }
  }
}

void Network::read(Delivery &delivery) {
  if (delivery.bytes && delivery.copy.empty()) {
    delivery.copy.assign(delivery.from, delivery.from + delivery.bytes);
    delivery.from = nullptr;
    copied += delivery.bytes;
  }
}

/// One pass over what is under way; what becomes possible by it is left for the
/// next.
template <typename Pick> void Network::landWhere(Pick pick, bool whole) {
  for (size_t index = pending.size(); index-- > 0;) {
    if (index < pending.size() && pick(*pending[index]) &&
        mayLand(*pending[index])) {
      land(index, whole);
    }
  }
}

void Network::settle(int32_t origin, uint64_t launch,
                     const std::function<bool(const void *)> &dies) {
  const auto &within = channel(origin, origin).pendingPerEpoch;
  while (!within.empty()) {
    landWhere([&](const Delivery &delivery) {
      return delivery.origin == origin && delivery.target == origin;
    });
  }
  for (auto &delivery : pending) {
    if (delivery->launch == launch && delivery->from && dies(delivery->from)) {
      read(*delivery);
    }
  }
  landWhere(
      [&](const Delivery &delivery) {
        return delivery.launch == launch && delivery.bytes && dies(delivery.to);
      },
      true);
}

void Network::fence(int32_t origin, int32_t target) {
  Channel &line = channel(origin, target);
  if (!line.pendingPerEpoch.empty()) {
    ++line.epoch;
  }
}

void Network::fence(int32_t origin) {
  for (int32_t target = 0; target < numRanks; ++target) {
    fence(origin, target);
  }
}

bool Network::mayLand(const Delivery &delivery) {
  if (delivery.isGet) {
    return true;
  }
  const auto &perEpoch =
      channel(delivery.origin, delivery.target).pendingPerEpoch;
  return perEpoch.begin()->first >= delivery.epoch && nics.first(delivery);
}

bool Network::landOne() {
  if (pending.empty()) {
    return false;
  }
  // What each rank has sent first may always land, so going on from a random
  // place finds one.
  size_t index = random.below(pending.size());
  for (int attempt = 0;
       attempt < 3 && nics.slow(*pending[index]) && !random.oneIn(16);
       ++attempt) {
    index = random.below(pending.size());
  }
  while (!mayLand(*pending[index])) {
    index = (index + 1) % pending.size();
  }
  land(index);
  return true;
}

/// Copy all that has not arrived, or one side of it.
void Network::copyData(Delivery &delivery, bool whole) {
  size_t begin = 0, end = delivery.bytes;
  if (delivery.split) {
    (delivery.tailFirst ? end : begin) = delivery.split;
    delivery.split = 0;
  } else if (!whole && delivery.bytes > packetBytes && random.oneIn(2)) {
    delivery.split =
        (1 + random.below((delivery.bytes - 1) / packetBytes)) * packetBytes;
    delivery.tailFirst = random.oneIn(2);
    (delivery.tailFirst ? begin : end) = delivery.split;
  }
  const std::byte *from =
      delivery.copy.empty() ? delivery.from : delivery.copy.data();
  std::memmove(delivery.to + begin, from + begin, end - begin);
  landed(delivery.to + begin, end - begin);
}

void Network::land(size_t index, bool whole) {
  Delivery &delivery = *pending[index];
  if (delivery.bytes) {
    copyData(delivery, whole);
    if (delivery.split) {
      return; // the rest comes later
    }
    copied -= delivery.copy.size();
    delivery.copy = {};
    delivery.from = nullptr;
    size_t bytes = std::exchange(delivery.bytes, 0);
    if (arrived) {
      arrived(delivery, delivery.to, bytes);
    }
    if (delivery.signal.address) {
      return; // the signal comes later, at a moment of its own
    }
  } else if (delivery.signal.address) {
    SignalWrite &signal = delivery.signal;
    if (signalling) {
      signalling(delivery);
    }
    *signal.address =
        signal.op == SignalOp::Add
            ? int64_t(uint64_t(*signal.address) + uint64_t(signal.value))
            : signal.value;
    if (arrived) {
      arrived(delivery, signal.address, sizeof(int64_t));
    }
    landed(signal.address, sizeof(int64_t));
  }
  if (!delivery.isGet) {
    Channel &line = channel(delivery.origin, delivery.target);
    auto count = line.pendingPerEpoch.find(delivery.epoch);
    if (--count->second == 0) {
      line.pendingPerEpoch.erase(count);
    }
  }
  nics.done(delivery);
  pendingOf[delivery.origin].erase(delivery.id);
  std::swap(pending[index], pending.back());
  pending.pop_back();
}

void Network::landAllFrom(int32_t origin) {
  while (!pendingOf[origin].empty()) {
    landWhere(
        [&](const Delivery &delivery) { return delivery.origin == origin; });
  }
}

bool Network::pendingFrom(int32_t origin, uint64_t id) const {
  const std::set<uint64_t> &ids = pendingOf[origin];
  return !ids.empty() && *ids.begin() < id;
}

} // namespace ditron::sim
