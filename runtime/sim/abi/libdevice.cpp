// Built with -frounding-math: the direction of rounding changes here.
#include "abi/libdevice.h"

#include <cfenv>
#include <cmath>
#include <limits>

using namespace ditron::sim;

static const double halfRootPi = 0.886226925452758013649083741671;

/// Of [0, 0.5]: Winitzki's estimate, then Halley's steps.
static double erfinvNearZero(double y) {
  double l = std::log1p(-y * y), a = 0.147;
  double t = 2 / (M_PI * a) + l / 2;
  double x = std::sqrt(std::sqrt(t * t - l / a) - t);
  for (int step = 0; step < 3; ++step) {
    double u = (std::erf(x) - y) * halfRootPi * std::exp(x * x);
    x -= u / (1 + x * u);
  }
  return x;
}

/// Of (0, 0.5): Newton's steps on the logarithm, which is nearly a parabola.
static double erfcinvOfTail(double y) {
  double x = std::sqrt(-std::log(y * std::sqrt(M_PI * -std::log(y))));
  for (int step = 0; step < 6; ++step) {
    double there = std::erfc(x);
    x += std::log(there / y) * there * halfRootPi * std::exp(x * x);
  }
  return x;
}

double ditron_sim_erfcinv(double y) {
  if (!(y > 0 && y < 2)) {
    double infinite = std::numeric_limits<double>::infinity();
    return y == 0 ? infinite : y == 2 ? -infinite : std::nan("");
  }
  if (y > 1) {
    return -ditron_sim_erfcinv(2 - y);
  }
  return y >= 0.5 ? erfinvNearZero(1 - y) : erfcinvOfTail(y);
}

double ditron_sim_erfinv(double y) {
  double size = std::fabs(y);
  double x = size <= 0.5 ? erfinvNearZero(size) : ditron_sim_erfcinv(1 - size);
  return std::copysign(x, y);
}

double ditron_sim_erfcx(double x) {
  if (x < 25) {
    return std::exp(x * x) * std::erfc(x);
  }
  double square = 1 / (2 * x * x); // of the asymptotic series
  return (1 - square * (1 - 3 * square)) / (2 * halfRootPi * x);
}

double ditron_sim_cyl_bessel_i0(double x) {
  return std::cyl_bessel_i(0, std::fabs(x));
}
double ditron_sim_cyl_bessel_i1(double x) {
  return std::copysign(std::cyl_bessel_i(1, std::fabs(x)), x);
}

/// While it lives, this thread rounds in that direction.
struct RoundingScope {
  explicit RoundingScope(int32_t mode) {
    constexpr int modes[] = {FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    std::fesetround(modes[mode]);
  }
  ~RoundingScope() { std::fesetround(FE_TONEAREST); }
};

/// Volatile, so that nothing is moved across the change of direction.
template <typename T>
static T rounded(int32_t op, int32_t mode, T first, T second, T third) {
  volatile T a = first, b = second, c = third, result = 0;
  RoundingScope scope(mode);
  switch (RoundedOp(op)) {
  case RoundedOp::Add:
    result = a + b;
    break;
  case RoundedOp::Sub:
    result = a - b;
    break;
  case RoundedOp::Mul:
    result = a * b;
    break;
  case RoundedOp::Div:
    result = a / b;
    break;
  case RoundedOp::Fma:
    result = std::fma(T(a), T(b), T(c));
    break;
  case RoundedOp::Sqrt:
    result = std::sqrt(T(a));
    break;
  }
  return result;
}

float ditron_sim_rounded_f32(int32_t op, int32_t mode, float a, float b,
                             float c) {
  return rounded(op, mode, a, b, c);
}
double ditron_sim_rounded_f64(int32_t op, int32_t mode, double a, double b,
                              double c) {
  return rounded(op, mode, a, b, c);
}

template <typename To, typename From>
static To converted(int32_t mode, From value) {
  volatile From a = value;
  RoundingScope scope(mode);
  volatile To result = To(a);
  return result;
}

float ditron_sim_rounded_to_f32(int32_t mode, double a) {
  return converted<float>(mode, a);
}
float ditron_sim_rounded_int_to_f32(int32_t mode, int64_t a, int32_t isSigned) {
  return isSigned ? converted<float>(mode, a)
                  : converted<float>(mode, uint64_t(a));
}
double ditron_sim_rounded_int_to_f64(int32_t mode, int64_t a,
                                     int32_t isSigned) {
  return isSigned ? converted<double>(mode, a)
                  : converted<double>(mode, uint64_t(a));
}
