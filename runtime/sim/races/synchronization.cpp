// The clocks that signals, atomics and barriers hand from thread to thread.
#include "machine.h"
#include "races/race_detector.h"
#include "report/text.h"

namespace ditron::sim {

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

} // namespace ditron::sim
