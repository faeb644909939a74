// The ABI of compiled kernels: all symbols of the machine that they may call.
//
// Lowered kernels call `ditron_sim_<name>`; the table below declares each
// function and gives Python its address (`ditron._sim.symbols()`), so that one
// is added in one place.
//
// Conventions. Enumerations are passed as the dialect's integers (below).
// Pointers are host addresses; a symmetric one lies in the caller's own heap
// unless said otherwise. `rank` is a rank of the group that the kernel was
// launched in. `loc` is an index into the kernel's location table, for reports,
// with the bit `mayRepeat`. Values of any element type are passed as their bits
// in the low bytes of an i64. Only calls switch to other programs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ditron::sim {

enum class TeamKind : int32_t { Group, Node, World };
/// Who takes part in the order of memory: programs of one rank, of one node,
/// all.
enum class Scope : int32_t { Gpu, Node, World };
enum class Semantic : int32_t { Relaxed, Acquire, Release, AcqRel };
enum class SignalOp : int32_t { Set, Add };
enum class Compare : int32_t { Eq, Ne, Gt, Ge, Lt, Le };
enum class ReduceOp : int32_t { Add, Min, Max };
enum class Protocol : int32_t { Simple, LL, LL128 };
enum class DType : int32_t { I32, I64, F32, F16, BF16, F64, U32, U64 };
/// In `loc`: the call is in a loop that may not terminate. Any other call is
/// made a bounded number of times, so that each is progress.
constexpr int32_t mayRepeat = 1 << 30;
/// Triton's RMWOp numbers.
enum class Rmw : int32_t {
  And = 1,
  Or,
  Xor,
  Add,
  FAdd,
  Max,
  Min,
  UMax,
  UMin,
  Xchg
};

/// A lowered kernel: `args` has one 8-byte slot per argument, then the
/// program's id and the grid.
using Kernel = void (*)(void *args, int32_t pid0, int32_t pid1, int32_t pid2,
                        int32_t n0, int32_t n1, int32_t n2);

/// Contiguous bytes of one access; an access of a tile has several ranges.
struct ByteRange {
  void *address;
  int64_t bytes; ///< 0: none, whatever the address.
};
struct ByteRanges {
  const ByteRange *first;
  size_t count;
  const ByteRange *begin() const { return first; }
  const ByteRange *end() const { return first + count; }
};

} // namespace ditron::sim

// clang-format off
#define DITRON_SIM_SYMBOLS(X)                                                                                          \
  /* Rank and size of a team; the last three are within the launch's group. */                                         \
  X(int32_t, rank, (int32_t team))                                                                                     \
  X(int32_t, num_ranks, (int32_t team))                                                                                \
  X(int32_t, local_rank, ())                                                                                           \
  X(int32_t, num_local_ranks, ())                                                                                      \
  X(int32_t, node, ())                                                                                                 \
  /* The address of `p` in `rank`'s heap; null when that rank is on another node. */                                   \
  X(void *, symm_at, (void *p, int32_t rank, int32_t loc))                                                             \
  /* An address for multimem operations over `team`; null when the team spans nodes. Ordinary accesses to it fault. */ \
  X(void *, multicast_ptr, (void *p, int32_t team, int32_t loc))                                                       \
  /* Return when every one of sig[0..n) compares true with `value`. Acquires. */                                       \
  X(void, wait, (void *sig, int32_t n, int64_t value, int32_t cmp, int32_t scope, int32_t sem, int32_t loc))           \
  /* Set or add to a signal of `rank`, ordered after all earlier puts of this rank to there. */                        \
  X(void, notify, (void *sig, int64_t value, int32_t rank, int32_t op, int32_t scope, int32_t loc))                    \
  /* The same, unordered. */                                                                                           \
  X(void, signal_op, (void *sig, int64_t value, int32_t rank, int32_t op, int32_t loc))                                \
  /* Wait for one signal and return its value. */                                                                      \
  X(int64_t, signal_wait_until, (void *sig, int64_t value, int32_t cmp, int32_t loc))                                  \
  /* Copy n bytes to (from) `rank`, on any node. The symmetric side is given by its address in the caller's heap. A    \
     put is delivered at any time until quiet or a barrier. `how` is 1 for nbi, whose source is read only then, plus   \
     2 for floats, which timing-only mode does not move. */                                                            \
  X(void, putmem, (void *dst, void *src, int64_t n, int32_t rank, int32_t how, int32_t loc))                           \
  X(void, getmem, (void *dst, void *src, int64_t n, int32_t rank, int32_t how, int32_t loc))                           \
  /* A put, and a signal that is delivered after its data. */                                                          \
  X(void, putmem_signal, (void *dst, void *src, int64_t n, void *sig, int64_t value, int32_t rank, int32_t op,         \
                          int32_t how, int32_t loc))                                                                   \
  /* Send n bytes as packets that carry `epoch` to packet memory of `rank`; wait for such a message here and unpack it. */\
  X(void, ll_put, (void *packets, void *src, int64_t n, int64_t epoch, int32_t rank, int32_t protocol, int32_t loc))   \
  X(void, ll_get, (void *dst, void *packets, int64_t n, int64_t epoch, int32_t protocol, int32_t loc))                 \
  /* Before one of these: fail unless n is a multiple of the `size` bytes of an `element` (`an f32`). */               \
  X(void, check_bytes, (int64_t n, int32_t size, void *element, int32_t loc))                                          \
  /* This rank's later puts to a peer are delivered after its earlier ones to that peer. */                            \
  X(void, fence, (int32_t loc))                                                                                        \
  /* Return when all transfers of this rank have completed. */                                                         \
  X(void, quiet, (int32_t loc))                                                                                        \
  /* Quiet, then a barrier of one program of every rank of the group (of the team). sync_all: without quiet. */        \
  X(void, barrier_all, (int32_t loc))                                                                                  \
  X(void, barrier, (int32_t team, int32_t loc))                                                                        \
  X(void, sync_all, (int32_t team, int32_t loc))                                                                       \
  /* Loads, stores and atomics of 1, 2, 4 or 8 bytes; the atomics return the old value. */                             \
  X(int64_t, ld, (void *p, int32_t bytes, int32_t scope, int32_t sem, int32_t loc))                                    \
  /* Before the elements of a tensor, all of which are loaded at once; and one of them. */                             \
  X(void, ld_tensor, (int32_t loc))                                                                                    \
  X(int64_t, ld_element, (void *p, int32_t bytes, int32_t scope, int32_t sem, int32_t loc))                            \
  X(void, st, (void *p, int64_t bits, int32_t bytes, int32_t scope, int32_t sem, int32_t loc))                         \
  X(int64_t, atomic_rmw, (void *p, int64_t bits, int32_t kind, int32_t dtype, int32_t scope, int32_t sem, int32_t loc))\
  X(int64_t, atomic_cas, (void *p, int64_t expected, int64_t desired, int32_t bytes, int32_t scope, int32_t sem,       \
                          int32_t loc))                                                                                \
  /* One element of all ranks of a multicast address's team; floating point is reduced in f32. */                      \
  X(int64_t, multimem_ld_reduce, (void *p, int32_t op, int32_t dtype, int32_t loc))                                    \
  X(void, multimem_st, (void *p, int64_t bits, int32_t dtype, int32_t loc))                                            \
  X(void, multimem_red, (void *p, int64_t bits, int32_t op, int32_t dtype, int32_t loc))                               \
  /* c += a * b on row-major buffers, [m, k] x [k, n]; ld* are row strides in elements. */                             \
  X(void, dot_f32, (void *a, void *b, void *c, int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb, int64_t ldc))\
  X(void, dot_i32, (void *a, void *b, void *c, int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb, int64_t ldc))\
  X(void, dot_f64, (void *a, void *b, void *c, int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb, int64_t ldc))\
  /* One line of device_print, and a failure with the message of a device_assert: printf's formats. */                 \
  X(void, print, (void *form, int32_t loc, ...))                                                                       \
  X(void, assert_fail, (void *form, int32_t loc, ...))                                                                 \
  /* A failure: an integer is divided by zero. */                                                                      \
  X(void, zero_divisor, (int32_t loc))                                                                                 \
  /* Before an ordinary access: check it for null, a heap on another node, and the end of a tensor; a load in a spin   \
     loop lets other programs run. flags: 1 a store, 2 volatile; from bit 8 on 1 + the number of the kernel's argument \
     that the address is computed from, or 0. */                                                                       \
  X(void, check_range, (void *p, int64_t bytes, int32_t flags, int32_t loc))                                           \
  /* Before another operation, called `what`, on bytes at `p`, which is computed from that argument of the kernel:     \
     check that they are in its tensor. The operation itself checks the rest. */                                       \
  X(void, check_origin, (void *p, int64_t bytes, int32_t argument, void *what, int32_t loc))                           \
  /* With a clock: the program does `amount` operations of products, or loads or stores as many bytes at `p` (null:    \
     of this rank's memory); `cost` is the dialect's. */                                                               \
  X(void, spend, (int32_t cost, int64_t amount, void *p))                                                              \
  /* 1 with this probability, else 0: of the seed, the program (unless `uniform`) and how often it has come to `loc`. */\
  X(int32_t, draw, (double probability, int32_t uniform, int32_t loc))                                                 \
  /* An ordinary access to contiguous bytes, for the race detector and weak memory. */                                 \
  X(void, record, (void *p, int64_t bytes, int32_t flags, int32_t loc))                                                \
  /* The same for `count` ranges of one access: pairs of an address and a number of bytes, 0 where there is none. */   \
  X(void, record_runs, (void *runs, int64_t count, int32_t flags, int32_t loc))
// clang-format on

extern "C" {
#define DITRON_SIM_DECLARE(result, name, parameters)                           \
  result ditron_sim_##name parameters;
DITRON_SIM_SYMBOLS(DITRON_SIM_DECLARE)
#undef DITRON_SIM_DECLARE
}
