// What streams do with their items, one after the other.
#include "call.h"
#include "compare.h"
#include "stream.h"
#include "text.h"

namespace ditron::sim {

void Stream::waitFor(const int64_t &counter, int64_t value) {
  Wait wait;
  wait.kind = Wait::Kind::Signals;
  wait.signals = &counter;
  wait.count = 1;
  wait.value = value;
  wait.compare = Compare::Gt;
  machine.block(wait);
}

void Stream::serve() {
  for (;;) {
    waitFor(added, served);
    StreamItem &item = items.front();
    call(item.loc, [&](Machine &, Fiber &) {
      bool tells = item.kind == StreamItem::Kind::Tell;
      if (machine.races && !tells) {
        machine.races->itemBegins(fiber, item.known);
        machine.races->named(self.rank, item.operands);
      }
      if (machine.events && !tells) {
        machine.events->itemBegins(fiber, item.what);
      }
      run(item);
      if (machine.events && !tells) {
        machine.events->itemEnds(fiber);
      }
      if (machine.races && !tells) {
        machine.races->itemEnds(fiber);
      }
      over += !tells;
    });
    items.pop_front();
    ++served;
    machine.maybeYield();
  }
}

void Stream::run(StreamItem &item) {
  switch (item.kind) {
  case StreamItem::Kind::Launch:
    return runLaunch(item);
  case StreamItem::Kind::RankCopy:
    return runCopy(item);
  case StreamItem::Kind::SignalWrite:
    return runSignalWrite(item);
  case StreamItem::Kind::SignalWait:
    ditron_sim_wait(item.signal, item.count, item.value, int32_t(item.compare),
                    2, int32_t(Semantic::Acquire), item.loc);
    return;
  case StreamItem::Kind::Record:
    if (machine.races) {
      item.event->clock = fiber.thread.clock;
      item.event->age = machine.races->age();
    }
    item.event->recorded = 1;
    machine.changed(&item.event->recorded, sizeof(int64_t));
    return;
  case StreamItem::Kind::Await:
    waitFor(item.event->recorded, 0);
    if (machine.races && item.event->age == machine.races->age()) {
      fiber.thread.clock.join(item.event->clock);
    }
    return;
  case StreamItem::Kind::Barrier: {
    Wait wait;
    wait.kind = Wait::Kind::Quiet;
    wait.id = machine.network.nextId();
    machine.block(wait);
    if (machine.races) {
      machine.races->quiet(fiber);
    }
    machine.barrier(machine.team(item.group, name));
    return;
  }
  case StreamItem::Kind::Tell:
    if (machine.races) {
      machine.races->synchronized(self.lane);
    }
    machine.tell(item.id);
    return;
  }
}

void Stream::runLaunch(StreamItem &item) {
  Launch &launch = *item.launch;
  if (launch.programs() == 0) {
    return;
  }
  launch.stream = this;
  launch.lane = self.lane;
  if (launch.isMove) {
    launch.args = {reinterpret_cast<uint64_t>(&item.transfer)};
  }
  int64_t before = launchesOver;
  machine.submit(std::move(launch), item.group);
  waitFor(launchesOver, before);
}

void Stream::launchOver() {
  ++launchesOver;
  machine.changed(&launchesOver, sizeof launchesOver);
}

/// After what the stream's work has sent to that rank, like a notify.
void Stream::runSignalWrite(const StreamItem &item) {
  Delivery delivery;
  delivery.origin = self.rank;
  delivery.target = item.peer;
  delivery.launch = self.id;
  delivery.signal = {item.signal, item.value, item.op};
  delivery.id = machine.network.nextId();
  machine.network.fence(self.rank, item.peer);
  if (machine.races) {
    machine.races->fence(fiber, item.peer);
    delivery.passage = machine.races->streamSignal(fiber, delivery);
  }
  if (machine.events) {
    machine.events->sent(fiber, delivery);
  }
  Wait wait;
  wait.kind = Wait::Kind::Arrival;
  wait.id = delivery.id;
  machine.network.send(std::move(delivery), false);
  machine.block(wait);
}

} // namespace ditron::sim
