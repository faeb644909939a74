// What the machine says about programs that wait or have failed.
#include "compare.h"
#include "machine.h"
#include "stream.h"
#include "text.h"

#include <algorithm>
#include <utility>

namespace ditron::sim {

ProgramReport Machine::report(const Fiber &fiber, std::string what,
                              std::string hint) const {
  const Launch &launch = *fiber.launch;
  ProgramReport report;
  report.kernel = launch.name;
  if (launch.stream) {
    report.stream = launch.stream->label();
  }
  if (fiber.loc >= 0 && size_t(fiber.loc) < launch.locations.size()) {
    report.location = launch.locations[fiber.loc];
  }
  report.rank = launch.rank;
  report.program = fiber.pid;
  report.what = std::move(what);
  report.hint = std::move(hint);
  return report;
}

void Machine::fail(Fiber &fiber, Failure failure) {
  std::lock_guard<std::mutex> guard(sharing);
  // Of programs beside each other the first in the grid counts.
  if (fiber.home && hasFailed &&
      !std::lexicographical_compare(fiber.pid.rbegin(), fiber.pid.rend(),
                                    failed.program.rbegin(),
                                    failed.program.rend())) {
    return;
  }
  failed = report(fiber, std::move(failure.what), std::move(failure.hint));
  failed.kind = std::move(failure.kind);
  failed.others = std::move(failure.others);
  hasFailed = true;
}

void Machine::warn(const Fiber &fiber, Failure warning) {
  std::lock_guard<std::mutex> guard(sharing);
  ProgramReport told =
      report(fiber, std::move(warning.what), std::move(warning.hint));
  if (warned.insert(told.kernel + told.location).second) {
    warnings.push_back(std::move(told));
  }
}

static std::string describeSignals(const Heap &heap, const Wait &wait) {
  std::string text = "waits for ";
  constexpr int32_t shown = 4;
  int32_t held = 0;
  for (int32_t index = 0; index < wait.count; ++index) {
    const int64_t *signal = wait.at(index);
    int64_t seen = wait.seen(signal);
    if (!compares(wait.compare, seen, wait.value) && ++held <= shown) {
      text += format(held == 1 ? "" : ", ", heap.nameOf(signal), " ",
                     spelling(wait.compare), " ", wait.value, " (it is ", seen,
                     ")");
    }
  }
  return held > shown ? format(text, " and ", held - shown, " more signals")
                      : text;
}

static std::string describeBarrier(const Team &team) {
  std::vector<int32_t> missing;
  for (size_t member = 0; member < team.ranks.size(); ++member) {
    if (!team.inside[member]) {
      missing.push_back(team.ranks[member]);
    }
  }
  return format("is in a barrier of ranks ", join(team.ranks),
                "; not there: ", join(missing));
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

static std::string describePolls(const Heap &heap, const Fiber &fiber) {
  std::string text = "reads the same again and again: ";
  const Polls &polls = fiber.polls;
  const char *separator = "";
  for (int32_t index = 0; index < polls.count; ++index) {
    const Polls::Read &read = polls.reads[index];
    if (!polls.spinning(read.when)) {
      continue;
    }
    text += format(std::exchange(separator, ", "),
                   nameOf(heap, *fiber.launch, read.address), " is ",
                   int64_t(read.bits));
    for (auto other = read.before.begin(); other != read.beforeEnd(); ++other) {
      if (*other != read.bits &&
          std::find(read.before.begin(), other, *other) == other) {
        text += format(" or ", int64_t(*other));
      }
    }
  }
  separator = "; in between it writes ";
  for (int32_t index = 0; index < polls.written; ++index) {
    const Polls::Write &write = polls.writes[index];
    if (polls.spinning(write.when)) {
      text += format(std::exchange(separator, ", "),
                     nameOf(heap, *fiber.launch, write.address));
    }
  }
  return text;
}

std::string Machine::describe(const Fiber &fiber) const {
  switch (fiber.wait.kind) {
  case Wait::Kind::Signals:
    return describeSignals(heap, fiber.wait);
  case Wait::Kind::Arrival:
    return "waits for what it gets to arrive";
  case Wait::Kind::Quiet:
    return "waits for what its rank has sent to arrive";
  case Wait::Kind::Barrier:
    return describeBarrier(*fiber.wait.team);
  case Wait::Kind::Poll:
    return describePolls(heap, fiber);
  case Wait::Kind::None:
    break;
  }
  return fiber.polls.looks ? describePolls(heap, fiber) : "can run";
}

/// What is known of who signals what a program waits for.
std::string Machine::history(const Wait &wait) const {
  if (wait.kind != Wait::Kind::Signals) {
    return "";
  }
  for (int32_t index = 0; index < wait.count; ++index) {
    const int64_t *signal = wait.signals + index;
    if (!compares(wait.compare, *signal, wait.value)) {
      if (std::string later = writtenLater(signal); !later.empty()) {
        return later;
      }
    }
  }
  if (!races) {
    return "";
  }
  for (int32_t index = 0; index < wait.count; ++index) {
    const int64_t *signal = wait.at(index);
    if (compares(wait.compare, wait.seen(signal), wait.value)) {
      continue;
    }
    auto by = [](const ProgramReport &sender) {
      return sender.kernel.empty()
                 ? format("rank ", sender.rank, "'s ", sender.stream, " at ",
                          sender.location)
                 : format("rank ", sender.rank, ", program (",
                          join(sender.program), "), at ", sender.location);
    };
    if (std::optional<ProgramReport> sender = races->packetSender(signal)) {
      return format("the latest packet there came from ", by(*sender));
    }
    if (std::optional<ProgramReport> sender = races->senderOf(signal)) {
      return format("its latest signal came from ", by(*sender));
    }
    std::optional<Heap::Place> place = heap.locate(signal);
    for (int32_t rank = 0; place && rank < options.numRanks; ++rank) {
      const void *same = heap.at(rank, place->offset);
      if (std::optional<ProgramReport> sender = races->senderOf(same)) {
        return format("no program has sent ", heap.nameOf(signal), "; ",
                      heap.nameOf(same), " of rank ", rank,
                      " has been signalled, by ", by(*sender),
                      ": is the rank right?");
      }
    }
    return "no program has sent " + heap.nameOf(signal);
  }
  return "";
}

std::vector<ProgramReport> Machine::waiters() const {
  std::vector<ProgramReport> reports;
  for (const Fiber *fiber : waiting) {
    if (fiber->launch->isStream) {
      if (std::optional<ProgramReport> one = fiber->launch->stream->waiter()) {
        // Else what it waits for is the simulator's own.
        if (fiber->launch->stream->current()->kind ==
            StreamItem::Kind::SignalWait) {
          one->hint = history(fiber->wait);
        }
        reports.push_back(std::move(*one));
      }
      continue;
    }
    reports.push_back(report(*fiber, describe(*fiber), history(fiber->wait)));
  }
  for (const Fiber *fiber : ready) {
    if (!fiber->launch->isStream) {
      reports.push_back(report(*fiber, describe(*fiber)));
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

std::vector<std::string> Machine::starved() const {
  std::vector<std::string> lines;
  for (const auto &queue : queues) {
    for (const Launch *launch : queue) {
      if (launch->isMove) {
        lines.push_back(format(launch->stream->who(), ": the ", launch->name,
                               " at ", launch->locations.front(),
                               " has not started: it is a kernel, and all ",
                               options.resident, " places of rank ",
                               launch->rank,
                               " are taken by programs that wait"));
        continue;
      }
      lines.push_back(format(launch->programs() - launch->started, " of ",
                             launch->programs(), " programs of `", launch->name,
                             "` on ",
                             launch->stream ? launch->stream->who()
                                            : format("rank ", launch->rank),
                             " have not started: all ", options.resident,
                             " places are taken by programs that wait"));
    }
  }
  return lines;
}

} // namespace ditron::sim
