#include "scheduler/spin_detector.h"

#include "scheduler/fiber.h"

#include <algorithm>
#include <utility>

namespace ditron::sim {

/// Idle reads, of all programs, after which spinning ones are woken.
constexpr uint64_t readsPerCheck = 4096;
/// The same for each program: slow ones must get to it, too.
constexpr uint64_t readsPerCheckOfEach = 256;
/// Idle reads of a program in this epoch for it to count as one that spins.
constexpr uint64_t fewestIdleReads = 8;
/// Idle reads of each program before it is a livelock: it might be a loop that
/// reads the same value for long and then ends.
constexpr uint64_t limitOfEach = 16384;
/// The limit is that much higher when loops write as well,
constexpr uint64_t writersFactor = 4;
/// and when they are known to terminate: their trip count may be large.
constexpr uint64_t boundedFactor = 64;

void SpinDetector::progress() {
  boundedAccesses = 0;
  resetIdleReads();
}

void SpinDetector::resetIdleReads() {
  idleReads = 0;
  nextCheck = readsPerCheck;
  ++epoch;
  hasWritten = false;
}

/// Whether an access that is nothing new is progress.
bool SpinDetector::makesProgress(const Fiber &fiber) {
  if (fiber.mayRepeat || ++boundedAccesses > boundedFactor * limit) {
    return false;
  }
  resetIdleReads();
  return true;
}

bool SpinDetector::limitReached(size_t programs) const {
  return idleReads >= std::max(hasWritten ? writersFactor * limit : limit,
                               limitOfEach * programs);
}

bool SpinDetector::isSpinning(const Fiber &fiber) const {
  return fiber.history.epoch == epoch &&
         fiber.history.idleReads >= fewestIdleReads;
}

void SpinDetector::startNewEpoch(size_t programs) {
  ++epoch;
  nextCheck = idleReads + readsPerCheck + readsPerCheckOfEach * programs;
}

SpinDetector::Value SpinDetector::read(Fiber &fiber, const void *address,
                                       uint64_t bits, int32_t bytes) {
  AccessHistory &history = fiber.history;
  AccessHistory::Read *read = history.find(address, bytes);
  if (!read) {
    if (history.reads.size() == AccessHistory::maxReads) {
      // A sequence of reads, or a loop over more addresses than are kept: not
      // recognised as a spin loop.
      history.clear();
    }
    history.add({address, bytes, 0, ++history.totalReads, bits, {}});
    history.previous = 0;
    history.restart();
    progress();
    return Value::New;
  }
  history.places += read->when <= history.begin;
  history.previous = read->when;
  read->when = ++history.totalReads;
  bool same = read->bits == bits, earlier = !same && read->had(bits);
  if (!same) {
    read->earlier[read->changes++ % read->earlier.size()] = read->bits;
    read->bits = bits;
    history.restart();
  }
  if (!same && !earlier) {
    progress();
    return Value::New;
  }
  bool progresses = makesProgress(fiber);
  if (std::exchange(history.epoch, epoch) != epoch) {
    history.idleReads = 0;
  }
  history.idleReads += !progresses;
  idleReads += !progresses;
  return same ? Value::Unchanged : Value::Earlier;
}

void SpinDetector::write(Fiber &fiber, const void *address) {
  AccessHistory &history = fiber.history;
  auto end = history.writes.begin() + history.numWrites;
  auto write =
      std::find_if(history.writes.begin(), end,
                   [&](const auto &write) { return write.address == address; });
  if (write != end) {
    write->when = history.totalReads;
    history.restart();
    if (!makesProgress(fiber)) {
      hasWritten = true;
    }
    return;
  }
  if (history.numWrites == int32_t(history.writes.size())) {
    history.clear();
  }
  history.writes[history.numWrites++] = {address, history.totalReads};
  history.restart();
  progress();
}

void SpinDetector::effect(Fiber &fiber) {
  fiber.history.clear();
  progress();
}

} // namespace ditron::sim
