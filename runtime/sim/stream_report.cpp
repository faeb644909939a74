// What is said about streams that wait.
#include "compare.h"
#include "stream.h"
#include "text.h"

#include <algorithm>
#include <map>
#include <set>

namespace ditron::sim {

const StreamItem *Stream::current() const {
  return items.empty() ? nullptr : &items.front();
}

static const int64_t *heldUpBy(const StreamItem &item) {
  for (int32_t index = 0; index < item.count; ++index) {
    if (!compares(item.compare, item.signal[index], item.value)) {
      return item.signal + index;
    }
  }
  return nullptr;
}

std::optional<ProgramReport> Stream::waiter() const {
  const StreamItem *item = current();
  if (!item || item->kind == StreamItem::Kind::Launch) {
    return std::nullopt;
  }
  ProgramReport report;
  report.rank = self.rank;
  report.stream = name;
  report.location = lineOf(*item);
  if (item->kind == StreamItem::Kind::SignalWait) {
    const int64_t *signal = heldUpBy(*item);
    report.what = signal
                      ? format("waits for signal ", machine.heap.nameOf(signal),
                               " ", spelling(item->compare), " ", item->value,
                               ", is ", *signal)
                      : "can go on";
  } else if (item->kind == StreamItem::Kind::Await) {
    report.what =
        format("waits for the event that its rank's ",
               item->event->stream->label(), " records at ", item->event->line);
  } else {
    report.what = machine.describe(fiber);
  }
  return report;
}

/// Finds streams that wait for each other, through events, signals, and the
/// places that their kernels hold.
class Circles {
public:
  explicit Circles(const Machine &machine) : machine(machine) {
    for (const auto &[key, stream] : machine.streams) {
      for (const StreamItem &item : stream->queue()) {
        if (item.kind == StreamItem::Kind::SignalWrite) {
          writers.emplace(item.signal, Writer{stream.get(), &item});
        }
      }
    }
  }

  std::string find() {
    for (const auto &[key, stream] : machine.streams) {
      path.clear();
      std::set<const Stream *> seen;
      if (reaches(*stream, *stream, seen)) {
        return join();
      }
    }
    return "";
  }

private:
  struct Writer {
    const Stream *stream;
    const StreamItem *item;
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
               std::set<const Stream *> &seen) {
    if (!seen.insert(&from).second) {
      return false;
    }
    for (const Edge &edge : edges(from)) {
      path.push_back(edge.why);
      if (edge.to == &goal || reaches(*edge.to, goal, seen)) {
        return true;
      }
      path.pop_back();
    }
    return false;
  }

  void waitsForSignal(const std::string &who, const int64_t *signal,
                      std::vector<Edge> &edges) const {
    auto [first, last] = writers.equal_range(signal);
    for (auto writer = first; writer != last; ++writer) {
      const auto &[stream, item] = writer->second;
      edges.push_back(
          {stream,
           format(who, " waits for ", machine.heap.nameOf(signal), ", which ",
                  stream->who(), " writes later, at ", stream->lineOf(*item))});
    }
  }

  /// Which streams a stream waits for, and how.
  std::vector<Edge> edges(const Stream &stream) const {
    std::vector<Edge> edges;
    const StreamItem *item = stream.current();
    if (!item) {
      return edges;
    }
    std::string who = format(stream.who(), " (at ", stream.lineOf(*item), ")");
    switch (item->kind) {
    case StreamItem::Kind::Await:
      if (!item->event->recorded) {
        edges.push_back({item->event->stream,
                         format(who, " waits for the event that ",
                                item->event->stream->who(),
                                " records later, at ", item->event->line)});
      }
      break;
    case StreamItem::Kind::SignalWait:
      if (const int64_t *signal = heldUpBy(*item)) {
        waitsForSignal(who, signal, edges);
      }
      break;
    case StreamItem::Kind::Launch:
      ofKernel(stream, *item, edges);
      break;
    default:
      break;
    }
    return edges;
  }

  void ofKernel(const Stream &stream, const StreamItem &item,
                std::vector<Edge> &edges) const {
    for (const Fiber *fiber : machine.waiting) {
      const Launch &launch = *fiber->launch;
      if (launch.stream != &stream || launch.isStream) {
        continue;
      }
      auto who = format("kernel `", launch.name, "` on ", stream.who());
      const Wait &wait = fiber->wait;
      if (wait.kind == Wait::Kind::Signals) {
        for (int32_t index = 0; index < wait.count; ++index) {
          if (!compares(wait.compare, wait.signals[index], wait.value)) {
            waitsForSignal(who, wait.signals + index, edges);
          }
        }
      } else if (wait.kind == Wait::Kind::Poll) {
        for (int32_t index = 0; index < fiber->polls.count; ++index) {
          const Polls::Read &read = fiber->polls.reads[index];
          if (fiber->polls.spinning(read.when)) {
            waitsForSignal(who, static_cast<const int64_t *>(read.address),
                           edges);
          }
        }
      }
    }
    for (const Launch *queued : machine.queues[stream.rankOf()]) {
      if (queued->stream != &stream) {
        continue;
      }
      for (const auto &[key, other] : machine.streams) {
        bool holds = std::any_of(machine.waiting.begin(), machine.waiting.end(),
                                 [&](const Fiber *fiber) {
                                   return !fiber->launch->isStream &&
                                          fiber->launch->stream == other.get();
                                 });
        if (holds && other->rankOf() == stream.rankOf()) {
          edges.push_back(
              {other.get(), format("the ", item.what, " of ", stream.who(),
                                   " (at ", stream.lineOf(item),
                                   ") waits for a place, which kernels on ",
                                   other->who(), " hold")});
        }
      }
    }
  }

  const Machine &machine;
  std::multimap<const int64_t *, Writer> writers;
  std::vector<std::string> path;
};

std::string Machine::writtenLater(const int64_t *signal) const {
  for (const auto &[key, stream] : streams) {
    for (const StreamItem &item : stream->queue()) {
      if (item.kind == StreamItem::Kind::SignalWrite && item.signal == signal) {
        return format(stream->who(), " writes ", heap.nameOf(signal),
                      " later, at ", stream->lineOf(item));
      }
    }
  }
  return "";
}

std::string Machine::circle() const { return Circles(*this).find(); }

} // namespace ditron::sim
