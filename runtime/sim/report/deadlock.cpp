#include "report/deadlock.h"

#include "abi/compare.h"
#include "machine.h"
#include "report/text.h"
#include "streams/stream.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace ditron::sim {

static std::string describeSignals(const Heap &heap, const Wait &wait) {
  std::string text = "waits for ";
  constexpr int32_t shown = 4;
  int32_t unsatisfied = 0;
  for (int32_t index = 0; index < wait.count; ++index) {
    const int64_t *signal = wait.at(index);
    int64_t value = wait.valueOf(signal);
    if (!compares(wait.compare, value, wait.value) && ++unsatisfied <= shown) {
      text += format(unsatisfied == 1 ? "" : ", ", heap.nameOf(signal), " ",
                     spelling(wait.compare), " ", wait.value, " (it is ", value,
                     ")");
    }
  }
  return unsatisfied > shown
             ? format(text, " and ", unsatisfied - shown, " more signals")
             : text;
}

static std::string describeBarrier(const Team &team) {
  std::vector<int32_t> missing;
  for (size_t member = 0; member < team.ranks.size(); ++member) {
    if (!team.inside[member]) {
      missing.push_back(team.ranks[member]);
    }
  }
  return format("waits in a barrier of ranks ", join(team.ranks),
                "; not arrived: ", join(missing));
}

static std::string nameOf(const Heap &heap, const Launch &launch,
                          const void *p) {
  auto address = reinterpret_cast<uint64_t>(p);
  for (const Operand &operand : launch.operands) {
    if (!heap.holds(p) && address >= operand.address &&
        address < operand.address + operand.bytes) {
      return format(operand.name, "[",
                    (address - operand.address) / operand.itemsize, "]");
    }
  }
  return heap.nameOf(p);
}

/// Places of a spin loop that are named.
constexpr int32_t mostPlaces = 8;

static int64_t signedValue(uint64_t bits, int32_t bytes) {
  int32_t unused = 64 - 8 * std::min(bytes, 8);
  return int64_t(bits << unused) >> unused;
}

static std::string describeSpinning(const Heap &heap, const Fiber &fiber) {
  std::string text = "spins: reads ";
  const AccessHistory &history = fiber.history;
  const char *separator = "";
  int32_t described = 0;
  for (const AccessHistory::Read &read : history.reads) {
    if (!history.isInLoop(read.when) || ++described > mostPlaces) {
      continue;
    }
    text += format(std::exchange(separator, ", "),
                   nameOf(heap, *fiber.launch, read.address), " = ",
                   signedValue(read.bits, read.bytes));
    for (auto other = read.earlier.begin(); other != read.earlierEnd();
         ++other) {
      if (*other != read.bits &&
          std::find(read.earlier.begin(), other, *other) == other) {
        text += format(" or ", signedValue(*other, read.bytes));
      }
    }
  }
  if (described > mostPlaces) {
    text += format(", and ", described - mostPlaces, " more places");
  }
  separator = "; writes ";
  for (int32_t index = 0; index < history.numWrites; ++index) {
    const AccessHistory::Write &write = history.writes[index];
    if (history.isInLoop(write.when)) {
      text += format(std::exchange(separator, ", "),
                     nameOf(heap, *fiber.launch, write.address));
    }
  }
  return text;
}

std::string describeWait(const Machine &machine, const Fiber &fiber) {
  switch (fiber.wait.kind) {
  case Wait::Kind::Signals:
    return describeSignals(machine.heap, fiber.wait);
  case Wait::Kind::Transfer:
    return "waits for a transfer to complete";
  case Wait::Kind::Quiet:
    return "waits for its rank's transfers to complete";
  case Wait::Kind::Barrier:
    return describeBarrier(*fiber.wait.team);
  case Wait::Kind::Spin:
    return describeSpinning(machine.heap, fiber);
  case Wait::Kind::None:
    break;
  }
  return fiber.history.idleReads ? describeSpinning(machine.heap, fiber)
                                 : "is runnable";
}

/// The stream that writes a signal later; empty: none.
static std::string laterWrite(const Machine &machine, const int64_t *signal) {
  for (const auto &[key, stream] : machine.allStreams()) {
    for (const StreamOp &op : stream->queued()) {
      if (op.kind == StreamOp::Kind::SignalWrite && op.signal == signal) {
        return format(stream->description(), " writes ",
                      machine.heap.nameOf(signal), " later, at ",
                      stream->lineOf(op));
      }
    }
  }
  return "";
}

static std::string sentBy(const ProgramReport &sender) {
  return sender.kernel.empty()
             ? format("rank ", sender.rank, "'s ", sender.stream, " at ",
                      sender.location)
             : format("rank ", sender.rank, ", program (", join(sender.program),
                      "), at ", sender.location);
}

/// The updates of a signal that the race detector has recorded.
static std::string updatesOf(const Machine &machine, const int64_t *signal) {
  const Heap &heap = machine.heap;
  if (std::optional<ProgramReport> sender =
          machine.races->packetSender(signal)) {
    return format("the latest packet there came from ", sentBy(*sender));
  }
  if (std::optional<ProgramReport> sender = machine.races->senderOf(signal)) {
    return format("its latest update came from ", sentBy(*sender));
  }
  std::optional<Heap::Location> location = heap.locate(signal);
  for (int32_t rank = 0; location && rank < machine.options().numRanks;
       ++rank) {
    const void *same = heap.at(rank, location->offset);
    if (std::optional<ProgramReport> sender = machine.races->senderOf(same)) {
      return format("no program has signalled ", heap.nameOf(signal), "; ",
                    heap.nameOf(same), " of rank ", rank,
                    " has been signalled, by ", sentBy(*sender),
                    ": is the rank right?");
    }
  }
  return "no program has signalled " + heap.nameOf(signal);
}

/// What is known about who should update what a program waits for.
static std::string historyOf(const Machine &machine, const Wait &wait) {
  if (wait.kind != Wait::Kind::Signals) {
    return "";
  }
  for (int32_t index = 0; index < wait.count; ++index) {
    const int64_t *signal = wait.signals + index;
    if (!compares(wait.compare, *signal, wait.value)) {
      if (std::string later = laterWrite(machine, signal); !later.empty()) {
        return later;
      }
    }
  }
  const int64_t *signal = wait.firstUnsatisfied();
  return machine.races && signal ? updatesOf(machine, signal) : "";
}

std::vector<ProgramReport> waitingPrograms(const Machine &machine) {
  std::vector<ProgramReport> reports;
  for (const Fiber *fiber : machine.scheduler.waitingFibers()) {
    const Launch &launch = *fiber->launch;
    if (launch.isStream) {
      if (std::optional<ProgramReport> one = launch.stream->waitReport()) {
        // Other waits of a stream have no signal of the user's.
        if (launch.stream->current()->kind == StreamOp::Kind::SignalWait) {
          one->hint = historyOf(machine, fiber->wait);
        }
        reports.push_back(std::move(*one));
      }
      continue;
    }
    reports.push_back(reportOf(*fiber, describeWait(machine, *fiber),
                               historyOf(machine, fiber->wait)));
  }
  for (const Fiber *fiber : machine.scheduler.readyFibers()) {
    if (!fiber->launch->isStream) {
      reports.push_back(reportOf(*fiber, describeWait(machine, *fiber)));
    }
  }
  std::sort(reports.begin(), reports.end(),
            [](const ProgramReport &a, const ProgramReport &b) {
              return std::tie(a.rank, a.kernel, a.stream, a.program[2],
                              a.program[1], a.program[0]) <
                     std::tie(b.rank, b.kernel, b.stream, b.program[2],
                              b.program[1], b.program[0]);
            });
  return reports;
}

std::vector<std::string> starvedLaunches(const Machine &machine) {
  std::vector<std::string> lines;
  int32_t slots = machine.options().resident;
  for (const auto &queue : machine.launches.notStarted()) {
    for (const Launch *launch : queue) {
      if (launch->isCopy) {
        lines.push_back(format(launch->stream->description(), ": the ",
                               launch->name, " at ", launch->locations.front(),
                               " has not started: it is a kernel, and all ",
                               slots, " program slots of rank ", launch->rank,
                               " are taken by programs that wait"));
        continue;
      }
      if (launch->isWait) {
        lines.push_back(format(
            launch->stream->description(), ": the signal_wait at ",
            launch->locations.front(),
            " has not started: in a CUDA graph it is a kernel, and starts "
            "after "
            "all programs of the launches before it; launch no more programs "
            "than run at a time, or wait before the launch"));
        continue;
      }
      lines.push_back(format(launch->notStarted(), " of ", launch->programs(),
                             " programs of `", launch->name, "` on ",
                             launch->stream ? launch->stream->description()
                                            : format("rank ", launch->rank),
                             " have not started: all ", slots,
                             " program slots are taken by programs that wait"));
    }
  }
  return lines;
}

} // namespace ditron::sim
