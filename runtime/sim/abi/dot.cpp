// c += a * b, the one computation here that has to be fast.
#include "abi/abi.h"

// Versions for AVX2 and AVX-512 beside the generic one, selected at the first
// product; other compilers and processors have the generic one only. The
// targets are x86-64 levels: GCC would take `arch=haswell` for exactly that
// processor.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&         \
    __GNUC__ >= 12
#define DITRON_SIM_LEVELS 1
#endif

namespace {

/// `Rows` rows by 2 vectors of `Bytes` bytes of c stay in registers over the
/// loop on k.
template <int Bytes, int Rows> struct Shape {
  static constexpr int bytes = Bytes;
  static constexpr int rows = Rows;
};
/// With 2 vectors of b and one element of a, the 16 registers of AVX2.
using Narrow = Shape<32, 6>;
/// Fewer rows than AVX-512's 32 registers could hold, but a power of two, as
/// tiles are.
using Wide = Shape<64, 8>;

template <typename S, typename T>
__attribute__((always_inline)) inline void
tile(const T *__restrict a, const T *__restrict b, T *__restrict c, int64_t k,
     int64_t lda, int64_t ldb, int64_t ldc) {
  typedef T Vector
      __attribute__((vector_size(S::bytes), aligned(alignof(T)), may_alias));
  constexpr int lanes = S::bytes / sizeof(T);
  Vector sum[S::rows][2];
#pragma GCC unroll 8
  for (int row = 0; row < S::rows; ++row) {
    sum[row][0] = *reinterpret_cast<const Vector *>(c + row * ldc);
    sum[row][1] = *reinterpret_cast<const Vector *>(c + row * ldc + lanes);
  }
  for (int64_t depth = 0; depth < k; ++depth) {
    Vector right0 = *reinterpret_cast<const Vector *>(b + depth * ldb);
    Vector right1 = *reinterpret_cast<const Vector *>(b + depth * ldb + lanes);
#pragma GCC unroll 8
    for (int row = 0; row < S::rows; ++row) {
      sum[row][0] += a[row * lda + depth] * right0;
      sum[row][1] += a[row * lda + depth] * right1;
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < S::rows; ++row) {
    *reinterpret_cast<Vector *>(c + row * ldc) = sum[row][0];
    *reinterpret_cast<Vector *>(c + row * ldc + lanes) = sum[row][1];
  }
}

/// Sizes smaller than a shape.
struct Edge {
  template <typename T>
  static __attribute__((always_inline)) inline void
  dot(const T *a, const T *b, T *c, int64_t m, int64_t n, int64_t k,
      int64_t lda, int64_t ldb, int64_t ldc) {
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t depth = 0; depth < k; ++depth) {
        T left = a[row * lda + depth];
        for (int64_t column = 0; column < n; ++column) {
          c[row * ldc + column] += left * b[depth * ldb + column];
        }
      }
    }
  }
};

/// Whole shapes, and `Rest` for the remainder at the right and at the bottom.
/// Every element is summed in the order of k, whatever the shape.
template <typename S, typename Rest> struct Blocked {
  template <typename T>
  static __attribute__((always_inline)) inline void
  dot(const T *a, const T *b, T *c, int64_t m, int64_t n, int64_t k,
      int64_t lda, int64_t ldb, int64_t ldc) {
    constexpr int64_t columns = 2 * S::bytes / sizeof(T);
    int64_t wholeRows = m / S::rows * S::rows,
            wholeColumns = n / columns * columns;
    for (int64_t column = 0; column < wholeColumns; column += columns) {
      for (int64_t row = 0; row < wholeRows; row += S::rows) {
        tile<S>(a + row * lda, b + column, c + row * ldc + column, k, lda, ldb,
                ldc);
      }
    }
    if (wholeColumns < n) {
      Rest::dot(a, b + wholeColumns, c + wholeColumns, wholeRows,
                n - wholeColumns, k, lda, ldb, ldc);
    }
    if (wholeRows < m) {
      Rest::dot(a + wholeRows * lda, b, c + wholeRows * ldc, m - wholeRows, n,
                k, lda, ldb, ldc);
    }
  }
};

using Plain = Blocked<Narrow, Edge>;
using Large = Blocked<Wide, Plain>;

#define DITRON_SIM_PARAMETERS                                                  \
  const T *a, const T *b, T *c, int64_t m, int64_t n, int64_t k, int64_t lda,  \
      int64_t ldb, int64_t ldc

template <typename T> void plainDot(DITRON_SIM_PARAMETERS) {
  Plain::dot(a, b, c, m, n, k, lda, ldb, ldc);
}

#ifdef DITRON_SIM_LEVELS
template <typename T>
__attribute__((target("arch=x86-64-v3"))) void avx2Dot(DITRON_SIM_PARAMETERS) {
  Plain::dot(a, b, c, m, n, k, lda, ldb, ldc);
}
template <typename T>
__attribute__((target("arch=x86-64-v4"))) void
avx512Dot(DITRON_SIM_PARAMETERS) {
  Large::dot(a, b, c, m, n, k, lda, ldb, ldc);
}
#endif

template <typename T> using Dot = void (*)(DITRON_SIM_PARAMETERS);

template <typename T> Dot<T> best() {
#ifdef DITRON_SIM_LEVELS
  if (__builtin_cpu_supports("x86-64-v4")) {
    return avx512Dot<T>;
  }
  if (__builtin_cpu_supports("x86-64-v3")) {
    return avx2Dot<T>;
  }
#endif
  return plainDot<T>;
}

template <typename T>
void dot(void *a, void *b, void *c, int64_t m, int64_t n, int64_t k,
         int64_t lda, int64_t ldb, int64_t ldc) {
  static const Dot<T> chosen = best<T>();
  chosen(static_cast<const T *>(a), static_cast<const T *>(b),
         static_cast<T *>(c), m, n, k, lda, ldb, ldc);
}

} // namespace

void ditron_sim_dot_f32(void *a, void *b, void *c, int64_t m, int64_t n,
                        int64_t k, int64_t lda, int64_t ldb, int64_t ldc) {
  dot<float>(a, b, c, m, n, k, lda, ldb, ldc);
}

void ditron_sim_dot_f64(void *a, void *b, void *c, int64_t m, int64_t n,
                        int64_t k, int64_t lda, int64_t ldb, int64_t ldc) {
  dot<double>(a, b, c, m, n, k, lda, ldb, ldc);
}

/// Unsigned, so that overflow wraps.
void ditron_sim_dot_i32(void *a, void *b, void *c, int64_t m, int64_t n,
                        int64_t k, int64_t lda, int64_t ldb, int64_t ldc) {
  dot<uint32_t>(a, b, c, m, n, k, lda, ldb, ldc);
}
