// Running the operations of a stream, one after the other.
#include "abi/call.h"
#include "abi/compare.h"
#include "report/text.h"
#include "streams/stream.h"

namespace ditron::sim {

void Stream::waitFor(const int64_t &counter, int64_t value) {
  Wait wait;
  wait.kind = Wait::Kind::Signals;
  wait.signals = &counter;
  wait.count = 1;
  wait.value = value;
  wait.compare = Compare::Gt;
  machine.scheduler.block(wait);
}

void Stream::serve() {
  for (;;) {
    waitFor(added, served);
    StreamOp &op = ops.front();
    call(op.loc, [&](Machine &, Fiber &) {
      bool visible = op.isVisible();
      if (machine.races && visible) {
        machine.races->streamOpBegins(fiber, op.enqueued);
        machine.races->addOperands(self.rank, op.operands);
      }
      if (machine.trace && visible) {
        machine.trace->streamOpBegins(fiber, op.what);
      }
      bool timed =
          machine.clock && visible && op.kind != StreamOp::Kind::Launch;
      int64_t record =
          timed ? machine.clock->opBegins(fiber, op.what, name) : -1;
      run(op);
      if (timed) {
        machine.clock->opEnds(fiber, record);
      }
      if (machine.trace && visible) {
        machine.trace->streamOpEnds(fiber);
      }
      if (machine.races && visible) {
        machine.races->streamOpEnds(fiber);
      }
      completed += visible;
    });
    ops.pop_front();
    ++served;
    machine.scheduler.maybeYield();
  }
}

void Stream::run(StreamOp &op) {
  switch (op.kind) {
  case StreamOp::Kind::Launch:
    return runLaunch(op);
  case StreamOp::Kind::RankCopy:
    return runRankCopy(op);
  case StreamOp::Kind::SignalWrite:
    return runSignalWrite(op);
  case StreamOp::Kind::SignalWait:
    return runSignalWait(op);
  case StreamOp::Kind::RecordEvent:
    if (machine.races) {
      op.event->clock = fiber.thread.clock;
      op.event->seenBeyondGpu = fiber.thread.seenBeyondGpu;
      op.event->epoch = machine.races->epoch();
    }
    op.event->recorded = 1;
    machine.scheduler.memoryChanged(&op.event->recorded, sizeof(int64_t));
    return;
  case StreamOp::Kind::WaitEvent:
    waitFor(op.event->recorded, 0);
    if (machine.races && op.event->epoch == machine.races->epoch()) {
      fiber.thread.follow(op.event->clock, op.event->seenBeyondGpu);
    }
    return;
  case StreamOp::Kind::Barrier:
    return runBarrier(op);
  case StreamOp::Kind::Synchronize:
    if (machine.races) {
      machine.races->synchronized(self.queue);
    }
    machine.reportCompleted(op.id);
    return;
  }
}

/// Of the streams of this name of all ranks.
void Stream::runBarrier(StreamOp &op) {
  Wait wait;
  wait.kind = Wait::Kind::Quiet;
  wait.id = machine.network.nextId();
  machine.scheduler.block(wait);
  if (machine.weakMemory) {
    machine.weakMemory->release(fiber);
  }
  if (machine.races) {
    machine.races->quiet(fiber);
  }
  machine.barrier(machine.teams.get(op.group, name));
  if (machine.clock) {
    machine.clock->sleep(fiber, "barrier", machine.clock->model.barrier);
  }
}

/// The kernel, of one program, that waits for signals in a CUDA graph.
static void waitKernel(void *args, int32_t, int32_t, int32_t, int32_t, int32_t,
                       int32_t) {
  const auto &op =
      *reinterpret_cast<const StreamOp *>(*static_cast<uint64_t *>(args));
  ditron_sim_wait(op.signal, op.count, op.value, int32_t(op.compare), 2,
                  int32_t(Semantic::Acquire), 0);
}

void Stream::runSignalWait(StreamOp &op) {
  if (!op.asKernel) {
    ditron_sim_wait(op.signal, op.count, op.value, int32_t(op.compare), 2,
                    int32_t(Semantic::Acquire), op.loc);
    if (machine.clock) {
      machine.clock->sleep(fiber, "stream", machine.clock->model.stream);
    }
    return;
  }
  op.group = {self.rank};
  op.launch = std::make_unique<Launch>();
  op.launch->rank = self.rank;
  op.launch->name = "signal_wait";
  op.launch->kernel = waitKernel;
  op.launch->locations = {self.locations[op.loc]};
  op.launch->isWait = true;
  op.launch->grid = {1, 1, 1};
  op.launch->args = {reinterpret_cast<uint64_t>(&op)};
  runLaunch(op);
}

void Stream::runLaunch(StreamOp &op) {
  Launch &launch = *op.launch;
  if (launch.programs() == 0) {
    return;
  }
  launch.stream = this;
  launch.queue = self.queue;
  if (launch.isCopy) {
    launch.args = {reinterpret_cast<uint64_t>(&op.copy)};
  } else if (launch.isHostCall) {
    launch.args = {reinterpret_cast<uint64_t>(&op.call)};
  }
  int64_t before = launchesCompleted;
  if (machine.clock && !launch.isHostCall) {
    machine.clock->sleep(fiber, "launch", machine.clock->model.launch);
  }
  bool isHostCall = launch.isHostCall;
  machine.submit(std::move(launch), op.group);
  waitFor(launchesCompleted, before);
  if (machine.clock && isHostCall) {
    machine.clock->sleep(fiber, "library", op.call.ns);
  }
}

void Stream::launchCompleted() {
  ++launchesCompleted;
  machine.scheduler.memoryChanged(&launchesCompleted, sizeof launchesCompleted);
}

/// Ordered after all transfers of the rank to that peer, like a notify.
void Stream::runSignalWrite(const StreamOp &op) {
  if (machine.clock) { // its way included, for which the stream waits
    double flight = machine.clock->latency(self.rank, op.peer);
    machine.clock->sleep(fiber, "stream", machine.clock->model.stream - flight);
  }
  Transfer transfer;
  transfer.origin = self.rank;
  transfer.target = op.peer;
  transfer.launch = self.id;
  transfer.signal = {op.signal, op.value, op.op};
  transfer.id = machine.network.nextId();
  machine.network.fence(self.rank, op.peer);
  if (machine.weakMemory) {
    machine.weakMemory->release(fiber);
  }
  if (machine.races) {
    machine.races->fence(fiber, op.peer);
    transfer.message = machine.races->streamSignal(fiber, transfer);
  }
  if (machine.trace) {
    machine.trace->sent(fiber, transfer);
  }
  Wait wait;
  wait.kind = Wait::Kind::Transfer;
  wait.id = transfer.id;
  machine.network.send(std::move(transfer), false);
  machine.scheduler.block(wait);
}

} // namespace ditron::sim
