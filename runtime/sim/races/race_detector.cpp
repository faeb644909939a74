// The clocks of programs, host code, transfers and signals.
#include "races/race_detector.h"

#include "machine.h"
#include "report/text.h"

namespace ditron::sim {

/// Later than any time. Host code and streams belong to no launch: theirs is
/// one that never completes.
constexpr uint32_t never = UINT32_MAX;

RaceDetector::RaceDetector(const Heap &heap, int32_t numRanks,
                           int32_t ranksPerNode)
    : heap(heap), numRanks(numRanks), ranksPerNode(ranksPerNode),
      hosts(numRanks), spaces(numRanks + 1), inFlight(numRanks),
      queuesOf(numRanks), operands(numRanks) {
  sources.push_back({"", {}});
  for (int32_t rank = 0; rank < numRanks; ++rank) {
    hosts[rank].clock = VectorClock(numRanks);
    queues.push_back({rank, "", &hosts[rank]});
    queuesOf[rank].push_back(rank);
  }
  resetAll();
}

/// Everything so far happened before everything that follows: nothing of it can
/// race again.
void RaceDetector::resetAll() {
  threads.clear();
  records.assign(1, {});
  readerSets.assign(1, {});
  grown.clear();
  spaces[0].shadow.clear();
  spaces[0].syncVars.clear();
  ++numResets;
  for (size_t queue = 0; queue < queues.size(); ++queue) {
    resetQueue(int32_t(queue));
  }
}

/// The host code or stream of a queue starts as a new thread.
void RaceDetector::resetQueue(int32_t queue) {
  ThreadState &thread = *queues[queue].thread;
  thread.id = ThreadId(threads.size());
  threads.push_back({queues[queue].rank,
                     never,
                     queues[queue].source,
                     {0, 0, 0},
                     false,
                     queue});
  thread.time = 1;
  thread.recent.clear();
  thread.clock.entries.clear();
  thread.clock.bases.clear();
  thread.clock.raise(thread.id, thread.time);
  thread.fencedPuts.clear();
  queues[queue].numSynchronized += queues[queue].unsynchronized.size();
  queues[queue].unsynchronized.clear();
}

bool RaceDetector::hasCompleted(const ThreadInfo &thread,
                                const VectorClock &clock) const {
  const auto &counts = thread.isRemote ? clock.delivered : clock.launches;
  return VectorClock::of(counts, thread.queue) > thread.launch ||
         (thread.readsPackets &&
          VectorClock::of(clock.packetsRead, thread.queue) > thread.launch);
}

bool RaceDetector::happensBefore(ThreadId thread, uint32_t time,
                                 const VectorClock &clock) const {
  return hasCompleted(threads[thread], clock) || clock.of(thread) >= time;
}

/// What a thread does from here on is not before what has acquired its clock.
void RaceDetector::tick(ThreadState &thread) {
  thread.clock.raise(thread.id, ++thread.time);
  thread.recent.clear();
}

/// Drop the entries of threads that have completed by the counts of queues.
void RaceDetector::prune(VectorClock &clock) const {
  clock.flatten();
  auto completed = [&](const auto &entry) {
    return hasCompleted(threads[entry.first], clock);
  };
  clock.entries.erase(
      std::remove_if(clock.entries.begin(), clock.entries.end(), completed),
      clock.entries.end());
}

void RaceDetector::launched(const Launch &launch) {
  Queue &queue = queues[queueOf(launch)];
  ThreadState &owner = *queue.thread;
  auto key = reinterpret_cast<const void *>(launch.kernel);
  auto [found, fresh] = sourceOf.emplace(key, int32_t(sources.size()));
  if (fresh) {
    sources.push_back({launch.name, launch.locations});
  }
  owner.clock.flatten();
  active[launch.id] = {queue.launches++, found->second, owner.clock.shared(),
                       VectorClock(numRanks)};
  addOperands(launch.rank, launch.operands);
  tick(owner);
}

void RaceDetector::programStarted(Fiber &fiber) {
  const ActiveLaunch &launch = active.at(fiber.launch->id);
  ThreadState &thread = fiber.thread;
  thread = ThreadState();
  thread.id = ThreadId(threads.size());
  threads.push_back({fiber.launch->rank, launch.number, launch.source,
                     fiber.pid, false, queueOf(*fiber.launch)});
  thread.clock = launch.start;
  tick(thread);
}

void RaceDetector::programEnded(Fiber &fiber) {
  active.at(fiber.launch->id).end.join(fiber.thread.clock);
}

void RaceDetector::launchCompleted(const Launch &launch) {
  auto found = active.find(launch.id);
  int32_t queue = queueOf(launch);
  VectorClock &clock = queues[queue].thread->clock;
  clock.join(found->second.end);
  uint32_t number = found->second.number;
  active.erase(found);
  VectorClock::set(clock.launches, queue, number + 1);
  // When the programs have waited for all their transfers, so has the launch.
  InFlight &sent = inFlight[queue];
  bool delivered = std::all_of(
      sent.channels.begin(), sent.channels.end(), [&](const Channel &c) {
        return happensBefore(c.thread, uint32_t(c.issued.size()), clock);
      });
  if (delivered) {
    VectorClock::set(clock.delivered, queue, number + 1);
    sent.clear();
  }
  sent.numCompleted = sent.channels.size();
  sent.byIssuer.clear();
  prune(clock);
  if (!launch.stream) {
    resetLocalInitialized(launch.rank);
  }
  resetLocalMemory(launch.rank);
}

void RaceDetector::hostBarrier(const std::vector<int32_t> &ranks, bool quiet) {
  VectorClock all(numRanks);
  for (int32_t rank : ranks) {
    VectorClock &clock = hosts[rank].clock;
    if (quiet) {
      for (int32_t queue : queuesOf[rank]) {
        VectorClock::set(clock.delivered, queue,
                         VectorClock::of(clock.launches, queue));
        inFlight[queue].clear();
      }
    }
    all.join(clock);
  }
  prune(all);
  for (int32_t rank : ranks) {
    hosts[rank].clock = all;
    tick(hosts[rank]);
  }
  bool allSynchronized = true;
  for (size_t queue = numRanks; queue < queues.size(); ++queue) {
    allSynchronized &=
        numSynchronized(int32_t(queue)) == queues[queue].numEnqueued;
  }
  if (quiet && int32_t(ranks.size()) == numRanks && active.empty() &&
      allSynchronized) {
    resetAll();
  }
}

// --- signals and atomics ---------------------------------------------------

RaceDetector::AddressSpace &RaceDetector::spaceOf(int32_t rank, const void *p) {
  return spaces[heap.holds(p) ? 0 : 1 + rank];
}

bool RaceDetector::reaches(const Release &release, int32_t rank,
                           Scope scope) const {
  switch (std::min(release.scope, scope)) {
  case Scope::Gpu:
    return release.rank == rank;
  case Scope::Node:
    return release.rank / ranksPerNode == rank / ranksPerNode;
  case Scope::World:
    return true;
  }
  return false;
}

template <typename Visit>
void RaceDetector::forEachRelease(const Fiber &fiber, const void *p,
                                  size_t bytes, Scope scope, Visit visit) {
  int32_t rank = fiber.launch->rank;
  spaceOf(rank, p).syncVars.forEach(p, bytes, [&](const SyncVar &var) {
    for (const Release &release : var.releases) {
      if (reaches(release, rank, scope)) {
        visit(release);
      }
    }
  });
}

void RaceDetector::acquire(Fiber &fiber, const void *p, size_t bytes,
                           Scope scope) {
  forEachRelease(fiber, p, bytes, scope, [&](const Release &release) {
    fiber.thread.acquire(release.clock, release.scope);
  });
}

void RaceDetector::acquireAtFence(Fiber &fiber, const void *p, size_t bytes,
                                  Scope scope) {
  std::optional<VectorClock> &observed = fiber.thread.observed;
  forEachRelease(fiber, p, bytes, scope, [&](const Release &release) {
    if (observed) {
      observed->join(release.clock);
    } else {
      observed = release.clock;
    }
  });
}

void RaceDetector::release(Fiber &fiber, const void *p, size_t bytes,
                           Scope scope) {
  int32_t rank = fiber.launch->rank;
  spaceOf(rank, p).syncVars.at(p, bytes).publish(
      {rank, scope, fiber.thread.clock});
  if (scope != Scope::Gpu) {
    fiber.thread.seenBeyondGpu.clear();
  }
  tick(fiber.thread);
}

void RaceDetector::releaseFromFence(Fiber &fiber, const void *p, size_t bytes,
                                    Scope scope) {
  int32_t rank = fiber.launch->rank;
  if (fiber.thread.fenceClock) {
    spaceOf(rank, p).syncVars.at(p, bytes).publish(
        {rank, scope, *fiber.thread.fenceClock});
  }
}

std::function<void()> RaceDetector::atomicStore(Fiber &fiber, const void *p,
                                                size_t bytes, Scope scope,
                                                bool releases) {
  ThreadState &thread = fiber.thread;
  std::optional<VectorClock> clock =
      releases ? thread.clock : thread.fenceClock;
  if (releases) {
    if (scope != Scope::Gpu) {
      thread.seenBeyondGpu.clear();
    }
    tick(thread);
  }
  return [this, p, bytes, scope, rank = fiber.launch->rank,
          clock = std::move(clock)] {
    SyncVars &syncVars = spaceOf(rank, p).syncVars;
    auto first = reinterpret_cast<uintptr_t>(p);
    syncVars.forEach(p, bytes, [&](SyncVar &var) {
      if (var.address >= first && var.address + var.bytes <= first + bytes) {
        var.releases.clear();
      }
    });
    if (clock) {
      syncVars.at(p, bytes).publish({rank, scope, *clock});
    }
  };
}

/// An acquire and release fence: it acquires what earlier relaxed reads have
/// observed, and later relaxed writes release what is before it.
void RaceDetector::memoryFence(Fiber &fiber) {
  ThreadState &thread = fiber.thread;
  if (thread.observed) {
    thread.clock.join(*thread.observed);
    thread.observed.reset();
  }
  thread.fenceClock = thread.clock;
  thread.seenBeyondGpu.clear();
  tick(thread);
}

std::optional<ProgramReport>
RaceDetector::deliverSignal(const Transfer &transfer) {
  const SignalWrite &signal = transfer.signal;
  SyncVar &sync = spaces[0].syncVars.at(signal.address, sizeof *signal.address);
  const AccessRecord &after = records[transfer.message->id];
  const VectorClock &clock = transfer.message->clock;
  std::optional<ProgramReport> wrong;
  int64_t sum;
  if (signal.op == SignalOp::Add) {
    if (__builtin_add_overflow(*signal.address, signal.value, &sum)) {
      wrong = report(transfer.message->id);
      wrong->what = format(heap.nameOf(signal.address), " wraps: adding ",
                           signal.value, " to ", *signal.address);
      wrong->hint = "signals only grow: 64 bits are enough for steps of one";
    }
  } else if (signal.value < *signal.address && sync.latest &&
             !happensBefore(records[sync.latest].thread,
                            records[sync.latest].time, clock)) {
    wrong = report(transfer.message->id);
    wrong->what = format(
        heap.nameOf(signal.address), " of rank ", transfer.target,
        " goes backwards, from ", *signal.address, " to ", signal.value,
        ": another update, which nothing orders with this one, came first");
    wrong->hint = onTwoQueues(sync.latest, transfer.message->id)
                      ? orderStreams
                      : "order the two: dl.quiet() (or dl.fence()) after the "
                        "first, or let "
                        "the receiver acknowledge it in between";
    wrong->others.push_back(report(sync.latest));
    wrong->others.back().what = "the one that came first";
  }
  if (wrong) {
    wrong->kind = "signal";
    return wrong;
  }
  if (signal.op == SignalOp::Set) {
    sync.releases.clear();
  }
  sync.publish({threads[after.thread].rank, transfer.message->scope, clock});
  sync.latest = transfer.message->id;
  return std::nullopt;
}

std::optional<ProgramReport> RaceDetector::senderOf(const void *signal) {
  std::optional<ProgramReport> sender;
  spaces[0].syncVars.forEach(signal, 1, [&](const SyncVar &var) {
    if (var.latest) {
      sender = report(var.latest);
    }
  });
  return sender;
}

// --- transfers and barriers ------------------------------------------------

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

/// What a NIC reads has to be seen beyond the GPU.
void RaceDetector::checkReadByNic(Fiber &fiber, const Transfer &transfer) {
  const ThreadState &thread = fiber.thread;
  if (thread.seenBeyondGpu.empty() ||
      transfer.origin / ranksPerNode == transfer.target / ranksPerNode) {
    return;
  }
  try {
    checkAndRecord(
        fiber.launch->rank, transfer.from, transfer.bytes,
        addRecord(thread.id, thread.time, fiber.loc, Access::PutSource),
        thread.clockBeyondGpu());
  } catch (Failure &failure) {
    failure.hint =
        "the put goes to another node, by a NIC, and the signal between the "
        "two has scope=\"gpu\", that of programs of this GPU: give it "
        "scope=\"world\", or call dl.fence() before the put";
    throw;
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
    checkReadByNic(fiber, transfer);
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

void RaceDetector::enterBarrier(Fiber &fiber, Team &team) {
  if (team.arrived == 0) {
    team.clock = VectorClock(numRanks);
  }
  team.clock.join(fiber.thread.clock);
}

void RaceDetector::leaveBarrier(Fiber &fiber, const Team &team) {
  fiber.thread.clock.join(team.clock);
  tick(fiber.thread);
}

} // namespace ditron::sim
