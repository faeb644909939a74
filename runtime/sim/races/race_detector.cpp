// The clocks of host code, launches and their programs.
#include "races/race_detector.h"

#include "machine.h"

namespace ditron::sim {

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
  thread.seenBeyondGpu.clear();
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
                       VectorClock(numRanks), owner.seenBeyondGpu};
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
  thread.seenBeyondGpu = launch.seenBeyondGpu;
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
  if (!launch.isCopy) { // a kernel's end publishes what its programs have seen
    queues[queue].thread->seenBeyondGpu.clear();
  }
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

} // namespace ditron::sim
