// Vector clocks: what somebody knows to have happened before.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace ditron::sim {

/// Somebody whose actions follow each other: a program, a rank's script, or the
/// transfers of a program that a fence orders together.
using Actor = uint32_t;

/// What somebody knew when a launch began is long, and the same for all of its
/// programs: it is shared, and only what they learn later is their own.
///
/// An actor's action happened before the owner of the clock if the clock has
/// reached its time. Launches and transfers that are over are known by lane, so
/// that a clock does not grow with the number of programs that ever ran. A lane
/// is what launches follow each other on: a rank's script, or one of its
/// streams (the first lanes are the scripts', by rank).
struct Clock {
  using Lanes = std::vector<uint32_t>;

  explicit Clock(size_t lanes = 0)
      : launches(lanes), landed(lanes), taken(lanes) {}

  using Entries = std::vector<std::pair<Actor, uint32_t>>;

  uint32_t of(Actor actor) const {
    uint32_t time = in(entries, actor);
    for (const auto &base : bases) {
      time = std::max(time, in(*base, actor));
    }
    return time;
  }

  void reach(Actor actor, uint32_t time) {
    auto found = entries.begin() + (find(entries, actor) - entries.cbegin());
    if (found != entries.end() && found->first == actor) {
      found->second = std::max(found->second, time);
    } else {
      entries.insert(found, {actor, time});
    }
  }

  void join(const Clock &other) {
    joinLanes(launches, other.launches);
    joinLanes(landed, other.landed);
    joinLanes(taken, other.taken);
    joinEntries(other.entries);
    for (const auto &base : other.bases) {
      if (std::find(bases.begin(), bases.end(), base) == bases.end()) {
        bases.push_back(base);
      }
    }
  }

  /// Make all that is known the clock's own.
  void flatten() {
    for (const auto &base : bases) {
      joinEntries(*base);
    }
    bases.clear();
  }

  /// What others may start from: a flat clock's entries become a base.
  Clock shared() const {
    Clock start = *this;
    start.entries.clear();
    start.bases.push_back(std::make_shared<const Entries>(entries));
    return start;
  }

  void joinEntries(const Entries &others) {
    if (others.empty()) {
      return;
    }
    if (entries.empty()) {
      entries = others;
      return;
    }
    Entries both;
    both.reserve(entries.size() + others.size());
    auto mine = entries.begin();
    for (const auto &theirs : others) {
      while (mine != entries.end() && mine->first < theirs.first) {
        both.push_back(*mine++);
      }
      if (mine != entries.end() && mine->first == theirs.first) {
        both.push_back({theirs.first, std::max(mine->second, theirs.second)});
        ++mine;
      } else {
        both.push_back(theirs);
      }
    }
    both.insert(both.end(), mine, entries.end());
    entries.swap(both);
  }

  static uint32_t of(const Lanes &lanes, int32_t lane) {
    return size_t(lane) < lanes.size() ? lanes[lane] : 0;
  }
  static void set(Lanes &lanes, int32_t lane, uint32_t count) {
    lanes.resize(std::max(lanes.size(), size_t(lane) + 1));
    lanes[lane] = count;
  }

  Lanes launches; ///< Per lane: those before this are over.
  Lanes landed;   ///< Per lane: what launches before this sent has arrived.
  Lanes taken; ///< Per lane: of those before this, what takes packets is over.
  Entries entries; ///< By actor.
  std::vector<std::shared_ptr<const Entries>> bases;

private:
  static void joinLanes(Lanes &mine, const Lanes &theirs) {
    mine.resize(std::max(mine.size(), theirs.size()));
    for (size_t lane = 0; lane < theirs.size(); ++lane) {
      mine[lane] = std::max(mine[lane], theirs[lane]);
    }
  }
  static uint32_t in(const Entries &entries, Actor actor) {
    auto found = find(entries, actor);
    return found != entries.end() && found->first == actor ? found->second : 0;
  }
  static Entries::const_iterator find(const Entries &entries, Actor actor) {
    return std::lower_bound(
        entries.begin(), entries.end(), actor,
        [](const auto &entry, Actor a) { return entry.first < a; });
  }
};

} // namespace ditron::sim
