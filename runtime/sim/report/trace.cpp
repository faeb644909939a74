#include "report/trace.h"

#include "memory/heap.h"
#include "network/network.h"
#include "report/text.h"
#include "scheduler/fiber.h"
#include "scheduler/launch.h"

#include <algorithm>
#include <utility>

namespace ditron::sim {

TraceEvent *Trace::add(const char *kind) {
  ++clock;
  if (events.size() >= capacity) {
    truncated = true;
    return nullptr;
  }
  TraceEvent &event = events.emplace_back();
  event.time = time ? time() : clock;
  event.kind = kind;
  return &event;
}

TraceEvent *Trace::add(const char *kind, const Fiber &fiber) {
  TraceEvent *event = add(kind);
  if (event) {
    event->rank = fiber.launch->rank;
    event->slot = fiber.traceSlot;
    event->launch = fiber.launch->id;
  }
  return event;
}

int32_t Trace::takeSlot(int32_t rank) {
  if (taken.size() <= size_t(rank)) {
    taken.resize(rank + 1);
  }
  std::vector<bool> &slots = taken[rank];
  auto free = std::find(slots.begin(), slots.end(), false);
  auto slot = int32_t(free - slots.begin());
  if (free == slots.end()) {
    slots.push_back(true);
  } else {
    *free = true;
  }
  return slot;
}

void Trace::launched(const Launch &launch) {
  if (TraceEvent *event = add("launch")) {
    event->rank = launch.rank;
    event->id = event->launch = launch.id;
    event->what = launch.name;
    event->value = launch.programs();
  }
}

void Trace::launchCompleted(const Launch &launch) {
  if (TraceEvent *event = add("launch end")) {
    event->rank = launch.rank;
    event->id = event->launch = launch.id;
    event->what = launch.name;
  }
}

void Trace::programStarted(const Fiber &fiber) {
  if (TraceEvent *event = add("begin", fiber)) {
    const Launch &launch = *fiber.launch;
    size_t dimensions = launch.grid[2] > 1 ? 3 : launch.grid[1] > 1 ? 2 : 1;
    std::vector<int32_t> pid(fiber.pid.begin(), fiber.pid.begin() + dimensions);
    event->what = format(launch.name, " (", join(pid), ")");
  }
}

void Trace::programEnded(const Fiber &fiber) {
  add("end", fiber);
  taken[fiber.launch->rank][fiber.traceSlot] = false;
}

void Trace::resumed(const Fiber &fiber) { add("run", fiber); }
void Trace::suspended(const Fiber &fiber) { add("run end", fiber); }

void Trace::called(const Fiber &fiber, const char *name, std::string what,
                   const void *signal, int32_t count) {
  if (TraceEvent *event = add("call", fiber)) {
    event->name = name;
    event->what = std::move(what);
    event->address = reinterpret_cast<uintptr_t>(signal);
    event->bytes = uint64_t(count) * sizeof(int64_t);
    const std::vector<std::string> &locations = fiber.launch->locations;
    if (fiber.loc >= 0 && size_t(fiber.loc) < locations.size()) {
      event->location = locations[fiber.loc];
    }
  }
}

void Trace::returned(const Fiber &fiber, const char *name, int64_t value) {
  if (TraceEvent *event = add("call end", fiber)) {
    event->name = name;
    event->value = value;
  }
}

void Trace::sent(const Fiber &fiber, const Transfer &transfer) {
  if (TraceEvent *event = add("send", fiber)) {
    event->id = transfer.id;
    event->peer = transfer.target;
    event->bytes = transfer.bytes;
    event->address = reinterpret_cast<uintptr_t>(transfer.signal.address);
    event->name = transfer.isGet ? "get" : "put";
  }
}

void Trace::delivered(const Heap &heap, const Transfer &transfer,
                      const void *where, size_t bytes) {
  bool isSignal = where == transfer.signal.address;
  if (TraceEvent *event = add(isSignal ? "signal" : "data")) {
    // The data of a get are delivered to its origin.
    event->rank = transfer.isGet ? transfer.origin : transfer.target;
    event->peer = transfer.isGet ? transfer.target : transfer.origin;
    event->id = transfer.id;
    event->launch = transfer.launch;
    event->bytes = bytes;
    event->name = transfer.isGet ? "get" : "put";
    event->what = heap.locate(where) ? heap.nameOf(where) : "its own memory";
    if (isSignal) {
      event->address = reinterpret_cast<uintptr_t>(where);
      event->value = *transfer.signal.address;
    }
  }
}

void Trace::streamCreated(const Fiber &fiber, const std::string &label) {
  if (TraceEvent *event = add("stream", fiber)) {
    event->what = label;
  }
}

void Trace::streamOpBegins(const Fiber &fiber, const std::string &what) {
  if (TraceEvent *event = add("op", fiber)) {
    event->what = what;
    event->location = fiber.launch->locations[fiber.loc];
  }
}

void Trace::streamOpEnds(const Fiber &fiber) { add("op end", fiber); }

void Trace::host(int32_t rank, bool begins, std::string what) {
  if (TraceEvent *event = add(begins ? "call" : "call end")) {
    event->rank = rank;
    event->name = "host";
    event->what = std::move(what);
  }
}

std::vector<TraceEvent> Trace::take() { return std::exchange(events, {}); }

} // namespace ditron::sim
