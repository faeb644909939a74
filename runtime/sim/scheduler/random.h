// Random numbers of a seed: the same on every platform, unlike <random>'s
// distributions.
#pragma once

#include <cstdint>

namespace ditron::sim {

class Random {
public:
  explicit Random(uint64_t seed) : state(seed) {}

  /// splitmix64.
  uint64_t next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  /// One of 0 .. count-1; the bias of the modulus does not matter here.
  uint64_t below(uint64_t count) { return next() % count; }
  bool oneIn(uint64_t count) { return below(count) == 0; }

private:
  uint64_t state;
};

} // namespace ditron::sim
