// The transfers in flight (puts, gets and signals), and the order in which they
// may be delivered.
#pragma once

#include "abi/abi.h"
#include "network/nic.h"
#include "scheduler/random.h"

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

namespace ditron::sim {

/// A signal to be written: `address` is in the receiver's heap.
struct SignalWrite {
  int64_t *address = nullptr;
  int64_t value = 0;
  SignalOp op = SignalOp::Set;
};

struct MessageClock;

/// One transfer. A put with a signal stays in flight, as a signal alone, after
/// its data has been delivered.
struct Transfer {
  uint64_t id = 0;
  int32_t origin = 0; ///< World ranks.
  int32_t target = 0;
  bool isGet = false; ///< Fences do not order gets.
  uint64_t epoch =
      0; ///< Follows the transfers of earlier epochs to its target.
  std::byte *to = nullptr;
  const std::byte *from = nullptr;
  size_t bytes = 0;
  bool isDropped = false;          ///< Data that takes time, but is not moved.
  std::vector<std::byte> snapshot; ///< The source, once it must not be read.
  size_t split = 0; ///< Long data may be delivered in two parts: if not 0, one
                    ///< side of this has been, as `tailFirst` says.
  bool tailFirst = false;
  int32_t queuePair = -1; ///< Of its origin's NIC, when it leaves the node.
  SignalWrite signal;
  uint64_t launch = 0; ///< The sender, to know when its memory may be freed.
  std::shared_ptr<MessageClock> message; ///< What its signal releases.
};

class Network {
public:
  /// `changed(address, bytes)` is called after memory has changed.
  Network(int32_t numRanks, int32_t ranksPerNode, uint64_t seed, Random &random,
          std::function<void(const void *, size_t)> changed);

  /// Send; with `readNow` the source is copied at once.
  void send(Transfer transfer, bool readNow);
  /// What `origin` sends to `target` from here on is delivered after what it
  /// sent before.
  void fence(int32_t origin, int32_t target);
  void fence(int32_t origin);

  bool empty() const { return pending.empty(); }
  /// Deliver a transfer that may be; false when there is none in flight.
  bool deliverOne();
  /// Deliver all that `origin` has sent.
  void deliverAllFrom(int32_t origin);
  /// Whether something that `origin` sent before `id` is in flight.
  bool pendingFrom(int32_t origin, uint64_t id) const;
  uint64_t nextId() const { return sent; }
  /// Whether transfer `id` of `origin` is in flight.
  bool inFlight(int32_t origin, uint64_t id) const {
    return pendingOf[origin].count(id) != 0;
  }

  /// A launch of `origin` completes: deliver what the rank sent to itself. Of
  /// memory that `isLocal`, which may be freed now, take snapshots and deliver
  /// what goes there.
  void completeLaunch(int32_t origin, uint64_t launch,
                      const std::function<bool(const void *)> &isLocal);

  /// Deliver transfer `id`, all of it, if it is in flight; false when it must
  /// follow others that are.
  bool land(uint64_t id);
  /// Called, when set, for each transfer that is sent.
  std::function<void(const Transfer &)> onSent;
  /// Called, when set, before a signal is written.
  std::function<void(const Transfer &)> beforeSignal;
  /// Called, when set, for each delivery: where and how many bytes.
  std::function<void(const Transfer &, const void *, size_t)> onDelivered;

private:
  /// From a rank to a rank.
  struct Channel {
    uint64_t epoch = 0;
    std::map<uint64_t, uint64_t> pendingPerEpoch;
  };
  Channel &channel(int32_t origin, int32_t target) {
    return channels[size_t(origin) * numRanks + target];
  }
  bool mayDeliver(const Transfer &transfer);
  void deliver(size_t index, bool whole = false);
  void copyData(Transfer &transfer, bool whole);
  template <typename Pick> void deliverWhere(Pick pick, bool whole = false);
  void takeSnapshot(Transfer &transfer);

  int32_t numRanks;
  Nics nics;
  Random &random;
  std::function<void(const void *, size_t)> changed;
  uint64_t sent = 0;
  size_t snapshotBytes = 0;
  std::vector<std::unique_ptr<Transfer>> pending;
  std::unordered_map<uint64_t, size_t> indexOf; ///< By id, with `onSent`.
  std::vector<std::set<uint64_t>> pendingOf;    ///< Ids, per origin.
  std::vector<Channel> channels;
};

} // namespace ditron::sim
