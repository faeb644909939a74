// Packets in the race detector.
//
// Each packet is delivered whole, in any order. A program that has read a
// message has all of its packets, and acquires of the sender only its earlier
// reads of packets, which were complete because a program polls until they are.
// The sender's other stores are not ordered by a packet, unless there is a
// fence on both sides.
#include "machine.h"
#include "races/race_detector.h"

namespace ditron::sim {

/// The part of a clock that a packet releases: reads of packets.
VectorClock RaceDetector::packetsReadBefore(const VectorClock &clock) const {
  VectorClock reads(numRanks);
  VectorClock::Counts &counts = reads.packetsRead;
  counts.resize(std::max(clock.launches.size(), clock.packetsRead.size()));
  for (size_t queue = 0; queue < counts.size(); ++queue) {
    counts[queue] =
        std::max(VectorClock::of(clock.launches, int32_t(queue)),
                 VectorClock::of(clock.packetsRead, int32_t(queue)));
  }
  auto keepReaders = [&](const VectorClock::Entries &entries) {
    for (const auto &[thread, time] : entries) {
      if (threads[thread].readsPackets) {
        reads.raise(thread, time);
      }
    }
  };
  keepReaders(clock.entries);
  for (const auto &base : clock.bases) {
    keepReaders(*base);
  }
  return reads;
}

void RaceDetector::sendPackets(Fiber &fiber, const void *to, size_t bytes,
                               int32_t target, int64_t epoch) {
  ThreadState &thread = fiber.thread;
  ThreadInfo info = threads[thread.id];
  info.isRemote = target != info.rank;
  auto transfers = ThreadId(threads.size());
  threads.push_back(info);
  AccessId id = addRecord(transfers, 1, fiber.loc, Access::PacketWrite);
  auto address = reinterpret_cast<uintptr_t>(to);
  spaces[0].initialized.markInitialized(address, bytes);
  spaces[0].shadow.forEach(
      address, bytes, [&](ShadowMemory::Cell &cell, uintptr_t at) {
        bool isRead = false;
        forEachReader(cell.read, [&](AccessId reader) {
          if (!isRaceFree(reader, id, thread.clock)) {
            reportRace(fiber.launch->rank, at, reader, id);
          }
          isRead |= records[reader].kind == Access::PacketRead;
        });
        // An earlier packet has to be read, not just delivered, or it is lost.
        bool isPacket =
            cell.write && records[cell.write].kind == Access::PacketWrite;
        if (cell.write &&
            !(isPacket ? isRead : isRaceFree(cell.write, id, thread.clock))) {
          reportRace(fiber.launch->rank, at, cell.write, id);
        }
        cell.write = id;
        cell.read = 0;
      });
  messages[id] = {epoch, packetsReadBefore(thread.clock), thread.fenceClock};
  tick(thread);
}

void RaceDetector::readPackets(Fiber &fiber, const void *packets, size_t bytes,
                               int64_t epoch) {
  ThreadState &thread = fiber.thread;
  if (!thread.packetReader) {
    thread.packetReader = ThreadId(threads.size());
    threads.push_back(threads[thread.id]);
    threads.back().readsPackets = true;
  }
  thread.clock.raise(thread.packetReader, thread.time);
  AccessId id = addRecord(thread.packetReader, thread.time, fiber.loc,
                          Access::PacketRead);
  AccessId checked = 0;
  std::vector<const VectorClock *> fences; // of the senders
  spaces[0].shadow.forEach(
      reinterpret_cast<uintptr_t>(packets), bytes,
      [&](ShadowMemory::Cell &cell, uintptr_t at) {
        if (cell.write && cell.write != checked) {
          auto message = messages.find(cell.write);
          if (message != messages.end() && message->second.epoch == epoch) {
            thread.clock.join(message->second.packetsRead);
            if (message->second.fenceClock) {
              fences.push_back(&*message->second.fenceClock);
            }
          } else if (message != messages.end() ||
                     !isRaceFree(cell.write, id, thread.clock)) {
            reportRace(fiber.launch->rank, at, cell.write, id);
          }
          checked = cell.write;
        }
        cell.read = addReader(cell.read, id, thread.clock);
      });
  for (const VectorClock *fence : fences) {
    if (!thread.observed) {
      thread.observed.emplace(numRanks);
    }
    thread.observed->join(*fence);
  }
}

std::optional<ProgramReport> RaceDetector::packetSender(const void *packet) {
  std::optional<ProgramReport> sender;
  spaces[0].shadow.forEach(reinterpret_cast<uintptr_t>(packet), 1,
                           [&](ShadowMemory::Cell &cell, uintptr_t) {
                             if (messages.count(cell.write)) {
                               sender = report(cell.write);
                             }
                           });
  return sender;
}

} // namespace ditron::sim
