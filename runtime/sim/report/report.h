// What reports are made of.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace ditron::sim {

struct Fiber;

/// A program that waits, or one that did something wrong.
struct ProgramReport {
  std::string kernel; ///< Empty: the rank's host code, or a stream itself.
  std::string
      stream; ///< Where it runs: "stream copy", "main stream", or empty.
  std::string location; ///< file:line:col.
  int32_t rank = 0;
  std::array<int32_t, 3> program = {};
  std::string what;
  std::string hint;
  std::string kind;                  ///< As Failure's.
  std::vector<ProgramReport> others; ///< Of the other accesses involved.
};

/// What is wrong, and what to do about it. Thrown inside the machine; becomes
/// the user's SimulationError.
struct Failure {
  std::string what;
  std::string hint;
  std::string kind = ""; ///< race, unwritten, bounds, freed, signal, or other.
  std::vector<ProgramReport> others = {};
};

/// A report of a program at its latest call into the machine.
ProgramReport reportOf(const Fiber &fiber, std::string what,
                       std::string hint = "");

} // namespace ditron::sim
