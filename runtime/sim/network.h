// What has been sent and has not arrived: puts, gets and signals, and in which
// order they may land.
#pragma once

#include "abi.h"
#include "nic.h"
#include "random.h"

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace ditron::sim {

/// A signal to be written where it lies: `address` is in the receiver's heap.
struct SignalWrite {
  int64_t *address = nullptr;
  int64_t value = 0;
  SignalOp op = SignalOp::Set;
};

struct Passage;

/// One transfer under way. A put with a signal stays under way, as a signal
/// alone, after its data has landed.
struct Delivery {
  uint64_t id = 0;
  int32_t origin = 0; ///< World ranks.
  int32_t target = 0;
  bool isGet = false; ///< Fences do not order gets.
  uint64_t epoch =
      0; ///< Lands after all of its channel's deliveries of earlier epochs.
  std::byte *to = nullptr;
  const std::byte *from = nullptr;
  size_t bytes = 0;
  std::vector<std::byte>
      copy;         ///< The source as it was, once it may no longer be read.
  size_t split = 0; ///< Of long data, one side of this arrives first: if not
                    ///< 0, `tailFirst` says which has.
  bool tailFirst = false;
  int32_t queue = -1; ///< Of its origin's NIC, when it leaves the node.
  SignalWrite signal;
  uint64_t launch = 0; ///< Who sent it, to know when its source dies.
  std::shared_ptr<Passage> passage; ///< What its signal's receiver learns.
};

class Network {
public:
  /// `landed(address, bytes)` is called after memory has changed.
  Network(int32_t numRanks, int32_t ranksPerNode, uint64_t seed, Random &random,
          std::function<void(const void *, size_t)> landed);

  /// Send; with `readNow` the source is copied at once.
  void send(Delivery delivery, bool readNow);
  /// What `origin` sends to `target` from here on lands after what it sent
  /// before.
  void fence(int32_t origin, int32_t target);
  void fence(int32_t origin);

  bool empty() const { return pending.empty(); }
  /// Land one delivery that may; false when nothing is under way.
  bool landOne();
  /// Land all that `origin` has sent.
  void landAllFrom(int32_t origin);
  /// Whether something that `origin` sent before `id` is under way.
  bool pendingFrom(int32_t origin, uint64_t id) const;
  uint64_t nextId() const { return sent; }

  /// Called, when set, before a signal is written.
  std::function<void(const Delivery &)> signalling;
  /// Called, when set, for each landing: where and how many bytes.
  std::function<void(const Delivery &, const void *, size_t)> arrived;

  /// Whether delivery `id` of `origin` is.
  bool underWay(int32_t origin, uint64_t id) const {
    return pendingOf[origin].count(id) != 0;
  }

  /// A launch of `origin` is over: what the rank sent to itself has arrived.
  /// Memory that `dies` picks goes away: read there now, and land what goes
  /// there.
  void settle(int32_t origin, uint64_t launch,
              const std::function<bool(const void *)> &dies);

private:
  struct Channel {
    uint64_t epoch = 0;
    std::map<uint64_t, uint64_t> pendingPerEpoch;
  };
  Channel &channel(int32_t origin, int32_t target) {
    return channels[size_t(origin) * numRanks + target];
  }
  bool mayLand(const Delivery &delivery);
  void land(size_t index, bool whole = false);
  void copyData(Delivery &delivery, bool whole);
  template <typename Pick> void landWhere(Pick pick, bool whole = false);
  void read(Delivery &delivery);

  int32_t numRanks;
  Nics nics;
  Random &random;
  std::function<void(const void *, size_t)> landed;
  uint64_t sent = 0;
  size_t copied = 0; ///< Bytes held by copies of sources.
  std::vector<std::unique_ptr<Delivery>> pending;
  std::vector<std::set<uint64_t>> pendingOf; ///< Ids, per origin.
  std::vector<Channel> channels;
};

} // namespace ditron::sim
