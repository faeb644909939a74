// What reports are made of.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace ditron::sim {

/// A program that waits, or one that did something wrong, in words.
struct ProgramReport {
  std::string kernel; ///< Empty: the rank's script, or its stream itself.
  std::string
      stream; ///< Where that is: "stream copy", "main stream", or empty.
  std::string location;
  int32_t rank = 0;
  std::array<int32_t, 3> program = {};
  std::string what;
  std::string hint;
  std::string kind;                  ///< Of the mistake, as Failure's.
  std::vector<ProgramReport> others; ///< Who else is part of it.
};

/// What is wrong, and what to do about it. Thrown inside the machine; becomes
/// the user's SimulationError.
struct Failure {
  std::string what;
  std::string hint;
  std::string kind = ""; ///< race, unwritten, bounds, freed, signal, or other.
  std::vector<ProgramReport> others = {};
};

} // namespace ditron::sim
