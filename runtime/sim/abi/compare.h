// The comparisons of a wait.
#pragma once

#include "abi/abi.h"

namespace ditron::sim {

inline bool compares(Compare compare, int64_t actual, int64_t expected) {
  switch (compare) {
  case Compare::Eq:
    return actual == expected;
  case Compare::Ne:
    return actual != expected;
  case Compare::Gt:
    return actual > expected;
  case Compare::Ge:
    return actual >= expected;
  case Compare::Lt:
    return actual < expected;
  case Compare::Le:
    return actual <= expected;
  }
  return false;
}

inline const char *spelling(Compare compare) {
  constexpr const char *spellings[] = {"==", "!=", ">", ">=", "<", "<="};
  return spellings[int(compare)];
}

} // namespace ditron::sim
