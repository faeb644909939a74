// c += a * b, the one computation that is worth doing well here.
#include "abi.h"

#include <algorithm>

// A second copy for AVX2 and FMA, chosen when the module is loaded; other
// compilers and machines get the plain one. The level is named, not a
// processor: GCC would take `arch=haswell` for that very processor only.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&         \
    __GNUC__ >= 12
#define DITRON_SIM_CLONES                                                      \
  __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define DITRON_SIM_CLONES
#endif

namespace {

/// 6 rows by 2 vectors of c stay in registers while k goes by: with 2 vectors
/// of b and one element of a, the 16 of AVX2.
template <typename T> struct Shape {
  static constexpr int64_t rows = 6;
  static constexpr int64_t lanes = 32 / sizeof(T);
  static constexpr int64_t columns = 2 * lanes;
};

template <typename T>
__attribute__((always_inline)) inline void
tile(const T *__restrict a, const T *__restrict b, T *__restrict c, int64_t k,
     int64_t lda, int64_t ldb, int64_t ldc) {
  typedef T Vector
      __attribute__((vector_size(32), aligned(alignof(T)), may_alias));
  Vector sum[Shape<T>::rows][2];
#pragma GCC unroll 6
  for (int row = 0; row < Shape<T>::rows; ++row) {
    sum[row][0] = *reinterpret_cast<const Vector *>(c + row * ldc);
    sum[row][1] =
        *reinterpret_cast<const Vector *>(c + row * ldc + Shape<T>::lanes);
  }
  for (int64_t depth = 0; depth < k; ++depth) {
    Vector right0 = *reinterpret_cast<const Vector *>(b + depth * ldb);
    Vector right1 =
        *reinterpret_cast<const Vector *>(b + depth * ldb + Shape<T>::lanes);
#pragma GCC unroll 6
    for (int row = 0; row < Shape<T>::rows; ++row) {
      sum[row][0] += a[row * lda + depth] * right0;
      sum[row][1] += a[row * lda + depth] * right1;
    }
  }
#pragma GCC unroll 6
  for (int row = 0; row < Shape<T>::rows; ++row) {
    *reinterpret_cast<Vector *>(c + row * ldc) = sum[row][0];
    *reinterpret_cast<Vector *>(c + row * ldc + Shape<T>::lanes) = sum[row][1];
  }
}

template <typename T>
__attribute__((always_inline)) inline void
edge(const T *a, const T *b, T *c, int64_t m, int64_t n, int64_t k, int64_t lda,
     int64_t ldb, int64_t ldc) {
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t depth = 0; depth < k; ++depth) {
      T left = a[row * lda + depth];
      for (int64_t column = 0; column < n; ++column) {
        c[row * ldc + column] += left * b[depth * ldb + column];
      }
    }
  }
}

template <typename T>
__attribute__((always_inline)) inline void
dot(const T *a, const T *b, T *c, int64_t m, int64_t n, int64_t k, int64_t lda,
    int64_t ldb, int64_t ldc) {
  constexpr int64_t rows = Shape<T>::rows, columns = Shape<T>::columns;
  int64_t wholeRows = m / rows * rows, wholeColumns = n / columns * columns;
  for (int64_t column = 0; column < wholeColumns; column += columns) {
    for (int64_t row = 0; row < wholeRows; row += rows) {
      tile(a + row * lda, b + column, c + row * ldc + column, k, lda, ldb, ldc);
    }
  }
  edge(a, b + wholeColumns, c + wholeColumns, wholeRows, n - wholeColumns, k,
       lda, ldb, ldc);
  edge(a + wholeRows * lda, b, c + wholeRows * ldc, m - wholeRows, n, k, lda,
       ldb, ldc);
}

} // namespace

DITRON_SIM_CLONES static void dotF32(const float *a, const float *b, float *c,
                                     int64_t m, int64_t n, int64_t k,
                                     int64_t lda, int64_t ldb, int64_t ldc) {
  dot(a, b, c, m, n, k, lda, ldb, ldc);
}

DITRON_SIM_CLONES static void dotF64(const double *a, const double *b,
                                     double *c, int64_t m, int64_t n, int64_t k,
                                     int64_t lda, int64_t ldb, int64_t ldc) {
  dot(a, b, c, m, n, k, lda, ldb, ldc);
}

/// Unsigned, so that overflow wraps.
DITRON_SIM_CLONES static void dotI32(const uint32_t *a, const uint32_t *b,
                                     uint32_t *c, int64_t m, int64_t n,
                                     int64_t k, int64_t lda, int64_t ldb,
                                     int64_t ldc) {
  dot(a, b, c, m, n, k, lda, ldb, ldc);
}

void ditron_sim_dot_f32(void *a, void *b, void *c, int64_t m, int64_t n,
                        int64_t k, int64_t lda, int64_t ldb, int64_t ldc) {
  dotF32(static_cast<float *>(a), static_cast<float *>(b),
         static_cast<float *>(c), m, n, k, lda, ldb, ldc);
}

void ditron_sim_dot_f64(void *a, void *b, void *c, int64_t m, int64_t n,
                        int64_t k, int64_t lda, int64_t ldb, int64_t ldc) {
  dotF64(static_cast<double *>(a), static_cast<double *>(b),
         static_cast<double *>(c), m, n, k, lda, ldb, ldc);
}

void ditron_sim_dot_i32(void *a, void *b, void *c, int64_t m, int64_t n,
                        int64_t k, int64_t lda, int64_t ldb, int64_t ldc) {
  dotI32(static_cast<uint32_t *>(a), static_cast<uint32_t *>(b),
         static_cast<uint32_t *>(c), m, n, k, lda, ldb, ldc);
}
