// Who knows what, where streams are: each is an actor whose items follow each
// other, and what is enqueued knows what its script knew.
#include "machine.h"
#include "races.h"

namespace ditron::sim {

/// Names that are kept per rank.
constexpr size_t maxNames = 128;

int32_t Races::laneOf(const Launch &launch) {
  return launch.lane < 0 ? launch.rank : launch.lane;
}

int32_t Races::addStream(Fiber &fiber, const std::string &label) {
  auto lane = int32_t(lanes.size());
  int32_t rank = fiber.launch->rank;
  lanes.push_back({rank, label, &fiber.thread, int32_t(sources.size())});
  lanesOf[rank].push_back(lane);
  sources.push_back({"", {}});
  flying.emplace_back();
  fiber.thread.clock = Clock(numRanks);
  beginAgain(lane);
  return lane;
}

Clock Races::enqueued(int32_t lane) {
  ++lanes[lane].itemsEnqueued;
  Thread &script = scripts[lanes[lane].rank];
  Clock known = script.clock;
  tick(script);
  return known;
}

void Races::itemBegins(Fiber &fiber, const Clock &known) {
  std::vector<std::string> &lines =
      sources[lanes[laneOf(*fiber.launch)].source].locations;
  if (lines.size() < fiber.launch->locations.size()) {
    lines = fiber.launch->locations;
  }
  fiber.thread.clock.join(known);
  tick(fiber.thread);
}

void Races::itemEnds(Fiber &fiber) {
  prune(fiber.thread.clock);
  lanes[laneOf(*fiber.launch)].unknown.push_back(fiber.thread.time);
}

void Races::synchronized(int32_t lane) {
  Clock &clock = scripts[lanes[lane].rank].clock;
  clock.join(lanes[lane].thread->clock);
  prune(clock);
  forgetLocal(lanes[lane].rank);
}

uint64_t Races::itemsKnown(int32_t number) {
  Lane &lane = lanes[number];
  uint32_t time = scripts[lane.rank].clock.of(lane.thread->actor);
  while (!lane.unknown.empty() && lane.unknown.front() <= time) {
    lane.unknown.pop_front();
    ++lane.itemsKnown;
    forgetCopies(lane.rank);
  }
  return lane.itemsKnown;
}

/// What the script knows to be over it may have freed: its memory may be
/// another tensor's by now.
void Races::forgetCopies(int32_t rank) { spaces[1 + rank].written.clear(); }

/// A rank's own memory can be forgotten when nothing runs there that its script
/// does not know to be over.
void Races::forgetLocal(int32_t rank) {
  for (int32_t lane : lanesOf[rank]) {
    if (itemsKnown(lane) < lanes[lane].itemsEnqueued) {
      return;
    }
  }
  spaces[1 + rank] = Space();
  names[rank].clear();
}

void Races::named(int32_t rank, const std::vector<Operand> &operands) {
  std::deque<Operand> &known = names[rank];
  for (const Operand &operand : operands) {
    auto same = [&](const Operand &other) {
      return other.address == operand.address && other.name == operand.name &&
             other.bytes == operand.bytes;
    };
    known.erase(std::remove_if(known.begin(), known.end(), same), known.end());
    known.push_front(operand);
  }
  while (known.size() > maxNames) {
    known.pop_back();
  }
}

std::shared_ptr<Passage> Races::streamSignal(Fiber &fiber,
                                             const Delivery &delivery) {
  Thread &thread = fiber.thread;
  auto passage = std::make_shared<Passage>();
  passage->clock = thread.clock;
  passage->clock.joinEntries(thread.fenced[delivery.target].entries);
  passage->id = addRecord(thread.actor, thread.time, fiber.loc, Access::Signal);
  touch(fiber.launch->rank, delivery.signal.address, sizeof(int64_t),
        passage->id, passage->clock);
  return passage;
}

} // namespace ditron::sim
