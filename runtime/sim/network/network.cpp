#include "network/network.h"

#include <cstring>
#include <utility>

namespace ditron::sim {

/// Beyond this, transfers are delivered at once, to bound the memory of
/// snapshots.
constexpr size_t maxSnapshotBytes = size_t(256) << 20;
/// Longer data may be delivered in two parts, in either order, that are
/// multiples of this.
constexpr size_t splitBytes = 4096;

Network::Network(int32_t numRanks, int32_t ranksPerNode, uint64_t seed,
                 Random &random,
                 std::function<void(const void *, size_t)> changed)
    : numRanks(numRanks), nics(numRanks, ranksPerNode, seed), random(random),
      changed(std::move(changed)), pendingOf(numRanks),
      channels(size_t(numRanks) * numRanks) {}

void Network::send(Transfer transfer, bool readNow) {
  Channel &path = channel(transfer.origin, transfer.target);
  transfer.id = sent++;
  transfer.epoch = path.epoch;
  if (!transfer.isGet) {
    ++path.pendingPerEpoch[path.epoch];
  }
  pendingOf[transfer.origin].insert(transfer.id);
  nics.post(transfer);
  pending.push_back(std::make_unique<Transfer>(std::move(transfer)));
  if (onSent) {
    indexOf[pending.back()->id] = pending.size() - 1;
    onSent(*pending.back());
  }
  if (readNow) {
    takeSnapshot(*pending.back());
    while (snapshotBytes > maxSnapshotBytes && !onSent && deliverOne()) {
    }
  }
}

void Network::takeSnapshot(Transfer &transfer) {
  if (transfer.isDropped) {
    transfer.from = nullptr;
  } else if (transfer.bytes && transfer.snapshot.empty()) {
    transfer.snapshot.assign(transfer.from, transfer.from + transfer.bytes);
    transfer.from = nullptr;
    snapshotBytes += transfer.bytes;
  }
}

/// One pass over what is in flight; what may be delivered only after these is
/// left for the next pass.
template <typename Pick> void Network::deliverWhere(Pick pick, bool whole) {
  for (size_t index = pending.size(); index-- > 0;) {
    if (index < pending.size() && pick(*pending[index]) &&
        mayDeliver(*pending[index])) {
      deliver(index, whole);
    }
  }
}

void Network::completeLaunch(int32_t origin, uint64_t launch,
                             const std::function<bool(const void *)> &isLocal) {
  const auto &within = channel(origin, origin).pendingPerEpoch;
  while (!within.empty()) {
    deliverWhere([&](const Transfer &transfer) {
      return transfer.origin == origin && transfer.target == origin;
    });
  }
  for (auto &transfer : pending) {
    if (transfer->launch == launch && transfer->from &&
        isLocal(transfer->from)) {
      takeSnapshot(*transfer);
    }
  }
  deliverWhere(
      [&](const Transfer &transfer) {
        return transfer.launch == launch && transfer.bytes &&
               isLocal(transfer.to);
      },
      true);
}

void Network::fence(int32_t origin, int32_t target) {
  Channel &path = channel(origin, target);
  if (!path.pendingPerEpoch.empty()) {
    ++path.epoch;
  }
}

void Network::fence(int32_t origin) {
  for (int32_t target = 0; target < numRanks; ++target) {
    fence(origin, target);
  }
}

bool Network::mayDeliver(const Transfer &transfer) {
  if (transfer.isGet) {
    return true;
  }
  const auto &perEpoch =
      channel(transfer.origin, transfer.target).pendingPerEpoch;
  return perEpoch.begin()->first >= transfer.epoch && nics.isFirst(transfer);
}

bool Network::deliverOne() {
  if (pending.empty()) {
    return false;
  }
  // The first transfer of each rank may always be delivered, so a search from a
  // random index finds one.
  size_t index = random.below(pending.size());
  for (int attempt = 0;
       attempt < 3 && nics.isSlow(*pending[index]) && !random.oneIn(16);
       ++attempt) {
    index = random.below(pending.size());
  }
  while (!mayDeliver(*pending[index])) {
    index = (index + 1) % pending.size();
  }
  deliver(index);
  return true;
}

/// Copy all that has not been copied, or one side of it.
void Network::copyData(Transfer &transfer, bool whole) {
  size_t begin = 0, end = transfer.bytes;
  if (transfer.split) {
    (transfer.tailFirst ? end : begin) = transfer.split;
    transfer.split = 0;
  } else if (!whole && transfer.bytes > splitBytes && random.oneIn(2)) {
    transfer.split =
        (1 + random.below((transfer.bytes - 1) / splitBytes)) * splitBytes;
    transfer.tailFirst = random.oneIn(2);
    (transfer.tailFirst ? begin : end) = transfer.split;
  }
  if (transfer.isDropped) {
    return;
  }
  const std::byte *from =
      transfer.snapshot.empty() ? transfer.from : transfer.snapshot.data();
  std::memmove(transfer.to + begin, from + begin, end - begin);
  changed(transfer.to + begin, end - begin);
}

void Network::deliver(size_t index, bool whole) {
  Transfer &transfer = *pending[index];
  if (transfer.bytes) {
    copyData(transfer, whole);
    if (transfer.split) {
      return; // the rest comes later
    }
    snapshotBytes -= transfer.snapshot.size();
    transfer.snapshot = {};
    transfer.from = nullptr;
    size_t bytes = std::exchange(transfer.bytes, 0);
    if (onDelivered) {
      onDelivered(transfer, transfer.to, bytes);
    }
    if (transfer.signal.address) {
      return; // which is delivered later
    }
  } else if (transfer.signal.address) {
    SignalWrite &signal = transfer.signal;
    if (beforeSignal) {
      beforeSignal(transfer);
    }
    *signal.address =
        signal.op == SignalOp::Add
            ? int64_t(uint64_t(*signal.address) + uint64_t(signal.value))
            : signal.value;
    if (onDelivered) {
      onDelivered(transfer, signal.address, sizeof(int64_t));
    }
    changed(signal.address, sizeof(int64_t));
  }
  if (!transfer.isGet) {
    Channel &path = channel(transfer.origin, transfer.target);
    auto count = path.pendingPerEpoch.find(transfer.epoch);
    if (--count->second == 0) {
      path.pendingPerEpoch.erase(count);
    }
  }
  nics.completed(transfer);
  pendingOf[transfer.origin].erase(transfer.id);
  std::swap(pending[index], pending.back());
  if (onSent) {
    indexOf[pending[index]->id] = index;
    indexOf.erase(pending.back()->id);
  }
  pending.pop_back();
}

bool Network::land(uint64_t id) {
  auto found = indexOf.find(id);
  if (found == indexOf.end()) {
    return true; // the host has completed it
  }
  if (!mayDeliver(*pending[found->second])) {
    return false;
  }
  while (found != indexOf.end()) { // data, then the signal
    deliver(found->second, true);
    found = indexOf.find(id);
  }
  return true;
}

void Network::deliverAllFrom(int32_t origin) {
  while (!pendingOf[origin].empty()) {
    deliverWhere(
        [&](const Transfer &transfer) { return transfer.origin == origin; });
  }
}

bool Network::pendingFrom(int32_t origin, uint64_t id) const {
  const std::set<uint64_t> &ids = pendingOf[origin];
  return !ids.empty() && *ids.begin() < id;
}

} // namespace ditron::sim
