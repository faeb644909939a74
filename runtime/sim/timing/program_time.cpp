// How long what programs and streams do takes: products, bytes, fences, copies.
#include "timing/program_time.h"

#include "scheduler/fiber.h"
#include "scheduler/launch.h"
#include "scheduler/scheduler.h"
#include "timing/clock.h"

#include <algorithm>

namespace ditron::sim {

void Clock::spend(Fiber &fiber, Cost cost, double amount, int32_t peer,
                  const void *address) {
  ProgramTime &own = *fiber.time;
  double sms = model.sms * own.sharing;
  switch (cost) {
  case Cost::Dot8:
    own.operations += amount;
    own.dots += amount * sms / model.dot8;
    return;
  case Cost::Dot16:
    own.operations += amount;
    own.dots += amount * sms / model.dot16;
    return;
  case Cost::Dot32:
    own.operations += amount;
    own.dots += amount * sms / model.dot32;
    return;
  case Cost::Vector:
    own.vector += amount * sms / model.vector;
    return;
  case Cost::Special:
    own.special += amount * sms / model.special;
    return;
  case Cost::Loop:
    own.loops.push_back({own.operations + amount, 0, 0});
    ++own.wave;
    return;
  case Cost::Latency:
    own.loops.back().latency += amount;
    return;
  case Cost::Operand:
    if (peer == fiber.launch->rank) {
      own.operands.push_back(
          operandReads[own.record].read(address, amount, own.wave));
      ++own.loops.back().operands;
      return;
    }
    [[fallthrough]]; // of another rank's memory no cache holds anything
  case Cost::Load:
    own.bytes[peer].loaded += amount;
    return;
  case Cost::Store:
    ProgramBytes &bytes = own.bytes[peer];
    double hidden = (own.dots - bytes.at) * rate(fiber, peer);
    bytes.stored = std::max(0.0, bytes.stored - hidden) + amount;
    bytes.at = own.dots;
    return;
  }
}

void Clock::spendTime(Fiber &fiber, double ns) { fiber.time->fixed += ns; }

void Clock::spendFence(Fiber &fiber, Scope scope) {
  fiber.time->fixed += scope == Scope::Gpu ? model.local : model.fence;
  fiber.time->fences |= scope != Scope::Gpu;
}

/// What a program can count on for its stores, when all do the same.
double Clock::rate(const Fiber &fiber, int32_t peer) const {
  double most =
      fiber.launch->rank == peer
          ? std::min(model.hbmSm, model.hbm / model.sms)
          : std::min(model.storeSm, model.link * model.storeShare / model.sms);
  return most / fiber.time->sharing;
}

void Clock::transfer(Fiber &fiber, int32_t peer, double bytes, bool store,
                     int64_t activity) {
  if (bytes <= 0) {
    return;
  }
  int32_t rank = fiber.launch->rank;
  ++fiber.time->outstanding;
  auto start = [&](Port port, std::array<int32_t, 3> resources, double bytes,
                   double cap, const char *kind) {
    access(fiber, port, {resources, bytes, cap, [this, &fiber, kind, activity] {
                           part(fiber, kind, activity);
                         }});
  };
  if (peer == rank) {
    start(Own, {of(rank, Memory), -1, -1}, bytes, model.hbmSm, "memory");
    return;
  }
  activities[activity].peer = peer;
  double share = store ? model.storeShare : model.loadShare;
  double cap = store ? model.storeSm : model.loadSm;
  int32_t from = store ? rank : peer, to = store ? peer : rank;
  start(store ? Stores : Loads, {of(from, Out), of(to, In), pair(from, to)},
        bytes / share, cap / share, store ? "store" : "load");
}

Clock::Queue *Clock::queueOf(const Fiber &fiber, Port port) {
  int64_t sm = int64_t(fiber.launch->rank) * model.sms + fiber.time->sm;
  return fiber.time->sm < 0 ? nullptr : &queues[sm * numPorts + port];
}

void Clock::access(const Fiber &fiber, Port port, Access access) {
  Queue *queue = queueOf(fiber, port);
  if (!queue) {
    flows.start(access.resources, access.bytes, access.cap,
                std::move(access.done));
    return;
  }
  queue->waiting.push_back(std::move(access));
  if (!queue->busy) {
    serve(*queue);
  }
}

void Clock::serve(Queue &queue) {
  queue.busy = !queue.waiting.empty();
  if (!queue.busy) {
    return;
  }
  Access next = std::move(queue.waiting.front());
  queue.waiting.pop_front();
  auto served = [this, &queue, done = std::move(next.done)] {
    done();
    serve(queue);
  };
  if (next.bytes > 0) {
    flows.start(next.resources, next.bytes, next.cap, served);
  } else {
    schedule(time, served);
  }
}

/// Wait for the stores to peers that the SM has issued, of whichever program.
void Clock::awaitStores(Fiber &fiber) {
  Queue *stores = queueOf(fiber, Stores);
  if (!stores || !stores->busy) {
    return;
  }
  int64_t activity = begin("fence", fiber.launch->rank, -1, fiber.time->record,
                           fiber.time->last);
  fiber.time->outstanding = 1;
  if (onActivity) {
    onActivity(fiber, "fence", true);
  }
  stores->waiting.push_back({{-1, -1, -1}, 0, 0, [this, &fiber, activity] {
                               part(fiber, "fence", activity);
                             }});
  scheduler.leave(fiber);
}

/// How long products take that would take `dots` ns at the full rate, which a
/// GPU keeps up for a while only.
double Clock::slowed(const Fiber &fiber, double dots) const {
  if (model.sustained >= 1 || fiber.time->record < 0) {
    return dots;
  }
  double elapsed = time - launches[fiber.time->record].started;
  double fast = std::clamp(model.burst - elapsed, 0.0, dots);
  return fast + (dots - fast) / model.sustained;
}

/// Products hide the loads, and earlier stores; what was stored last is passed
/// behind them. Without products all streams at once, beside the operations on
/// elements. What a fence takes comes last: it waits for the stores.
void Clock::settle(Fiber &fiber) {
  ProgramTime &own = *fiber.time;
  if (!own.hasPending()) {
    return;
  }
  int32_t rank = fiber.launch->rank;
  double dots = slowed(fiber, std::exchange(own.dots, 0)),
         elements = std::max(std::exchange(own.vector, 0),
                             std::exchange(own.special, 0)),
         fixed = std::exchange(own.fixed, 0);
  // Neither is hidden: programs of an SM seldom do the one beside the other.
  double busy = std::max(dots + elements, takeDue(own));
  bool fences = std::exchange(own.fences, false);
  auto bytes = std::move(own.bytes);
  own.bytes.clear();
  if (own.record >= 0) {
    launches[own.record].compute += dots;
  }
  auto pass = [&](const char *kind) {
    if (own.outstanding > 0) {
      if (onActivity) {
        onActivity(fiber, kind, true);
      }
      scheduler.leave(fiber);
    }
  };
  if (dots > 0) {
    double timer = busy + model.fill;
    int64_t activity = begin("compute", rank, -1, own.record, own.last);
    own.outstanding = 1;
    for (const auto &[peer, amounts] : bytes) {
      // What is hidden however many programs share the memory needs no flow.
      if (peer != rank || amounts.loaded > timer * rate(fiber, rank)) {
        transfer(fiber, peer, amounts.loaded, false, activity);
      }
    }
    auto end = [this, &fiber, activity] { part(fiber, "compute", activity); };
    if (own.due == 0) {
      schedule(time + timer, end);
    } else {
      // By then the other programs of the wave have said what they read.
      schedule(time + model.fill, [this, &fiber, activity, busy, end] {
        // Far less than what all programs can count on needs no flow.
        double operands = fromMemory(*fiber.time);
        if (operands > 0.75 * busy * rate(fiber, fiber.launch->rank)) {
          transfer(fiber, fiber.launch->rank, operands, false, activity);
        }
        schedule(time + busy, end);
      });
    }
    ++computing[rank];
    pass("compute");
    --computing[rank];
  }
  if (!bytes.empty() || (dots <= 0 && busy > 0)) {
    int64_t activity = begin("memory", rank, -1, own.record, own.last);
    for (const auto &[peer, amounts] : bytes) {
      if (dots <= 0) {
        transfer(fiber, peer, amounts.loaded, false, activity);
      }
      transfer(fiber, peer, amounts.stored, true, activity);
    }
    if (dots <= 0 && busy > 0) {
      ++own.outstanding;
      schedule(time + busy, [this, &fiber, activity] {
        part(fiber, "arithmetic", activity);
      });
    }
    pass(dots > 0 ? "store" : "memory");
  }
  if (fences) {
    awaitStores(fiber);
  }
  sleep(fiber, fences ? "fence" : "latency", fixed);
}

/// ns of the loads of loops that are due; their operands become so, too.
double Clock::takeDue(ProgramTime &own) {
  double latency = 0;
  auto loop = own.loops.begin();
  for (; loop != own.loops.end() && loop->until <= own.operations; ++loop) {
    latency += loop->latency;
    own.due += loop->operands;
  }
  own.loops.erase(own.loops.begin(), loop);
  return latency;
}

/// Bytes that a program reads from memory of the operands that are due.
double Clock::fromMemory(ProgramTime &own) const {
  const OperandReads &reads = operandReads.at(own.record);
  auto end = own.operands.begin() + ptrdiff_t(std::exchange(own.due, 0));
  double bytes = 0;
  for (auto number = own.operands.begin(); number != end; ++number) {
    bytes += reads.fromMemory(*number, model.cache);
  }
  own.operands.erase(own.operands.begin(), end);
  return bytes;
}

void Clock::move(Fiber &fiber, int32_t peer, double bytes, bool store) {
  if (sameNode(fiber.launch->rank, peer)) {
    spend(fiber, store ? Cost::Store : Cost::Load, bytes, peer);
  } else {
    spendTime(fiber, model.nicPost);
  }
  settle(fiber);
}

void Clock::copy(Fiber &fiber, int32_t peer, double bytes, bool push) {
  int32_t rank = fiber.launch->rank;
  double least = time + (fiber.time->idle ? model.copyLeast : 0);
  bool wasIdle = std::exchange(fiber.time->idle, false);
  sleep(fiber, "copy setup", wasIdle ? model.copySetup : model.copyNext);
  int32_t from = push ? rank : peer, to = push ? peer : rank;
  int64_t activity =
      begin("copy", rank, peer, fiber.time->record, fiber.time->last);
  fiber.time->outstanding = 1;
  bool isBusy = computing[rank] > 0 || computing[peer] > 0;
  double share = model.copyShare * (isBusy ? model.copyBusy : 1);
  flows.start({of(from, Out), of(to, In), pair(from, to)}, bytes / share,
              unlimited,
              [this, &fiber, activity] { part(fiber, "copy", activity); });
  scheduler.leave(fiber);
  sleep(fiber, "copy", least - time);
}

void Clock::copyWithin(Fiber &fiber, double bytes) {
  int32_t rank = fiber.launch->rank;
  int64_t activity =
      begin("copy", rank, rank, fiber.time->record, fiber.time->last);
  fiber.time->outstanding = 1;
  flows.start({of(rank, Memory), -1, -1}, bytes, unlimited,
              [this, &fiber, activity] { part(fiber, "copy", activity); });
  scheduler.leave(fiber);
}

} // namespace ditron::sim
