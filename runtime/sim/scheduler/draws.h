// Branches that programs take so often, where timing-only mode does not know
// whether: the same whatever runs when.
#pragma once

#include "scheduler/launch.h"
#include "scheduler/random.h"

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>

namespace ditron::sim {

class Draws {
public:
  explicit Draws(uint64_t seed) : seed(seed) {}

  /// Whether a program that has come to `loc` is lucky: of the seed, the
  /// kernel, how often this program, also of earlier launches, has come there,
  /// and, unless it is the same for all, which program of which rank it is.
  bool draw(const Launch &launch, const std::array<int32_t, 3> &pid,
            int32_t loc, double probability, bool uniform) {
    uint64_t count = counts[{launch.name, launch.rank, loc, pid}]++;
    uint64_t hash = seed;
    for (char letter : launch.name) {
      hash = mix(hash, uint64_t(letter));
    }
    hash = mix(mix(hash, uint64_t(loc)), count);
    if (!uniform) {
      hash = mix(hash, uint64_t(launch.rank));
      for (int32_t index : pid) {
        hash = mix(hash, uint64_t(index));
      }
    }
    return double(hash >> 11) * 0x1p-53 < probability;
  }

private:
  static uint64_t mix(uint64_t hash, uint64_t value) {
    return Random(hash ^ value).next();
  }

  uint64_t seed;
  std::map<std::tuple<std::string, int32_t, int32_t, std::array<int32_t, 3>>,
           uint64_t>
      counts;
};

} // namespace ditron::sim
