// The clocks of transfers, which are logical threads, and what orders them.
#include "machine.h"
#include "races/race_detector.h"

namespace ditron::sim {

RaceDetector::Channel &RaceDetector::channel(Fiber &fiber, int32_t target,
                                             bool own) {
  InFlight &sent = inFlight[queueOf(*fiber.launch)];
  ThreadId issuer = fiber.thread.id;
  std::vector<size_t> &mine = sent.byIssuer[issuer];
  for (size_t index = 0; index < mine.size() && !own; ++index) {
    Channel &found = sent.channels[mine[index]];
    if (found.target == target && found.shared) {
      return found;
    }
  }
  ThreadInfo info = threads[issuer];
  info.isRemote = target != info.rank;
  Channel fresh{ThreadId(threads.size()), issuer, target, {}, !own};
  threads.push_back(info);
  mine.push_back(sent.channels.size());
  sent.channels.push_back(std::move(fresh));
  return sent.channels.back();
}

/// How many transfers of a channel were issued before what the thread does now.
size_t RaceDetector::numIssuedBefore(const Channel &channel,
                                     const ThreadState &thread) const {
  const auto &issued = channel.issued;
  if (channel.issuer == thread.id ||
      happensBefore(channel.issuer, never, thread.clock)) {
    return issued.size();
  }
  uint32_t time = thread.clock.of(channel.issuer);
  return size_t(std::upper_bound(issued.begin(), issued.end(), time) -
                issued.begin());
}

/// `visit(channel, count)` for the transfers of the fiber's rank that were
/// issued before what it does now.
template <typename Visit>
void RaceDetector::forEachIssuedBefore(const Fiber &fiber, Visit visit) {
  auto visitChannel = [&](const Channel &channel) {
    if (size_t count = numIssuedBefore(channel, fiber.thread)) {
      visit(channel, uint32_t(count));
    }
  };
  for (int32_t queue : queuesOf[fiber.launch->rank]) {
    const InFlight &sent = inFlight[queue];
    for (size_t index = 0; index < sent.numCompleted; ++index) {
      visitChannel(sent.channels[index]);
    }
    if (sent.byIssuer.empty()) {
      continue;
    }
    // A copy, as visits change the clock; the program itself is among them.
    const VectorClock::Entries entries = fiber.thread.clock.entries;
    for (const auto &entry : entries) {
      auto found = sent.byIssuer.find(entry.first);
      if (found != sent.byIssuer.end()) {
        for (size_t index : found->second) {
          visitChannel(sent.channels[index]);
        }
      }
    }
  }
}

void RaceDetector::fence(Fiber &fiber, int32_t target) {
  forEachIssuedBefore(fiber, [&](const Channel &channel, uint32_t count) {
    if (channel.target == target) {
      fiber.thread.fencedPuts[target].raise(channel.thread, count);
    }
  });
}

void RaceDetector::fence(Fiber &fiber) {
  memoryFence(fiber);
  forEachIssuedBefore(fiber, [&](const Channel &channel, uint32_t count) {
    if (channel.target >= 0) {
      fiber.thread.fencedPuts[channel.target].raise(channel.thread, count);
    }
  });
}

void RaceDetector::quiet(Fiber &fiber) {
  forEachIssuedBefore(fiber, [&](const Channel &channel, uint32_t count) {
    fiber.thread.clock.raise(channel.thread, count);
  });
  memoryFence(fiber);
}

/// What a NIC or a copy engine reads has to be seen beyond the programs of the
/// GPU; `hint`: where it is not.
void RaceDetector::checkReadBeyondGpu(Fiber &fiber, const void *p, size_t bytes,
                                      Access kind, const char *hint) {
  const ThreadState &thread = fiber.thread;
  if (thread.seenBeyondGpu.empty()) {
    return;
  }
  try {
    checkAndRecord(fiber.launch->rank, p, bytes,
                   addRecord(thread.id, thread.time, fiber.loc, kind),
                   thread.clockBeyondGpu());
  } catch (Failure &failure) {
    failure.hint = hint;
    throw;
  }
}

void RaceDetector::copyReads(Fiber &fiber, const void *from, size_t bytes) {
  access(fiber, from, bytes, Access::CopySource);
  if (heap.holds(from)) { // other memory is coherent here
    checkReadBeyondGpu(
        fiber, from, bytes, Access::CopySource,
        "the copy reads memory by itself, and the signal between the two "
        "has scope=\"gpu\", that of programs of this GPU: give it "
        "scope=\"node\", or copy when the kernel has ended");
  }
}

std::shared_ptr<MessageClock>
RaceDetector::put(Fiber &fiber, const Transfer &transfer, bool nbi) {
  ThreadState &thread = fiber.thread;
  bool hasSignal = transfer.signal.address;
  Channel &transfers = channel(fiber, transfer.target, hasSignal);
  transfers.issued.push_back(thread.time);
  ThreadId id = transfers.thread;
  auto time = uint32_t(transfers.issued.size());
  auto message = std::make_shared<MessageClock>();
  message->clock = thread.clock;
  message->clock.joinEntries(thread.fencedPuts[transfer.target].entries);
  if (transfer.bytes) {
    // Both accesses are checked now, though the bytes move later: the clock
    // says what they are ordered with.
    if (nbi) {
      AccessId source = addRecord(id, time, fiber.loc, Access::PutSource);
      checkAndRecord(fiber.launch->rank, transfer.from, transfer.bytes, source,
                     message->clock);
      addLocalTransfer(fiber, transfer.from, transfer.bytes, source);
    } else {
      access(fiber, transfer.from, transfer.bytes, Access::PutSource);
    }
    if (transfer.origin / ranksPerNode != transfer.target / ranksPerNode) {
      checkReadBeyondGpu(
          fiber, transfer.from, transfer.bytes, Access::PutSource,
          "the put goes to another node, by a NIC, and the signal between the "
          "two has scope=\"gpu\", that of programs of this GPU: give it "
          "scope=\"world\", or call dl.fence() before the put");
    }
    checkAndRecord(fiber.launch->rank, transfer.to, transfer.bytes,
                   addRecord(id, time, fiber.loc, Access::Put), message->clock);
    copied(fiber, transfer.to, transfer.from, transfer.bytes);
  }
  if (hasSignal) {
    message->clock.raise(id, time);
    message->id = addRecord(id, time, fiber.loc, Access::Signal);
    checkAndRecord(fiber.launch->rank, transfer.signal.address, sizeof(int64_t),
                   message->id, message->clock);
  }
  tick(thread);
  return hasSignal ? message : nullptr;
}

std::shared_ptr<MessageClock>
RaceDetector::signal(Fiber &fiber, const Transfer &transfer, Scope scope) {
  std::shared_ptr<MessageClock> message = put(fiber, transfer, false);
  message->scope = scope;
  if (scope != Scope::Gpu) {
    fiber.thread.seenBeyondGpu.clear();
  }
  return message;
}

void RaceDetector::get(Fiber &fiber, const Transfer &transfer, bool nbi) {
  if (!transfer.bytes) {
    return;
  }
  copied(fiber, transfer.to, transfer.from, transfer.bytes);
  if (!nbi) {
    access(fiber, transfer.from, transfer.bytes, Access::GetSource);
    access(fiber, transfer.to, transfer.bytes, Access::Get);
    return;
  }
  // Fences do not order gets: each is alone, and only quiet waits for it.
  Channel &own = channel(fiber, -1, true);
  own.issued.push_back(fiber.thread.time);
  checkAndRecord(fiber.launch->rank, transfer.from, transfer.bytes,
                 addRecord(own.thread, 1, fiber.loc, Access::GetSource),
                 fiber.thread.clock);
  AccessId get = addRecord(own.thread, 1, fiber.loc, Access::Get);
  checkAndRecord(fiber.launch->rank, transfer.to, transfer.bytes, get,
                 fiber.thread.clock);
  addLocalTransfer(fiber, transfer.to, transfer.bytes, get);
  tick(fiber.thread);
}

} // namespace ditron::sim
