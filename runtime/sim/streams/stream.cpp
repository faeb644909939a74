// Enqueuing operations on streams. Each is checked where host code enqueues it.
#include "streams/stream.h"

#include "abi/call.h"
#include "abi/compare.h"
#include "report/text.h"
#include "streams/copy_engine.h"

#include <algorithm>
#include <stdexcept>

namespace ditron::sim {

static void runStream(void *args, int32_t, int32_t, int32_t, int32_t, int32_t,
                      int32_t) {
  auto *stream = reinterpret_cast<Stream *>(*static_cast<uint64_t *>(args));
  stream->serve();
}

static std::string labelOf(const std::string &name, int32_t index) {
  if (name.empty()) {
    return "main stream";
  }
  return index ? format("stream ", name, "[", index, "]") : "stream " + name;
}

Stream::Stream(Machine &machine, int32_t rank, const std::string &name,
               int32_t index, int32_t number)
    : machine(machine), name(labelOf(name, index)) {
  self.id = machine.launches.newId();
  self.rank = rank;
  self.isStream = true;
  self.stream = this;
  self.kernel = runStream;
  self.args = {reinterpret_cast<uint64_t>(this)};
  self.grid = {1, 1, 1};
  fiber.launch = &self;
  fiber.traceSlot = Trace::firstStream + number;
  if (machine.races) {
    self.queue = machine.races->addStream(fiber, this->name);
  }
  if (machine.trace) {
    machine.trace->streamCreated(fiber, this->name);
  }
  if (machine.clock) {
    fiber.time = std::make_unique<ProgramTime>();
  }
  machine.scheduler.start(fiber);
}

std::string Stream::description() const {
  return format("rank ", self.rank, "'s ", name);
}

uint64_t Stream::numSynchronized() const {
  return machine.races ? machine.races->numSynchronized(self.queue) : completed;
}

// --- enqueuing -------------------------------------------------------------

Stream::Errors Stream::enqueue(StreamOp op, const std::string &line,
                               const std::function<void(StreamOp &)> &check) {
  try {
    if (check) {
      check(op);
    }
  } catch (Failure &failure) {
    ProgramReport wrong;
    wrong.rank = self.rank;
    wrong.stream = name;
    wrong.location = line;
    wrong.what = std::move(failure.what);
    wrong.hint = std::move(failure.hint);
    wrong.kind = std::move(failure.kind);
    return {std::move(wrong)};
  }
  auto known = std::find(self.locations.begin(), self.locations.end(), line);
  op.loc = int32_t(known - self.locations.begin());
  if (known == self.locations.end()) {
    self.locations.push_back(line);
  }
  if (op.isVisible()) {
    ++enqueued;
    if (machine.races) {
      op.enqueued = machine.races->enqueued(self.queue);
    }
  }
  ops.push_back(std::move(op));
  ++added;
  machine.scheduler.memoryChanged(&added, sizeof added);
  return {};
}

Stream::Errors Stream::launch(const std::string &line, Launch launch,
                              std::vector<int32_t> group) {
  StreamOp op;
  op.kind = StreamOp::Kind::Launch;
  op.what = "launch " + launch.name;
  op.group = std::move(group);
  op.launch = std::make_unique<Launch>(std::move(launch));
  return enqueue(std::move(op), line);
}

Stream::Errors Stream::rankCopy(const std::string &line, StridedCopy copy,
                                int32_t peer, bool push,
                                std::vector<Operand> operands) {
  if (peer == self.rank) {
    return localCopy(line, std::move(copy), std::move(operands));
  }
  StreamOp op;
  op.kind = StreamOp::Kind::RankCopy;
  op.copy = std::move(copy);
  op.peer = peer;
  op.push = push;
  op.operands = std::move(operands);
  return enqueue(std::move(op), line, [&](StreamOp &op) {
    StridedCopy &t = op.copy;
    const std::byte *remote = push ? t.to : t.from;
    const std::byte *local = push ? t.from : t.to;
    size_t remoteSpan = push ? t.toSpan() : t.fromSpan();
    size_t localSpan = push ? t.fromSpan() : t.toSpan();
    std::byte *address = symmetric(machine, fiber, remote, int64_t(remoteSpan),
                                   peer, "rank_copy");
    checkAccess(machine, fiber, local, int64_t(localSpan), "rank_copy");
    op.what = format("rank_copy ", t.rows * t.bytes, " bytes ",
                     push ? "to " : "from ",
                     remoteSpan ? machine.heap.nameOf(remote) : "nowhere",
                     " of rank ", peer);
    if (push) {
      t.to = address;
    } else {
      t.from = address;
    }
  });
}

Stream::Errors Stream::localCopy(const std::string &line, StridedCopy copy,
                                 std::vector<Operand> operands) {
  bool fills = !copy.from;
  StreamOp op;
  op.kind = StreamOp::Kind::Launch;
  op.what = format(fills ? "fill " : "copy ", copy.rows * copy.bytes, " bytes");
  op.group = {self.rank};
  op.copy = std::move(copy);
  return enqueue(std::move(op), line, [&](StreamOp &op) {
    const StridedCopy &t = op.copy;
    const char *what = fills ? "fill" : "copy";
    checkAccess(machine, fiber, t.to, int64_t(t.toSpan()), what);
    if (!fills) {
      checkAccess(machine, fiber, t.from, int64_t(t.fromSpan()), what);
    }
    op.launch = std::make_unique<Launch>();
    op.launch->rank = self.rank;
    op.launch->name = what;
    op.launch->kernel = localCopyKernel;
    op.launch->locations = {line};
    op.launch->isCopy = true;
    op.launch->grid = {t.toSpan() ? 1 : 0, 1, 1};
    op.launch->operands = std::move(operands);
  });
}

Stream::Errors Stream::callHost(const std::string &line, std::string name,
                                HostCall call, std::vector<Operand> operands) {
  StreamOp op;
  op.kind = StreamOp::Kind::Launch;
  op.what = "call " + name;
  op.group = {self.rank};
  op.call = std::move(call);
  return enqueue(std::move(op), line, [&](StreamOp &op) {
    for (const HostCall::Ranges *ranges : {&op.call.reads, &op.call.writes}) {
      for (auto [address, bytes] : *ranges) {
        checkAccess(machine, fiber, reinterpret_cast<const void *>(address),
                    int64_t(bytes), "call");
      }
    }
    op.launch = std::make_unique<Launch>();
    op.launch->rank = self.rank;
    op.launch->name = std::move(name);
    op.launch->kernel = hostCallKernel;
    op.launch->locations = {line};
    op.launch->isHostCall = true;
    op.launch->grid = {1, 1, 1};
    op.launch->operands = std::move(operands);
  });
}

void Stream::hostCallReturned(uint64_t id, double ns) {
  HostCall &call = ops.front().call;
  if (ops.empty() || call.id != id) {
    throw std::logic_error("the stream is at another operation");
  }
  for (auto [address, bytes] : call.writes) {
    machine.scheduler.memoryChanged(reinterpret_cast<const void *>(address),
                                    bytes);
  }
  call.ns = ns;
  call.returned = 1;
  machine.scheduler.memoryChanged(&call.returned, sizeof call.returned);
}

Stream::Errors Stream::writeSignal(const std::string &line, void *signal,
                                   int64_t value, SignalOp kind, int32_t peer) {
  StreamOp op;
  op.kind = StreamOp::Kind::SignalWrite;
  op.value = value;
  op.op = kind;
  op.peer = peer;
  return enqueue(std::move(op), line, [&](StreamOp &op) {
    op.signal = reinterpret_cast<int64_t *>(
        symmetric(machine, fiber, signal, 8, peer, "signal_write"));
    op.what = format("signal_write ", machine.heap.nameOf(signal), " of rank ",
                     peer, kind == SignalOp::Add ? " += " : " = ", value);
  });
}

Stream::Errors Stream::waitSignals(const std::string &line, void *signals,
                                   int32_t count, int64_t value,
                                   Compare compare, bool asKernel) {
  StreamOp op;
  op.kind = StreamOp::Kind::SignalWait;
  op.signal = static_cast<int64_t *>(signals);
  op.count = count;
  op.value = value;
  op.compare = compare;
  op.asKernel = asKernel;
  return enqueue(std::move(op), line, [&](StreamOp &op) {
    symmetric(machine, fiber, signals, int64_t(count) * 8, self.rank,
              "signal_wait");
    op.what = format("signal_wait ", machine.heap.nameOf(signals),
                     count > 1 ? format(" and ", count - 1, " more") : "", " ",
                     spelling(compare), " ", value);
  });
}

std::shared_ptr<StreamEvent> Stream::recordEvent(const std::string &line) {
  StreamOp op;
  op.kind = StreamOp::Kind::RecordEvent;
  op.what = "record";
  op.event = std::make_shared<StreamEvent>();
  op.event->stream = this;
  op.event->line = line;
  std::shared_ptr<StreamEvent> event = op.event;
  enqueue(std::move(op), line);
  return event;
}

Stream::Errors Stream::waitEvent(const std::string &line,
                                 std::shared_ptr<StreamEvent> event) {
  StreamOp op;
  op.kind = StreamOp::Kind::WaitEvent;
  op.event = std::move(event);
  return enqueue(std::move(op), line, [&](StreamOp &op) {
    const Stream &recorder = *op.event->stream;
    if (recorder.rankOf() != self.rank) {
      throw Failure{
          format("an event of rank ", recorder.rankOf(), " is awaited by rank ",
                 self.rank),
          "events order streams of one rank; between ranks use signal_write "
          "and signal_wait"};
    }
    op.what = "wait_event of " + recorder.label();
  });
}

Stream::Errors Stream::barrier(const std::string &line,
                               std::vector<int32_t> group) {
  StreamOp op;
  op.kind = StreamOp::Kind::Barrier;
  op.what = "barrier of ranks " + join(group);
  op.group = std::move(group);
  return enqueue(std::move(op), line);
}

uint64_t Stream::synchronize() {
  if (ops.empty()) {
    if (machine.races) {
      machine.races->synchronized(self.queue);
    }
    return 0;
  }
  StreamOp op;
  op.kind = StreamOp::Kind::Synchronize;
  uint64_t id = op.id = machine.launches.newId();
  enqueue(std::move(op), "");
  return id;
}

} // namespace ditron::sim
