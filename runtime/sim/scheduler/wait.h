// What a program can wait for.
#pragma once

#include "abi/abi.h"

#include <cstddef>
#include <cstdint>

namespace ditron::sim {

struct Team;

struct Wait {
  enum class Kind {
    None,
    Signals,  ///< All signals compare true with the value.
    Transfer, ///< One transfer of the rank has been delivered.
    Quiet,    ///< All transfers of the rank up to one have been delivered.
    Barrier,
    Spin ///< Memory that the program polls has changed.
  };
  Kind kind = Kind::None;
  const int64_t *signals = nullptr;
  int32_t count = 0;
  int32_t stride = 1; ///< Words from one signal to the next.
  int32_t shift = 0;  ///< Low bits that are not part of one: packets' data.
  int64_t value = 0;
  Compare compare = Compare::Ge;
  /// Transfer: its id. Quiet: the first id that is not waited for. Barrier: the
  /// generation that is waited in.
  uint64_t id = 0;
  Team *team = nullptr;

  const int64_t *at(int32_t index) const {
    return signals + ptrdiff_t(index) * stride;
  }
  int64_t valueOf(const int64_t *signal) const {
    return shift ? int64_t(uint64_t(*signal) >> shift) : *signal;
  }
  bool isForDelivery() const {
    return kind == Kind::Quiet || kind == Kind::Transfer;
  }
  /// The first signal that does not compare true; null: none.
  const int64_t *firstUnsatisfied() const;
};

} // namespace ditron::sim
