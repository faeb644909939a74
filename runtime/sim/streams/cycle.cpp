// Reports about streams that wait, for a deadlock.
#include "abi/compare.h"
#include "machine.h"
#include "report/deadlock.h"
#include "report/text.h"
#include "streams/stream.h"

#include <algorithm>
#include <map>
#include <set>

namespace ditron::sim {

const StreamOp *Stream::current() const {
  return ops.empty() ? nullptr : &ops.front();
}

const int64_t *StreamOp::firstUnsatisfied() const {
  for (int32_t index = 0; index < count; ++index) {
    if (!compares(compare, signal[index], value)) {
      return signal + index;
    }
  }
  return nullptr;
}

std::optional<ProgramReport> Stream::waitReport() const {
  const StreamOp *op = current();
  if (!op || op->kind == StreamOp::Kind::Launch) {
    return std::nullopt;
  }
  ProgramReport report;
  report.rank = self.rank;
  report.stream = name;
  report.location = lineOf(*op);
  if (op->kind == StreamOp::Kind::SignalWait) {
    const int64_t *signal = op->firstUnsatisfied();
    report.what =
        signal ? format("waits for signal ", machine.heap.nameOf(signal), " ",
                        spelling(op->compare), " ", op->value, ", is ", *signal)
        : op->asKernel ? "waits to start its signal_wait"
                       : "is runnable";
  } else if (op->kind == StreamOp::Kind::WaitEvent) {
    report.what =
        format("waits for the event that its rank's ",
               op->event->stream->label(), " records at ", op->event->line);
  } else {
    report.what = describeWait(machine, fiber);
  }
  return report;
}

namespace {

/// Finds a cycle in the graph of streams that wait for each other, through
/// events, signals, and the program slots that their kernels take.
class WaitGraph {
public:
  explicit WaitGraph(const Machine &machine) : machine(machine) {
    for (const auto &[key, stream] : machine.allStreams()) {
      for (const StreamOp &op : stream->queued()) {
        if (op.kind == StreamOp::Kind::SignalWrite) {
          writers.emplace(op.signal, Writer{stream.get(), &op});
        }
      }
    }
  }

  std::string findCycle() {
    for (const auto &[key, stream] : machine.allStreams()) {
      path.clear();
      std::set<const Stream *> visited;
      if (reaches(*stream, *stream, visited)) {
        return join();
      }
    }
    return "";
  }

private:
  struct Writer {
    const Stream *stream;
    const StreamOp *op;
  };
  struct Edge {
    const Stream *to;
    std::string why;
  };

  std::string join() const {
    std::string text;
    for (const std::string &why : path) {
      text += (text.empty() ? "" : "; ") + why;
    }
    return text;
  }

  bool reaches(const Stream &from, const Stream &goal,
               std::set<const Stream *> &visited) {
    if (!visited.insert(&from).second) {
      return false;
    }
    for (const Edge &edge : edges(from)) {
      path.push_back(edge.why);
      if (edge.to == &goal || reaches(*edge.to, goal, visited)) {
        return true;
      }
      path.pop_back();
    }
    return false;
  }

  void addEdgesOfSignal(const std::string &waiter, const int64_t *signal,
                        std::vector<Edge> &edges) const {
    auto [first, last] = writers.equal_range(signal);
    for (auto writer = first; writer != last; ++writer) {
      const auto &[stream, op] = writer->second;
      edges.push_back(
          {stream, format(waiter, " waits for ", machine.heap.nameOf(signal),
                          ", which ", stream->description(),
                          " writes later, at ", stream->lineOf(*op))});
    }
  }

  /// Which streams a stream waits for, and how.
  std::vector<Edge> edges(const Stream &stream) const {
    std::vector<Edge> edges;
    const StreamOp *op = stream.current();
    if (!op) {
      return edges;
    }
    std::string waiter =
        format(stream.description(), " (at ", stream.lineOf(*op), ")");
    switch (op->kind) {
    case StreamOp::Kind::WaitEvent:
      if (!op->event->recorded) {
        edges.push_back({op->event->stream,
                         format(waiter, " waits for the event that ",
                                op->event->stream->description(),
                                " records later, at ", op->event->line)});
      }
      break;
    case StreamOp::Kind::SignalWait:
      if (const int64_t *signal = op->firstUnsatisfied()) {
        addEdgesOfSignal(waiter, signal, edges);
      }
      break;
    case StreamOp::Kind::Launch:
      addEdgesOfKernel(stream, *op, edges);
      break;
    default:
      break;
    }
    return edges;
  }

  void addEdgesOfKernel(const Stream &stream, const StreamOp &op,
                        std::vector<Edge> &edges) const {
    for (const Fiber *fiber : machine.scheduler.waitingFibers()) {
      const Launch &launch = *fiber->launch;
      if (launch.stream != &stream || launch.isStream) {
        continue;
      }
      auto waiter =
          format("kernel `", launch.name, "` on ", stream.description());
      const Wait &wait = fiber->wait;
      if (wait.kind == Wait::Kind::Signals) {
        for (int32_t index = 0; index < wait.count; ++index) {
          if (!compares(wait.compare, wait.signals[index], wait.value)) {
            addEdgesOfSignal(waiter, wait.signals + index, edges);
          }
        }
      } else if (wait.kind == Wait::Kind::Spin) {
        for (const AccessHistory::Read &read : fiber->history.reads) {
          if (fiber->history.isInLoop(read.when)) {
            addEdgesOfSignal(waiter, static_cast<const int64_t *>(read.address),
                             edges);
          }
        }
      }
    }
    const auto &waiting = machine.scheduler.waitingFibers();
    for (const Launch *queued :
         machine.launches.notStarted()[stream.rankOf()]) {
      if (queued->stream != &stream) {
        continue;
      }
      std::vector<const Stream *> takers;
      std::string names;
      for (const auto &[key, other] : machine.allStreams()) {
        bool takesSlots = std::any_of(
            waiting.begin(), waiting.end(), [&](const Fiber *fiber) {
              return !fiber->launch->isStream &&
                     fiber->launch->stream == other.get();
            });
        if (takesSlots && other->rankOf() == stream.rankOf()) {
          takers.push_back(other.get());
          names += (names.empty() ? "" : " and ") + other->description();
        }
      }
      for (const Stream *taker : takers) {
        if (taker != &stream || takers.size() == 1) {
          edges.push_back(
              {taker, format("the ", op.what, " of ", stream.description(),
                             " (at ", stream.lineOf(op),
                             ") waits for a program slot: kernels on ", names,
                             " take all of them")});
        }
      }
    }
  }

  const Machine &machine;
  std::multimap<const int64_t *, Writer> writers;
  std::vector<std::string> path;
};

} // namespace

std::string streamCycle(const Machine &machine) {
  return WaitGraph(machine).findCycle();
}

} // namespace ditron::sim
