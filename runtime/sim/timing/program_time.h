// What the clock keeps of a program.
#pragma once

#include <cstdint>
#include <map>

namespace ditron::sim {

/// Bytes that a program moves to or from one memory, between two points where
/// it communicates.
struct ProgramBytes {
  double loaded = 0;
  /// Stored: those that the products behind their stores do not hide.
  double stored = 0;
  double at = 0; ///< ns of products before the last store.
};

struct ProgramTime {
  double dots = 0;                       ///< ns of products that it has to do,
  double fixed = 0;                      ///< ns that pass beside nothing else,
  std::map<int32_t, ProgramBytes> bytes; ///< and bytes, by rank.
  double sharing = 1;  ///< Programs on its SM, which share its rates.
  int32_t sm = -1;     ///< That it runs on; -1: none.
  bool idle = true;    ///< Of a stream: it had to wait, or has not begun.
  bool fences = false; ///< It has to fence stores to peers.
  int64_t last = -1;   ///< The activity that decides what time it is for it.
  int64_t record = -1;
  int32_t outstanding = 0; ///< Parts of what it does now that are not over.

  bool hasPending() const {
    return dots > 0 || fixed > 0 || fences || !bytes.empty();
  }
};

} // namespace ditron::sim
