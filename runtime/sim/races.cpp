// Who knows what: clocks of programs, scripts, transfers and signals.
#include "races.h"

#include "machine.h"
#include "text.h"

namespace ditron::sim {

/// Scripts are the first actors, one per rank; their launches never end.
constexpr uint32_t never = UINT32_MAX;

Races::Races(const Heap &heap, int32_t numRanks)
    : heap(heap), numRanks(numRanks), scripts(numRanks), spaces(numRanks + 1),
      flying(numRanks), lanesOf(numRanks), names(numRanks) {
  sources.push_back({"", {}});
  for (int32_t rank = 0; rank < numRanks; ++rank) {
    scripts[rank].clock = Clock(numRanks);
    lanes.push_back({rank, "", &scripts[rank]});
    lanesOf[rank].push_back(rank);
  }
  restart();
}

/// Everything so far is known to everybody: nothing of it can race again.
void Races::restart() {
  identities.clear();
  records.assign(1, {});
  readerSets.assign(1, {});
  grown.clear();
  spaces[0].shadow.clear();
  spaces[0].syncs.clear();
  ++restarts;
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    beginAgain(int32_t(lane));
  }
}

/// Scripts and streams are actors of their own; their knowledge begins here.
void Races::beginAgain(int32_t lane) {
  Thread &thread = *lanes[lane].thread;
  thread.actor = Actor(identities.size());
  identities.push_back(
      {lanes[lane].rank, never, lanes[lane].source, {0, 0, 0}, false, lane});
  thread.time = 1;
  thread.recent.clear();
  thread.clock.entries.clear();
  thread.clock.bases.clear();
  thread.clock.reach(thread.actor, thread.time);
  thread.fenced.clear();
  lanes[lane].itemsKnown += lanes[lane].unknown.size();
  lanes[lane].unknown.clear();
}

bool Races::isOver(const Identity &who, const Clock &clock) const {
  return Clock::of(who.travels ? clock.landed : clock.launches, who.lane) >
             who.launch ||
         (who.takes && Clock::of(clock.taken, who.lane) > who.launch);
}

bool Races::ordered(Actor actor, uint32_t time, const Clock &clock) const {
  return isOver(identities[actor], clock) || clock.of(actor) >= time;
}

/// What a thread does from here on is not known to those who have heard of it.
void Races::tick(Thread &thread) {
  thread.clock.reach(thread.actor, ++thread.time);
  thread.recent.clear();
}

/// Keep of a script's clock only what is not known by lane.
void Races::prune(Clock &clock) const {
  clock.flatten();
  auto known = [&](const auto &entry) {
    return isOver(identities[entry.first], clock);
  };
  clock.entries.erase(
      std::remove_if(clock.entries.begin(), clock.entries.end(), known),
      clock.entries.end());
}

void Races::launched(const Launch &launch) {
  Lane &lane = lanes[laneOf(launch)];
  Thread &owner = *lane.thread;
  auto key = reinterpret_cast<const void *>(launch.kernel);
  auto [found, fresh] = sourceOf.emplace(key, int32_t(sources.size()));
  if (fresh) {
    sources.push_back({launch.name, launch.locations});
  }
  owner.clock.flatten();
  running[launch.id] = {lane.launches++, found->second, owner.clock.shared(),
                        Clock(numRanks)};
  named(launch.rank, launch.operands);
  tick(owner);
}

void Races::begun(Fiber &fiber) {
  const Running &launch = running.at(fiber.launch->id);
  Thread &thread = fiber.thread;
  thread = Thread();
  thread.actor = Actor(identities.size());
  identities.push_back({fiber.launch->rank, launch.number, launch.source,
                        fiber.pid, false, laneOf(*fiber.launch)});
  thread.clock = launch.start;
  tick(thread);
}

void Races::ended(Fiber &fiber) {
  running.at(fiber.launch->id).end.join(fiber.thread.clock);
}

void Races::completed(const Launch &launch) {
  auto found = running.find(launch.id);
  int32_t lane = laneOf(launch);
  Clock &clock = lanes[lane].thread->clock;
  clock.join(found->second.end);
  uint32_t number = found->second.number;
  running.erase(found);
  Clock::set(clock.launches, lane, number + 1);
  // A program may have waited for all that it sent; then so has the launch.
  Flying &sent = flying[lane];
  bool landed = std::all_of(
      sent.channels.begin(), sent.channels.end(), [&](const Channel &c) {
        return ordered(c.actor, uint32_t(c.issued.size()), clock);
      });
  if (landed) {
    Clock::set(clock.landed, lane, number + 1);
    sent.clear();
  }
  sent.over = sent.channels.size();
  sent.of.clear();
  prune(clock);
  if (!launch.stream) {
    forgetCopies(launch.rank);
  }
  forgetLocal(launch.rank);
}

void Races::meet(const std::vector<int32_t> &ranks, bool quiet) {
  Clock all(numRanks);
  for (int32_t rank : ranks) {
    Clock &clock = scripts[rank].clock;
    if (quiet) {
      for (int32_t lane : lanesOf[rank]) {
        Clock::set(clock.landed, lane, Clock::of(clock.launches, lane));
        flying[lane].clear();
      }
    }
    all.join(clock);
  }
  prune(all);
  for (int32_t rank : ranks) {
    scripts[rank].clock = all;
    tick(scripts[rank]);
  }
  bool allKnown = true;
  for (size_t lane = numRanks; lane < lanes.size(); ++lane) {
    allKnown &= itemsKnown(int32_t(lane)) == lanes[lane].itemsEnqueued;
  }
  if (quiet && int32_t(ranks.size()) == numRanks && running.empty() &&
      allKnown) {
    restart();
  }
}

// --- signals and atomics ---------------------------------------------------

Races::Space &Races::spaceOf(int32_t rank, const void *p) {
  return spaces[heap.holds(p) ? 0 : 1 + rank];
}

static uintptr_t wordOf(const void *p) {
  return reinterpret_cast<uintptr_t>(p) & ~uintptr_t(7);
}

template <typename Visit>
void Races::forEachRelease(const Fiber &fiber, const void *p, bool narrow,
                           Visit visit) {
  int32_t rank = fiber.launch->rank;
  auto &syncs = spaceOf(rank, p).syncs;
  auto found = syncs.find(wordOf(p));
  if (found == syncs.end()) {
    return;
  }
  for (const Release &release : found->second.releases) {
    if (release.rank == rank || !(narrow || release.narrow)) {
      visit(release.clock);
    }
  }
}

void Races::acquire(Fiber &fiber, const void *p, bool narrow) {
  forEachRelease(fiber, p, narrow,
                 [&](const Clock &clock) { fiber.thread.clock.join(clock); });
}

void Races::hear(Fiber &fiber, const void *p, bool narrow) {
  std::optional<Clock> &heard = fiber.thread.heard;
  forEachRelease(fiber, p, narrow, [&](const Clock &clock) {
    if (heard) {
      heard->join(clock);
    } else {
      heard = clock;
    }
  });
}

void Races::giveOff(Sync &sync, Release release) {
  for (Release &other : sync.releases) {
    if (other.rank == release.rank && other.narrow == release.narrow) {
      other.clock.join(release.clock);
      return;
    }
  }
  sync.releases.push_back(std::move(release));
}

void Races::release(Fiber &fiber, const void *p, bool narrow) {
  int32_t rank = fiber.launch->rank;
  giveOff(spaceOf(rank, p).syncs[wordOf(p)],
          {rank, narrow, fiber.thread.clock});
  tick(fiber.thread);
}

void Races::tell(Fiber &fiber, const void *p, bool narrow) {
  int32_t rank = fiber.launch->rank;
  if (fiber.thread.fence) {
    giveOff(spaceOf(rank, p).syncs[wordOf(p)],
            {rank, narrow, *fiber.thread.fence});
  }
}

std::function<void()> Races::storing(Fiber &fiber, const void *p, bool narrow,
                                     bool releases) {
  Thread &thread = fiber.thread;
  std::optional<Clock> clock = releases ? thread.clock : thread.fence;
  if (releases) {
    tick(thread);
  }
  return
      [this, p, narrow, rank = fiber.launch->rank, clock = std::move(clock)] {
        auto &syncs = spaceOf(rank, p).syncs;
        auto found = syncs.find(wordOf(p));
        if (found != syncs.end()) {
          found->second.releases.clear();
        }
        if (clock) {
          giveOff(syncs[wordOf(p)], {rank, narrow, *clock});
        }
      };
}

/// Between a fence and a relaxed write the order is a release's, between a
/// relaxed read and a fence it is an acquire's.
void Races::orders(Fiber &fiber) {
  Thread &thread = fiber.thread;
  if (thread.heard) {
    thread.clock.join(*thread.heard);
    thread.heard.reset();
  }
  thread.fence = thread.clock;
  tick(thread);
}

std::optional<ProgramReport> Races::land(const Delivery &delivery) {
  const SignalWrite &signal = delivery.signal;
  Sync &sync = spaces[0].syncs[wordOf(signal.address)];
  const Record &after = records[delivery.passage->id];
  const Clock &clock = delivery.passage->clock;
  std::optional<ProgramReport> wrong;
  int64_t sum;
  if (signal.op == SignalOp::Add) {
    if (__builtin_add_overflow(*signal.address, signal.value, &sum)) {
      wrong = report(delivery.passage->id);
      wrong->what = format(heap.nameOf(signal.address), " wraps: adding ",
                           signal.value, " to ", *signal.address);
      wrong->hint = "signals only grow: 64 bits are enough for steps of one";
    }
  } else if (signal.value < *signal.address && sync.latest &&
             !ordered(records[sync.latest].actor, records[sync.latest].time,
                      clock)) {
    wrong = report(delivery.passage->id);
    wrong->what =
        format(heap.nameOf(signal.address), " of rank ", delivery.target,
               " goes backwards, from ", *signal.address, " to ", signal.value,
               ": this signal was overtaken by another");
    wrong->hint = onStreams(sync.latest, delivery.passage->id)
                      ? orderStreams
                      : "order the two: dl.quiet() (or dl.fence()) after the "
                        "first, or let "
                        "the receiver's answer come between them";
    wrong->others.push_back(report(sync.latest));
    wrong->others.back().what = "the one that came first";
  }
  if (wrong) {
    wrong->kind = "signal";
    return wrong;
  }
  if (signal.op == SignalOp::Set) {
    sync.releases.clear();
  }
  giveOff(sync,
          {identities[after.actor].rank, delivery.passage->narrow, clock});
  sync.latest = delivery.passage->id;
  return std::nullopt;
}

std::optional<ProgramReport> Races::senderOf(const void *signal) const {
  auto found = spaces[0].syncs.find(wordOf(signal));
  if (found == spaces[0].syncs.end() || !found->second.latest) {
    return std::nullopt;
  }
  return report(found->second.latest);
}

// --- transfers -------------------------------------------------------------

Races::Channel &Races::channel(Fiber &fiber, int32_t target, bool own) {
  Flying &sent = flying[laneOf(*fiber.launch)];
  Actor issuer = fiber.thread.actor;
  std::vector<size_t> &mine = sent.of[issuer];
  for (size_t index = 0; index < mine.size() && !own; ++index) {
    Channel &found = sent.channels[mine[index]];
    if (found.target == target && found.open) {
      return found;
    }
  }
  Identity who = identities[issuer];
  who.travels = target != who.rank;
  Channel fresh{Actor(identities.size()), issuer, target, {}, !own};
  identities.push_back(who);
  mine.push_back(sent.channels.size());
  sent.channels.push_back(std::move(fresh));
  return sent.channels.back();
}

/// How many transfers of a channel a program knows to have been issued.
size_t Races::known(const Channel &channel, const Thread &thread) const {
  const auto &issued = channel.issued;
  if (channel.issuer == thread.actor ||
      ordered(channel.issuer, never, thread.clock)) {
    return issued.size();
  }
  uint32_t time = thread.clock.of(channel.issuer);
  return size_t(std::upper_bound(issued.begin(), issued.end(), time) -
                issued.begin());
}

/// `visit(channel, count)` for the transfers of its rank that a program knows
/// to have been issued.
template <typename Visit>
void Races::forEachKnown(const Fiber &fiber, Visit visit) {
  auto look = [&](const Channel &channel) {
    if (size_t count = known(channel, fiber.thread)) {
      visit(channel, uint32_t(count));
    }
  };
  for (int32_t lane : lanesOf[fiber.launch->rank]) {
    const Flying &sent = flying[lane];
    for (size_t index = 0; index < sent.over; ++index) {
      look(sent.channels[index]);
    }
    if (sent.of.empty()) {
      continue;
    }
    const Clock::Entries heardOf = fiber.thread.clock.entries;
    for (const auto &entry : heardOf) { // the program itself is among them
      auto found = sent.of.find(entry.first);
      if (found != sent.of.end()) {
        for (size_t index : found->second) {
          look(sent.channels[index]);
        }
      }
    }
  }
}

void Races::fence(Fiber &fiber, int32_t target) {
  forEachKnown(fiber, [&](const Channel &channel, uint32_t count) {
    if (channel.target == target) {
      fiber.thread.fenced[target].reach(channel.actor, count);
    }
  });
}

void Races::fence(Fiber &fiber) {
  orders(fiber);
  forEachKnown(fiber, [&](const Channel &channel, uint32_t count) {
    if (channel.target >= 0) {
      fiber.thread.fenced[channel.target].reach(channel.actor, count);
    }
  });
}

void Races::quiet(Fiber &fiber) {
  forEachKnown(fiber, [&](const Channel &channel, uint32_t count) {
    fiber.thread.clock.reach(channel.actor, count);
  });
  orders(fiber);
}

std::shared_ptr<Passage> Races::put(Fiber &fiber, const Delivery &delivery,
                                    bool nbi) {
  Thread &thread = fiber.thread;
  bool signals = delivery.signal.address;
  Channel &transfers = channel(fiber, delivery.target, signals);
  transfers.issued.push_back(thread.time);
  Actor actor = transfers.actor;
  auto time = uint32_t(transfers.issued.size());
  auto passage = std::make_shared<Passage>();
  passage->clock = thread.clock;
  passage->clock.joinEntries(thread.fenced[delivery.target].entries);
  if (delivery.bytes) {
    // Both at once, though the bytes move later: clocks say what may happen
    // before they do.
    if (nbi) {
      touch(fiber.launch->rank, delivery.from, delivery.bytes,
            addRecord(actor, time, fiber.loc, Access::PutSource),
            passage->clock);
    } else {
      access(fiber, delivery.from, delivery.bytes, Access::PutSource);
    }
    touch(fiber.launch->rank, delivery.to, delivery.bytes,
          addRecord(actor, time, fiber.loc, Access::Put), passage->clock);
    copied(fiber, delivery.to, delivery.from, delivery.bytes);
  }
  if (signals) {
    passage->clock.reach(actor, time);
    passage->id = addRecord(actor, time, fiber.loc, Access::Signal);
    touch(fiber.launch->rank, delivery.signal.address, sizeof(int64_t),
          passage->id, passage->clock);
  }
  tick(thread);
  return signals ? passage : nullptr;
}

std::shared_ptr<Passage> Races::signal(Fiber &fiber, const Delivery &delivery,
                                       bool narrow) {
  std::shared_ptr<Passage> passage = put(fiber, delivery, false);
  passage->narrow = narrow;
  return passage;
}

void Races::get(Fiber &fiber, const Delivery &delivery, bool nbi) {
  if (!delivery.bytes) {
    return;
  }
  copied(fiber, delivery.to, delivery.from, delivery.bytes);
  if (!nbi) {
    access(fiber, delivery.from, delivery.bytes, Access::GetSource);
    access(fiber, delivery.to, delivery.bytes, Access::Get);
    return;
  }
  // Fences do not order gets: each is alone, and only quiet waits for it.
  Channel &transfer = channel(fiber, -1, true);
  transfer.issued.push_back(fiber.thread.time);
  Actor actor = transfer.actor;
  touch(fiber.launch->rank, delivery.from, delivery.bytes,
        addRecord(actor, 1, fiber.loc, Access::GetSource), fiber.thread.clock);
  touch(fiber.launch->rank, delivery.to, delivery.bytes,
        addRecord(actor, 1, fiber.loc, Access::Get), fiber.thread.clock);
  tick(fiber.thread);
}

void Races::arrive(Fiber &fiber, Team &team) {
  if (team.arrived == 0) {
    team.gathered = Clock(numRanks);
  }
  team.gathered.join(fiber.thread.clock);
}

void Races::leave(Fiber &fiber, const Team &team) {
  fiber.thread.clock.join(team.gathered);
  tick(fiber.thread);
}

} // namespace ditron::sim
