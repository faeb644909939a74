#include "abi/element.h"

#include <cmath>

namespace ditron::sim {

float halfToFloat(uint16_t half) {
  uint32_t sign = uint32_t(half & 0x8000) << 16;
  uint32_t exponent = (half >> 10) & 0x1f;
  uint32_t mantissa = half & 0x3ff;
  if (exponent == 0) {
    return std::copysign(std::ldexp(float(mantissa), -24), sign ? -1.0f : 1.0f);
  }
  uint32_t wide = exponent == 31 ? 0xff : exponent + (127 - 15);
  return bitCast<float>(sign | wide << 23 | mantissa << 13);
}

/// Drop the `dropped` low bits, to nearest even; a carry goes into the
/// exponent, which is right.
static uint32_t roundAway(uint32_t bits, int dropped) {
  uint32_t half = 1u << (dropped - 1);
  return (bits + half - 1 + ((bits >> dropped) & 1)) >> dropped;
}

uint16_t floatToHalf(float value) {
  uint32_t bits = bitCast<uint32_t>(value);
  auto sign = uint16_t((bits >> 16) & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) {
    return sign | 0x7e00; // a NaN
  }
  if (bits >= 0x477ff000) {
    return sign | 0x7c00; // rounds to infinity
  }
  if (bits < 0x38800000) {
    // Subnormal: a multiple of 2^-24, which nearbyint rounds to even.
    return sign |
           uint16_t(std::nearbyint(std::ldexp(bitCast<float>(bits), 24)));
  }
  return sign | uint16_t(roundAway(bits - (uint32_t(127 - 15) << 23), 13));
}

uint16_t floatToBfloat(float value) {
  uint32_t bits = bitCast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) {
    return uint16_t(bits >> 16) | 0x40;
  }
  return uint16_t(roundAway(bits & 0x7fffffff, 16)) |
         uint16_t((bits >> 16) & 0x8000);
}

float toFloat(DType dtype, uint64_t bits) {
  switch (dtype) {
  case DType::F16:
    return halfToFloat(uint16_t(bits));
  case DType::BF16:
    return bfloatToFloat(uint16_t(bits));
  default:
    return bitCast<float>(uint32_t(bits));
  }
}

uint64_t fromFloat(DType dtype, float value) {
  switch (dtype) {
  case DType::F16:
    return floatToHalf(value);
  case DType::BF16:
    return floatToBfloat(value);
  default:
    return bitCast<uint32_t>(value);
  }
}

} // namespace ditron::sim
