// Functions of CUDA's libdevice that neither the C library nor MLIR has, for
// compiled kernels: `ditron_sim_<name>`, like the machine's (abi/abi.h).
#pragma once

#include <cstdint>

namespace ditron::sim {

enum class RoundedOp : int32_t { Add, Sub, Mul, Div, Fma, Sqrt };
/// Towards zero, down, up.
enum class Rounding : int32_t { Zero, Down, Up };

} // namespace ditron::sim

// clang-format off
#define DITRON_SIM_FUNCTIONS(X)                                                \
  X(double, erfinv, (double y))                                                \
  X(double, erfcinv, (double y))                                               \
  X(double, erfcx, (double x))                                                 \
  X(double, cyl_bessel_i0, (double x))                                         \
  X(double, cyl_bessel_i1, (double x))                                         \
  /* One operation that rounds in another direction; `op` and `mode` above. */ \
  X(float, rounded_f32, (int32_t op, int32_t mode, float a, float b, float c)) \
  X(double, rounded_f64,                                                       \
    (int32_t op, int32_t mode, double a, double b, double c))                  \
  X(float, rounded_to_f32, (int32_t mode, double a))                           \
  X(float, rounded_int_to_f32, (int32_t mode, int64_t a, int32_t isSigned))    \
  X(double, rounded_int_to_f64, (int32_t mode, int64_t a, int32_t isSigned))
// clang-format on

extern "C" {
#define DITRON_SIM_DECLARE(result, name, parameters)                           \
  result ditron_sim_##name parameters;
DITRON_SIM_FUNCTIONS(DITRON_SIM_DECLARE)
#undef DITRON_SIM_DECLARE
}
