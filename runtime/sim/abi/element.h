// Values of any element type, as the bits of an i64.
#pragma once

#include "abi/abi.h"

#include <cstring>

namespace ditron::sim {

inline int32_t bytesOf(DType dtype) {
  switch (dtype) {
  case DType::F16:
  case DType::BF16:
    return 2;
  case DType::I64:
  case DType::F64:
  case DType::U64:
    return 8;
  default:
    return 4;
  }
}

template <typename To, typename From> To bitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

float halfToFloat(uint16_t half);
/// Rounds to nearest even, as the hardware does.
uint16_t floatToHalf(float value);

inline float bfloatToFloat(uint16_t bits) {
  return bitCast<float>(uint32_t(bits) << 16);
}
uint16_t floatToBfloat(float value);

/// `bytes` bytes at `p`, zero-extended.
inline uint64_t loadBits(const void *p, int32_t bytes) {
  uint64_t bits = 0;
  std::memcpy(&bits, p, bytes);
  return bits;
}

/// Whether the type is a floating-point one of at most 32 bits, which are
/// computed with in f32.
inline bool isSmallFloat(DType dtype) {
  return dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16;
}
float toFloat(DType dtype, uint64_t bits);
uint64_t fromFloat(DType dtype, float value);

} // namespace ditron::sim
