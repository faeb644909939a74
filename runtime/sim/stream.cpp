// What is put on streams: each item is checked where the script enqueues it.
#include "stream.h"

#include "call.h"
#include "compare.h"
#include "copy_engine.h"
#include "text.h"

#include <algorithm>

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
  self.id = machine.newId();
  self.rank = rank;
  self.isStream = true;
  self.stream = this;
  self.kernel = runStream;
  self.args = {reinterpret_cast<uint64_t>(this)};
  self.grid = {1, 1, 1};
  fiber.launch = &self;
  fiber.slot = Trace::firstStream + number;
  if (machine.races) {
    self.lane = machine.races->addStream(fiber, this->name);
  }
  if (machine.events) {
    machine.events->streamMade(fiber, this->name);
  }
  machine.start(fiber);
}

std::string Stream::who() const {
  return format("rank ", self.rank, "'s ", name);
}

uint64_t Stream::known() const {
  return machine.races ? machine.races->itemsKnown(self.lane) : over;
}

// --- enqueuing -------------------------------------------------------------

Stream::Wrong Stream::enqueue(StreamItem item, const std::string &line,
                              const std::function<void(StreamItem &)> &check) {
  try {
    if (check) {
      check(item);
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
  item.loc = int32_t(known - self.locations.begin());
  if (known == self.locations.end()) {
    self.locations.push_back(line);
  }
  if (item.kind != StreamItem::Kind::Tell) {
    ++count;
    if (machine.races) {
      item.known = machine.races->enqueued(self.lane);
    }
  }
  items.push_back(std::move(item));
  ++added;
  machine.changed(&added, sizeof added);
  return {};
}

Stream::Wrong Stream::launch(const std::string &line, Launch launch,
                             std::vector<int32_t> group) {
  StreamItem item;
  item.kind = StreamItem::Kind::Launch;
  item.what = "launch " + launch.name;
  item.group = std::move(group);
  item.launch = std::make_unique<Launch>(std::move(launch));
  return enqueue(std::move(item), line);
}

Stream::Wrong Stream::rankCopy(const std::string &line, Transfer transfer,
                               int32_t peer, bool push,
                               std::vector<Operand> operands) {
  if (peer == self.rank) {
    return move(line, std::move(transfer), std::move(operands));
  }
  StreamItem item;
  item.kind = StreamItem::Kind::RankCopy;
  item.transfer = std::move(transfer);
  item.peer = peer;
  item.push = push;
  item.operands = std::move(operands);
  return enqueue(std::move(item), line, [&](StreamItem &item) {
    Transfer &t = item.transfer;
    const std::byte *far = push ? t.to : t.from;
    const std::byte *near = push ? t.from : t.to;
    size_t farSpan = push ? t.toSpan() : t.fromSpan();
    size_t nearSpan = push ? t.fromSpan() : t.toSpan();
    std::byte *there =
        symmetric(machine, fiber, far, int64_t(farSpan), peer, "rank_copy");
    checkAccess(machine, fiber, near, int64_t(nearSpan), "rank_copy");
    item.what = format(
        "rank_copy ", t.rows * t.bytes, " bytes ", push ? "to " : "from ",
        farSpan ? machine.heap.nameOf(far) : "nowhere", " of rank ", peer);
    if (push) {
      t.to = there;
    } else {
      t.from = there;
    }
  });
}

Stream::Wrong Stream::move(const std::string &line, Transfer transfer,
                           std::vector<Operand> operands) {
  bool fills = !transfer.from;
  StreamItem item;
  item.kind = StreamItem::Kind::Launch;
  item.what = format(fills ? "fill " : "copy ", transfer.rows * transfer.bytes,
                     " bytes");
  item.group = {self.rank};
  item.transfer = std::move(transfer);
  return enqueue(std::move(item), line, [&](StreamItem &item) {
    const Transfer &t = item.transfer;
    const char *what = fills ? "fill" : "copy";
    checkAccess(machine, fiber, t.to, int64_t(t.toSpan()), what);
    if (!fills) {
      checkAccess(machine, fiber, t.from, int64_t(t.fromSpan()), what);
    }
    item.launch = std::make_unique<Launch>();
    item.launch->rank = self.rank;
    item.launch->name = what;
    item.launch->kernel = moveWithin;
    item.launch->locations = {line};
    item.launch->isMove = true;
    item.launch->grid = {t.toSpan() ? 1 : 0, 1, 1};
    item.launch->operands = std::move(operands);
  });
}

Stream::Wrong Stream::writeSignal(const std::string &line, void *signal,
                                  int64_t value, SignalOp op, int32_t peer) {
  StreamItem item;
  item.kind = StreamItem::Kind::SignalWrite;
  item.value = value;
  item.op = op;
  item.peer = peer;
  return enqueue(std::move(item), line, [&](StreamItem &item) {
    item.signal = reinterpret_cast<int64_t *>(
        symmetric(machine, fiber, signal, 8, peer, "signal_write"));
    item.what =
        format("signal_write ", machine.heap.nameOf(signal), " of rank ", peer,
               op == SignalOp::Add ? " += " : " = ", value);
  });
}

Stream::Wrong Stream::waitSignals(const std::string &line, void *signals,
                                  int32_t count, int64_t value,
                                  Compare compare) {
  StreamItem item;
  item.kind = StreamItem::Kind::SignalWait;
  item.signal = static_cast<int64_t *>(signals);
  item.count = count;
  item.value = value;
  item.compare = compare;
  return enqueue(std::move(item), line, [&](StreamItem &item) {
    symmetric(machine, fiber, signals, int64_t(count) * 8, self.rank,
              "signal_wait");
    item.what = format("signal_wait ", machine.heap.nameOf(signals),
                       count > 1 ? format(" and ", count - 1, " more") : "",
                       " ", spelling(compare), " ", value);
  });
}

std::shared_ptr<StreamEvent> Stream::record(const std::string &line) {
  StreamItem item;
  item.kind = StreamItem::Kind::Record;
  item.what = "record";
  item.event = std::make_shared<StreamEvent>();
  item.event->stream = this;
  item.event->line = line;
  std::shared_ptr<StreamEvent> event = item.event;
  enqueue(std::move(item), line);
  return event;
}

Stream::Wrong Stream::await(const std::string &line,
                            std::shared_ptr<StreamEvent> event) {
  StreamItem item;
  item.kind = StreamItem::Kind::Await;
  item.event = std::move(event);
  return enqueue(std::move(item), line, [&](StreamItem &item) {
    const Stream &recorder = *item.event->stream;
    if (recorder.rankOf() != self.rank) {
      throw Failure{
          format("an event of rank ", recorder.rankOf(), " is awaited by rank ",
                 self.rank),
          "events order streams of one rank; between ranks use signal_write "
          "and signal_wait"};
    }
    item.what = "wait_event of " + recorder.label();
  });
}

Stream::Wrong Stream::barrier(const std::string &line,
                              std::vector<int32_t> group) {
  StreamItem item;
  item.kind = StreamItem::Kind::Barrier;
  item.what = "barrier of ranks " + join(group);
  item.group = std::move(group);
  return enqueue(std::move(item), line);
}

uint64_t Stream::synchronize() {
  if (items.empty()) {
    if (machine.races) {
      machine.races->synchronized(self.lane);
    }
    return 0;
  }
  StreamItem item;
  item.kind = StreamItem::Kind::Tell;
  uint64_t id = item.id = machine.newId();
  enqueue(std::move(item), "");
  return id;
}

} // namespace ditron::sim
