// The clocks of streams: each is a thread whose operations are in order, and
// the host code that enqueues an operation happens before it.
#include "machine.h"
#include "races/race_detector.h"

namespace ditron::sim {

/// Operands that are kept per rank, to name addresses in reports.
constexpr size_t maxOperands = 128;

int32_t RaceDetector::queueOf(const Launch &launch) {
  return launch.queue < 0 ? launch.rank : launch.queue;
}

int32_t RaceDetector::addStream(Fiber &fiber, const std::string &label) {
  auto queue = int32_t(queues.size());
  int32_t rank = fiber.launch->rank;
  queues.push_back({rank, label, &fiber.thread, int32_t(sources.size())});
  queuesOf[rank].push_back(queue);
  sources.push_back({"", {}});
  inFlight.emplace_back();
  fiber.thread.clock = VectorClock(numRanks);
  resetQueue(queue);
  return queue;
}

VectorClock RaceDetector::enqueued(int32_t queue) {
  ++queues[queue].numEnqueued;
  ThreadState &host = hosts[queues[queue].rank];
  VectorClock clock = host.clock;
  tick(host);
  return clock;
}

void RaceDetector::streamOpBegins(Fiber &fiber, const VectorClock &enqueued) {
  std::vector<std::string> &lines =
      sources[queues[queueOf(*fiber.launch)].source].locations;
  if (lines.size() < fiber.launch->locations.size()) {
    lines = fiber.launch->locations;
  }
  fiber.thread.clock.join(enqueued);
  tick(fiber.thread);
}

void RaceDetector::streamOpEnds(Fiber &fiber) {
  prune(fiber.thread.clock);
  queues[queueOf(*fiber.launch)].unsynchronized.push_back(fiber.thread.time);
}

void RaceDetector::synchronized(int32_t queue) {
  VectorClock &clock = hosts[queues[queue].rank].clock;
  clock.join(queues[queue].thread->clock);
  prune(clock);
  resetLocalMemory(queues[queue].rank);
}

uint64_t RaceDetector::numSynchronized(int32_t number) {
  Queue &queue = queues[number];
  uint32_t time = hosts[queue.rank].clock.of(queue.thread->id);
  while (!queue.unsynchronized.empty() &&
         queue.unsynchronized.front() <= time) {
    queue.unsynchronized.pop_front();
    ++queue.numSynchronized;
    resetLocalInitialized(queue.rank);
  }
  return queue.numSynchronized;
}

/// Host code may have freed what completed operations used: the memory may be
/// another tensor's by now.
void RaceDetector::resetLocalInitialized(int32_t rank) {
  spaces[1 + rank].initialized.clear();
}

/// Forget the accesses to a rank's own memory, unless something runs there that
/// its host code has not waited for.
void RaceDetector::resetLocalMemory(int32_t rank) {
  for (int32_t queue : queuesOf[rank]) {
    if (numSynchronized(queue) < queues[queue].numEnqueued) {
      return;
    }
  }
  spaces[1 + rank] = AddressSpace();
  keepLocalTransfers(rank);
}

void RaceDetector::addLocalTransfer(const Fiber &fiber, const void *p,
                                    size_t bytes, AccessId id) {
  if (!heap.holds(p) && threads[records[id].thread].isRemote) {
    inFlight[queueOf(*fiber.launch)].local.push_back(
        {reinterpret_cast<uintptr_t>(p), bytes, id});
  }
}

bool RaceDetector::hasLocalTransfers(int32_t rank) const {
  return std::any_of(queuesOf[rank].begin(), queuesOf[rank].end(),
                     [&](int32_t q) { return !inFlight[q].local.empty(); });
}

/// Enter the nonblocking transfers that the host code does not know to be over,
/// and whatever the memory is by then: that they still access it is a mistake.
void RaceDetector::keepLocalTransfers(int32_t rank) {
  std::deque<Operand> named;
  named.swap(operands[rank]);
  for (int32_t queue : queuesOf[rank]) {
    std::vector<LocalAccess> &local = inFlight[queue].local;
    auto isOver = [&](const LocalAccess &access) {
      const AccessRecord &record = records[access.id];
      return happensBefore(record.thread, record.time, hosts[rank].clock);
    };
    local.erase(std::remove_if(local.begin(), local.end(), isOver),
                local.end());
    for (const LocalAccess &access : local) {
      spaces[1 + rank].shadow.forEach(
          access.address, access.bytes,
          [&](ShadowMemory::Cell &cell, uintptr_t) {
            if (isWrite(records[access.id].kind)) {
              cell = {access.id, 0};
            } else {
              cell.read = addReader(cell.read, access.id, hosts[rank].clock);
            }
          });
      for (const Operand &operand : named) {
        bool known = std::any_of(operands[rank].begin(), operands[rank].end(),
                                 [&](const Operand &other) {
                                   return other.address == operand.address &&
                                          other.name == operand.name;
                                 });
        if (!known && operand.address < access.address + access.bytes &&
            access.address < operand.address + operand.bytes) {
          operands[rank].push_back(operand);
        }
      }
    }
  }
}

void RaceDetector::addOperands(int32_t rank,
                               const std::vector<Operand> &added) {
  std::deque<Operand> &known = operands[rank];
  for (const Operand &operand : added) {
    auto same = [&](const Operand &other) {
      return other.address == operand.address && other.name == operand.name &&
             other.bytes == operand.bytes;
    };
    known.erase(std::remove_if(known.begin(), known.end(), same), known.end());
    known.push_front(operand);
  }
  while (known.size() > maxOperands) {
    known.pop_back();
  }
}

std::shared_ptr<MessageClock>
RaceDetector::streamSignal(Fiber &fiber, const Transfer &transfer) {
  ThreadState &thread = fiber.thread;
  thread.seenBeyondGpu.clear();
  auto message = std::make_shared<MessageClock>();
  message->clock = thread.clock;
  message->clock.joinEntries(thread.fencedPuts[transfer.target].entries);
  message->id = addRecord(thread.id, thread.time, fiber.loc, Access::Signal);
  checkAndRecord(fiber.launch->rank, transfer.signal.address, sizeof(int64_t),
                 message->id, message->clock);
  return message;
}

} // namespace ditron::sim
