// What the programs of a launch read of their products' operands, and how much
// of it comes from memory: programs that run at one time share what they read,
// and what the L2 cache still holds is read from there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace ditron::sim {

class OperandReads {
public:
  /// A program reads `bytes` from `address` on, in a wave: its first product is
  /// of wave 0, and programs of a wave run at one time. Returns a number.
  size_t read(const void *address, double bytes, int32_t wave);
  /// Its part of what is read from memory, all programs of its wave have read.
  double fromMemory(size_t number, double cache) const;

private:
  struct Read {
    uintptr_t address;
    int32_t wave;
    int32_t sharers = 0;
    double bytes = 0;
  };
  struct Place {
    uintptr_t address;
    int32_t wave;
    bool operator==(const Place &other) const {
      return address == other.address && wave == other.wave;
    }
  };
  struct Hash {
    size_t operator()(const Place &place) const {
      return (place.address + uint64_t(place.wave) * 0x9E3779B97F4A7C15) *
                 0xD6E8FEB86659FD93 >>
             16;
    }
  };
  std::vector<Read> reads;
  std::vector<double> volumes; ///< Bytes that a wave reads, each once.
  std::unordered_map<Place, size_t, Hash> numbers;
};

} // namespace ditron::sim
