// Keeping the record of a run.
#include "trace.h"

#include "machine.h"
#include "text.h"

#include <algorithm>
#include <utility>

namespace ditron::sim {

TraceEvent *Trace::add(const char *kind) {
  ++clock;
  if (events.size() >= capacity) {
    overflown = true;
    return nullptr;
  }
  TraceEvent &event = events.emplace_back();
  event.time = clock;
  event.kind = kind;
  return &event;
}

TraceEvent *Trace::add(const char *kind, const Fiber &fiber) {
  TraceEvent *event = add(kind);
  if (event) {
    event->rank = fiber.launch->rank;
    event->place = fiber.slot;
    event->launch = fiber.launch->id;
  }
  return event;
}

int32_t Trace::takePlace(int32_t rank) {
  if (taken.size() <= size_t(rank)) {
    taken.resize(rank + 1);
  }
  std::vector<bool> &places = taken[rank];
  auto free = std::find(places.begin(), places.end(), false);
  auto place = int32_t(free - places.begin());
  if (free == places.end()) {
    places.push_back(true);
  } else {
    *free = true;
  }
  return place;
}

void Trace::launched(const Launch &launch) {
  if (TraceEvent *event = add("launch")) {
    event->rank = launch.rank;
    event->id = event->launch = launch.id;
    event->what = launch.name;
    event->value = launch.programs();
  }
}

void Trace::completed(const Launch &launch) {
  if (TraceEvent *event = add("launch end")) {
    event->rank = launch.rank;
    event->id = event->launch = launch.id;
    event->what = launch.name;
  }
}

void Trace::begun(const Fiber &fiber) {
  if (TraceEvent *event = add("begin", fiber)) {
    const Launch &launch = *fiber.launch;
    size_t dimensions = launch.grid[2] > 1 ? 3 : launch.grid[1] > 1 ? 2 : 1;
    std::vector<int32_t> pid(fiber.pid.begin(), fiber.pid.begin() + dimensions);
    event->what = format(launch.name, " (", join(pid), ")");
  }
}

void Trace::ended(const Fiber &fiber) {
  add("end", fiber);
  taken[fiber.launch->rank][fiber.slot] = false;
}

void Trace::turn(const Fiber &fiber) { add("turn", fiber); }
void Trace::turnEnded(const Fiber &fiber) { add("turn end", fiber); }

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

void Trace::sent(const Fiber &fiber, const Delivery &delivery) {
  if (TraceEvent *event = add("send", fiber)) {
    event->id = delivery.id;
    event->peer = delivery.target;
    event->bytes = delivery.bytes;
    event->address = reinterpret_cast<uintptr_t>(delivery.signal.address);
    event->name = delivery.isGet ? "get" : "put";
  }
}

void Trace::arrived(const Heap &heap, const Delivery &delivery,
                    const void *where, size_t bytes) {
  bool isSignal = where == delivery.signal.address;
  if (TraceEvent *event = add(isSignal ? "signal" : "data")) {
    // A get's data arrive at home.
    event->rank = delivery.isGet ? delivery.origin : delivery.target;
    event->peer = delivery.isGet ? delivery.target : delivery.origin;
    event->id = delivery.id;
    event->launch = delivery.launch;
    event->bytes = bytes;
    event->name = delivery.isGet ? "get" : "put";
    event->what = heap.locate(where) ? heap.nameOf(where) : "its own memory";
    if (isSignal) {
      event->address = reinterpret_cast<uintptr_t>(where);
      event->value = *delivery.signal.address;
    }
  }
}

void Trace::streamMade(const Fiber &fiber, const std::string &label) {
  if (TraceEvent *event = add("stream", fiber)) {
    event->what = label;
  }
}

void Trace::itemBegins(const Fiber &fiber, const std::string &what) {
  if (TraceEvent *event = add("item", fiber)) {
    event->what = what;
    event->location = fiber.launch->locations[fiber.loc];
  }
}

void Trace::itemEnds(const Fiber &fiber) { add("item end", fiber); }

void Trace::host(int32_t rank, bool begins, std::string what) {
  if (TraceEvent *event = add(begins ? "call" : "call end")) {
    event->rank = rank;
    event->name = "script";
    event->what = std::move(what);
  }
}

std::vector<TraceEvent> Trace::take() { return std::exchange(events, {}); }

} // namespace ditron::sim
