// Kernel launches.
#pragma once

#include "abi/abi.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ditron::sim {

class Stream;
struct Team;

/// A tensor that a kernel was given, to name addresses in reports.
struct Operand {
  std::string name;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t itemsize = 1;
  /// [first, end): the allocation that it is in; empty: unknown.
  uint64_t first = 0;
  uint64_t end = 0;
  int32_t argument = -1; ///< Number of the kernel's argument; -1: unknown.

  Operand(std::string name, uint64_t address, uint64_t bytes, uint64_t itemsize,
          uint64_t first = 0, uint64_t end = 0, int32_t argument = -1)
      : name(std::move(name)), address(address), bytes(bytes),
        itemsize(std::max<uint64_t>(itemsize, 1)), first(first), end(end),
        argument(argument) {}
};

/// One kernel launch of one rank.
struct Launch {
  uint64_t id = 0;
  int32_t rank = 0;                 ///< World rank.
  std::array<Team *, 3> teams = {}; ///< By TeamKind.
  int32_t node = 0; ///< Index of the rank's node among the group's nodes.
  Kernel kernel = nullptr;
  std::string name;
  std::vector<std::string> locations;
  std::vector<uint64_t> args;
  std::vector<Operand> operands;
  /// Programs access no ordinary memory but the operands' allocations.
  bool bounded = false;
  std::array<int32_t, 3> grid = {};
  Stream *stream = nullptr; ///< Null: launched by host code directly.
  int32_t queue = -1;  ///< The stream's in the race detector; -1: host code's.
  bool isCopy = false; ///< A copy or fill within the rank.
  bool isHostCall = false;
  /// A stream's wait in a CUDA graph: a kernel so small that it fits beside
  /// others, but which does not start before all of those launched earlier
  /// have.
  bool isWait = false;
  bool isStream = false; ///< No launch, but the stream's own operations.
  /// The programs do not communicate: they may run in parallel.
  bool independent = false;
  int32_t programsPerSm = 1; ///< That fit beside each other; with a clock.
  bool plain = false; ///< A kernel of plain Triton, without ditron operations.
  int64_t started = 0;
  /// Of those, programs that have given their slot to another launch.
  std::vector<std::array<int32_t, 3>> returned = {};
  int64_t finished = 0;
  /// Of an SM, in parts.
  static constexpr int32_t smParts = 64;
  int32_t weight() const {
    return isWait ? 0 : (smParts + programsPerSm - 1) / programsPerSm;
  }
  int64_t programs() const { return int64_t(grid[0]) * grid[1] * grid[2]; }
  int64_t notStarted() const {
    return programs() - started + int64_t(returned.size());
  }
  std::array<int32_t, 3> program(int64_t number) const {
    return {int32_t(number % grid[0]), int32_t(number / grid[0] % grid[1]),
            int32_t(number / grid[0] / grid[1])};
  }
};

} // namespace ditron::sim
