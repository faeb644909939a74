// Vector clocks: which actions happened before a point of an execution.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace ditron::sim {

/// A logical thread, whose actions are in program order: a program, a rank's
/// host code, a stream, or the transfers of a program that one fence orders.
using ThreadId = uint32_t;

/// An action of a thread happened before the owner of the clock if the clock's
/// entry of that thread is at least the action's time.
///
/// Completed launches and their transfers are known by queue, so that a clock
/// does not grow with the number of programs that ever ran. A queue is where
/// launches are in order: a rank's host code (queue number = rank), or one of
/// its streams. The entries that a launch starts with are many and the same for
/// all of its programs, so these share them as a base.
struct VectorClock {
  using Counts = std::vector<uint32_t>; ///< Per queue.
  using Entries = std::vector<std::pair<ThreadId, uint32_t>>;

  explicit VectorClock(size_t queues = 0)
      : launches(queues), delivered(queues), packetsRead(queues) {}

  uint32_t of(ThreadId thread) const {
    uint32_t time = timeIn(entries, thread);
    for (const auto &base : bases) {
      time = std::max(time, timeIn(*base, thread));
    }
    return time;
  }

  /// Raise the entry of `thread` to `time`.
  void raise(ThreadId thread, uint32_t time) {
    auto found = entries.begin() + (find(entries, thread) - entries.cbegin());
    if (found != entries.end() && found->first == thread) {
      found->second = std::max(found->second, time);
    } else {
      entries.insert(found, {thread, time});
    }
  }

  void join(const VectorClock &other) {
    joinCounts(launches, other.launches);
    joinCounts(delivered, other.delivered);
    joinCounts(packetsRead, other.packetsRead);
    joinEntries(other.entries);
    for (const auto &base : other.bases) {
      if (std::find(bases.begin(), bases.end(), base) == bases.end()) {
        bases.push_back(base);
      }
    }
  }

  /// Merge the bases into the clock's own entries.
  void flatten() {
    for (const auto &base : bases) {
      joinEntries(*base);
    }
    bases.clear();
  }

  /// A copy of a flat clock whose entries are a base, to be shared.
  VectorClock shared() const {
    VectorClock start = *this;
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

  static uint32_t of(const Counts &counts, int32_t queue) {
    return size_t(queue) < counts.size() ? counts[queue] : 0;
  }
  static void set(Counts &counts, int32_t queue, uint32_t count) {
    counts.resize(std::max(counts.size(), size_t(queue) + 1));
    counts[queue] = count;
  }

  Counts launches;    ///< The first that many launches have completed.
  Counts delivered;   ///< The transfers of that many have been delivered.
  Counts packetsRead; ///< That many have read all packets that they wait for.
  Entries entries;    ///< Sorted by thread.
  std::vector<std::shared_ptr<const Entries>> bases;

private:
  static void joinCounts(Counts &mine, const Counts &theirs) {
    mine.resize(std::max(mine.size(), theirs.size()));
    for (size_t queue = 0; queue < theirs.size(); ++queue) {
      mine[queue] = std::max(mine[queue], theirs[queue]);
    }
  }
  static uint32_t timeIn(const Entries &entries, ThreadId thread) {
    auto found = find(entries, thread);
    return found != entries.end() && found->first == thread ? found->second : 0;
  }
  static Entries::const_iterator find(const Entries &entries, ThreadId thread) {
    return std::lower_bound(
        entries.begin(), entries.end(), thread,
        [](const auto &entry, ThreadId id) { return entry.first < id; });
  }
};

} // namespace ditron::sim
