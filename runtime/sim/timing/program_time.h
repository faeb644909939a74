// What the clock keeps of a program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace ditron::sim {

/// Bytes that a program moves to or from one memory, between two points where
/// it communicates.
struct ProgramBytes {
  double loaded = 0;
  /// Stored: those that the products behind their stores do not hide.
  double stored = 0;
  double at = 0; ///< ns of products before the last store.
};

/// A loop over K: what it takes is due with the last of its products.
struct ProductLoop {
  double until = 0;   ///< The program's operations behind it.
  double latency = 0; ///< ns that its loads take at least.
  size_t operands = 0;
};

struct ProgramTime {
  double dots = 0;                       ///< ns of products that it has to do,
  double vector = 0, special = 0;        ///< of operations on elements,
  double fixed = 0;                      ///< ns that pass beside nothing else,
  std::map<int32_t, ProgramBytes> bytes; ///< and bytes, by rank.
  double operations = 0;                 ///< Of all products so far.
  std::vector<ProductLoop> loops;        ///< Those that are not due yet.
  /// What they read, by number among the launch's reads; what is due comes
  /// first.
  std::vector<size_t> operands;
  size_t due = 0;
  int32_t wave = -1;   ///< Of the last loop.
  double sharing = 1;  ///< Programs on its SM, which share its rates.
  int32_t sm = -1;     ///< That it runs on; -1: none.
  bool idle = true;    ///< Of a stream: it had to wait, or has not begun.
  bool fences = false; ///< It has to fence stores to peers.
  int64_t last = -1;   ///< The activity that decides what time it is for it.
  int64_t record = -1;
  int32_t outstanding = 0;  ///< Parts of what it does now that are not over.
  bool loadsTensor = false; ///< Of which it has not loaded an element yet.

  bool hasPending() const {
    return dots > 0 || vector > 0 || special > 0 || fixed > 0 || fences ||
           !bytes.empty();
  }
};

} // namespace ditron::sim
