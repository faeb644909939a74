// Loads, stores and atomics with a scope, and multimem operations.
//
// Fibers switch only inside calls, so plain reads and writes of the host are
// atomic here. What the memory order does not rule out is up to WeakMemory.
#include "abi/call.h"
#include "abi/element.h"

#include <algorithm>
#include <mutex>
#include <utility>

using namespace ditron::sim;

/// One element after `kind` with `operand`; T's signedness decides what Max and
/// Min mean.
template <typename T> static T applyInteger(Rmw kind, T old, T operand) {
  using U = std::make_unsigned_t<T>;
  switch (kind) {
  case Rmw::And:
    return old & operand;
  case Rmw::Or:
    return old | operand;
  case Rmw::Xor:
    return old ^ operand;
  case Rmw::Add:
    return T(U(old) + U(operand));
  case Rmw::Max:
    return std::max(old, operand);
  case Rmw::Min:
    return std::min(old, operand);
  case Rmw::UMax:
    return T(std::max(U(old), U(operand)));
  case Rmw::UMin:
    return T(std::min(U(old), U(operand)));
  case Rmw::Xchg:
    return operand;
  default:
    throw Failure{format("atomic ", int(kind), " on integers"),
                  "this is a bug of the compiler"};
  }
}

template <typename T> static T applyFloat(Rmw kind, T old, T operand) {
  switch (kind) {
  case Rmw::Add:
  case Rmw::FAdd:
    return old + operand;
  case Rmw::Max:
    return std::max(old, operand);
  case Rmw::Min:
    return std::min(old, operand);
  case Rmw::Xchg:
    return operand;
  default:
    throw Failure{format("atomic ", int(kind), " on floating point"),
                  "this is a bug of the compiler"};
  }
}

static uint64_t apply(Rmw kind, DType dtype, uint64_t old, uint64_t operand) {
  if (kind == Rmw::Xchg) {
    return operand;
  }
  switch (dtype) {
  case DType::I32:
    return uint32_t(applyInteger(kind, int32_t(old), int32_t(operand)));
  case DType::U32:
    return applyInteger(kind, uint32_t(old), uint32_t(operand));
  case DType::I64:
    return uint64_t(applyInteger(kind, int64_t(old), int64_t(operand)));
  case DType::U64:
    return applyInteger(kind, old, operand);
  case DType::F64:
    return bitCast<uint64_t>(
        applyFloat(kind, bitCast<double>(old), bitCast<double>(operand)));
  default:
    return fromFloat(
        dtype, applyFloat(kind, toFloat(dtype, old), toFloat(dtype, operand)));
  }
}

/// Write where programs may wait for a change.
static void store(Machine &machine, Fiber &fiber, void *p, uint64_t bits,
                  int32_t bytes) {
  std::memcpy(p, &bits, bytes);
  observeWrite(machine, fiber, p);
  machine.scheduler.memoryChanged(p, size_t(bytes));
}

/// The effects of `sem` on weak memory, before a read-modify-write or a wait,
/// which itself accesses the coherent value.
static void order(Machine &machine, Fiber &fiber, const void *p, int32_t bytes,
                  int32_t scope, int32_t sem) {
  if (machine.weakMemory) {
    machine.weakMemory->flush(fiber, p, size_t(bytes));
    if (releases(sem)) {
      machine.weakMemory->release(fiber, isGpuScope(scope));
    }
    if (acquires(sem)) {
      machine.weakMemory->acquire(fiber);
    }
  }
}

static void read(Machine &machine, Fiber &fiber, const void *p, int32_t bytes,
                 int32_t scope, int32_t sem) {
  if (machine.races) {
    machine.races->access(fiber, p, size_t(bytes), Access::AtomicLoad);
    if (acquires(sem)) {
      machine.races->acquire(fiber, p, size_t(bytes), Scope(scope));
    } else {
      machine.races->acquireAtFence(fiber, p, size_t(bytes), Scope(scope));
    }
  }
}

static void readAndWrite(Machine &machine, Fiber &fiber, const void *p,
                         int32_t bytes, int32_t scope, int32_t sem,
                         Access kind = Access::Atomic) {
  if (machine.races) {
    machine.races->access(fiber, p, size_t(bytes), kind);
    if (acquires(sem)) {
      machine.races->acquire(fiber, p, size_t(bytes), Scope(scope));
    } else {
      machine.races->acquireAtFence(fiber, p, size_t(bytes), Scope(scope));
    }
    if (releases(sem)) {
      machine.races->release(fiber, p, size_t(bytes), Scope(scope));
    } else {
      machine.races->releaseFromFence(fiber, p, size_t(bytes), Scope(scope));
    }
  }
}

/// With a clock: to memory and back.
static void roundTrip(Machine &machine, Fiber &fiber, const void *p) {
  if (!machine.clock) {
    return;
  }
  int32_t rank = fiber.launch->rank;
  std::optional<Heap::Location> location = machine.heap.locate(p);
  int32_t peer = location && !location->multicast ? location->rank : rank;
  machine.clock->spendTime(fiber, (peer == rank ? 1 : 2) *
                                      machine.clock->latency(rank, peer));
  machine.clock->settle(fiber);
}

static int64_t loadOne(Machine &machine, Fiber &fiber, void *p, int32_t bytes,
                       int32_t scope, int32_t sem, bool isElement = false) {
  if (machine.weakMemory) {
    machine.weakMemory->invalidate(fiber, p, size_t(bytes));
    if (acquires(sem)) {
      machine.weakMemory->acquire(fiber);
    }
  }
  uint64_t bits = loadBits(p, bytes);
  read(machine, fiber, p, bytes, scope, sem);
  pollAtomic(machine, fiber, p, bits, bytes, isElement);
  return int64_t(bits);
}

int64_t ditron_sim_ld(void *p, int32_t bytes, int32_t scope, int32_t sem,
                      int32_t loc) {
  return call(loc, [=](Machine &machine, Fiber &fiber) {
    checkAccess(machine, fiber, p, bytes, "ld");
    roundTrip(machine, fiber, p);
    return loadOne(machine, fiber, p, bytes, scope, sem);
  });
}

void ditron_sim_ld_tensor(int32_t loc) {
  call(loc, [=](Machine &machine, Fiber &fiber) {
    fiber.history.beginTensor();
    if (machine.clock) {
      fiber.time->loadsTensor = true;
    }
  });
}

int64_t ditron_sim_ld_element(void *p, int32_t bytes, int32_t scope,
                              int32_t sem, int32_t loc) {
  return call(loc, [=](Machine &machine, Fiber &fiber) {
    checkAccess(machine, fiber, p, bytes, "ld");
    // All go at once: the first one's way to memory and back is that of all.
    if (machine.clock && std::exchange(fiber.time->loadsTensor, false)) {
      roundTrip(machine, fiber, p);
    }
    return loadOne(machine, fiber, p, bytes, scope, sem, true);
  });
}

void ditron_sim_st(void *p, int64_t bits, int32_t bytes, int32_t scope,
                   int32_t sem, int32_t loc) {
  call(loc, [=](Machine &machine, Fiber &fiber) {
    checkAccess(machine, fiber, p, bytes, "st");
    if (machine.clock && releases(sem)) {
      machine.clock->spendFence(fiber, Scope(scope));
    }
    settle(machine, fiber);
    std::function<void()> onVisible;
    if (machine.races) {
      machine.races->access(fiber, p, size_t(bytes), Access::AtomicStore);
      onVisible = machine.races->atomicStore(fiber, p, size_t(bytes),
                                             Scope(scope), releases(sem));
    }
    if (machine.weakMemory && releases(sem)) {
      machine.weakMemory->release(fiber, isGpuScope(scope));
    }
    bool buffered =
        machine.weakMemory &&
        machine.weakMemory->store(fiber, p, size_t(bytes), onVisible);
    if (onVisible && !buffered) {
      onVisible();
    }
    store(machine, fiber, p, uint64_t(bits), bytes);
    machine.scheduler.maybeYield(8);
  });
}

/// Programs that run in parallel access an address one at a time.
static std::unique_lock<std::mutex> lockFor(const Fiber &fiber, const void *p) {
  static std::mutex mutexes[64];
  if (!fiber.workerContext) {
    return {};
  }
  return std::unique_lock<std::mutex>(
      mutexes[reinterpret_cast<uintptr_t>(p) / 8 % 64]);
}

int64_t ditron_sim_atomic_rmw(void *p, int64_t bits, int32_t kind,
                              int32_t dtype, int32_t scope, int32_t sem,
                              int32_t loc) {
  return call(loc, [=](Machine &machine, Fiber &fiber) {
    int32_t bytes = bytesOf(DType(dtype));
    checkAccess(machine, fiber, p, bytes, "an atomic");
    if (machine.clock && releases(sem)) {
      machine.clock->spendFence(fiber, Scope(scope));
    }
    roundTrip(machine, fiber, p);
    order(machine, fiber, p, bytes, scope, sem);
    std::unique_lock<std::mutex> lock = lockFor(fiber, p);
    uint64_t old = loadBits(p, bytes);
    uint64_t fresh = apply(Rmw(kind), DType(dtype), old, uint64_t(bits));
    bool updates = Rmw(kind) != Rmw::Xchg && fresh != old;
    readAndWrite(machine, fiber, p, bytes, scope, sem,
                 updates ? Access::Update : Access::Atomic);
    if (fiber.workerContext) {
      std::memcpy(p, &fresh, size_t(bytes));
      return int64_t(old);
    }
    if (std::memcmp(&fresh, p, size_t(bytes)) == 0) {
      pollAtomic(machine, fiber, p, old,
                 bytes); // a kernel may spin by adding 0
    } else {
      observeRead(machine, fiber, p, old, bytes);
      store(machine, fiber, p, fresh, bytes);
      machine.scheduler.maybeYield(8);
    }
    return int64_t(old);
  });
}

int64_t ditron_sim_atomic_cas(void *p, int64_t expected, int64_t desired,
                              int32_t bytes, int32_t scope, int32_t sem,
                              int32_t loc) {
  return call(loc, [=](Machine &machine, Fiber &fiber) {
    checkAccess(machine, fiber, p, bytes, "an atomic");
    if (machine.clock && releases(sem)) {
      machine.clock->spendFence(fiber, Scope(scope));
    }
    roundTrip(machine, fiber, p);
    order(machine, fiber, p, bytes, scope, sem);
    uint64_t old = loadBits(p, bytes);
    bool fails = std::memcmp(&expected, p, size_t(bytes)) != 0;
    if (fails) {
      read(machine, fiber, p, bytes, scope, sem);
    } else {
      readAndWrite(machine, fiber, p, bytes, scope, sem);
    }
    if (fails || std::memcmp(&desired, p, size_t(bytes)) == 0) {
      pollAtomic(machine, fiber, p, old, bytes);
    } else {
      observeRead(machine, fiber, p, old, bytes);
      store(machine, fiber, p, uint64_t(desired), bytes);
      machine.scheduler.maybeYield(8);
    }
    return int64_t(old);
  });
}

/// `visit` the address of one element in the heap of each rank of the multicast
/// address's team.
template <typename Visit>
static void forEachReplica(Machine &machine, Fiber &fiber, void *p, DType dtype,
                           const char *what, Visit visit) {
  std::optional<Heap::Location> location = machine.heap.locate(p);
  if (!location || !location->multicast) {
    throw Failure{format(what, ": expected a multicast address, got ",
                         p ? format(p) : "null"),
                  p ? "make it by dl.multicast_ptr"
                    : "multicast_ptr gives null when the team spans nodes, "
                      "where multimem cannot reach"};
  }
  for (int32_t rank : fiber.launch->teams[int(location->team)]->ranks) {
    std::byte *local = machine.heap.at(fiber.launch->rank, location->offset);
    std::byte *element =
        symmetric(machine, fiber, local, bytesOf(dtype), rank, what);
    if (machine.weakMemory) {
      machine.weakMemory->flush(fiber, element, size_t(bytesOf(dtype)));
    }
    visit(element);
  }
}

static Rmw rmwOf(ReduceOp op, DType dtype) {
  switch (op) {
  case ReduceOp::Add:
    return isSmallFloat(dtype) || dtype == DType::F64 ? Rmw::FAdd : Rmw::Add;
  case ReduceOp::Min:
    return Rmw::Min;
  case ReduceOp::Max:
    return Rmw::Max;
  }
  throw Failure{format("reduction ", int(op)), "this is a bug of the compiler"};
}

int64_t ditron_sim_multimem_ld_reduce(void *p, int32_t op, int32_t dtype,
                                      int32_t loc) {
  return call(loc, [=](Machine &machine, Fiber &fiber) {
    settle(machine, fiber);
    DType type = DType(dtype);
    Rmw kind = rmwOf(ReduceOp(op), type);
    // Small floats are added up in f32 and rounded once.
    DType wide = isSmallFloat(type) ? DType::F32 : type;
    bool first = true;
    uint64_t sum = 0;
    forEachReplica(
        machine, fiber, p, type, "multimem_ld_reduce", [&](std::byte *element) {
          if (machine.races) {
            machine.races->access(fiber, element, size_t(bytesOf(type)),
                                  Access::Load);
          }
          uint64_t bits = loadBits(element, bytesOf(type));
          bits = wide == type ? bits : fromFloat(wide, toFloat(type, bits));
          sum =
              std::exchange(first, false) ? bits : apply(kind, wide, sum, bits);
        });
    observeRead(machine, fiber, p, sum, bytesOf(wide));
    machine.scheduler.maybeYield(8);
    return int64_t(wide == type ? sum : fromFloat(type, toFloat(wide, sum)));
  });
}

void ditron_sim_multimem_st(void *p, int64_t bits, int32_t dtype, int32_t loc) {
  call(loc, [=](Machine &machine, Fiber &fiber) {
    settle(machine, fiber);
    forEachReplica(
        machine, fiber, p, DType(dtype), "multimem_st",
        [&](std::byte *element) {
          if (machine.races) {
            machine.races->access(fiber, element, size_t(bytesOf(DType(dtype))),
                                  Access::Store);
          }
          store(machine, fiber, element, uint64_t(bits), bytesOf(DType(dtype)));
        });
    machine.scheduler.maybeYield(8);
  });
}

void ditron_sim_multimem_red(void *p, int64_t bits, int32_t op, int32_t dtype,
                             int32_t loc) {
  call(loc, [=](Machine &machine, Fiber &fiber) {
    settle(machine, fiber);
    DType type = DType(dtype);
    Rmw kind = rmwOf(ReduceOp(op), type);
    forEachReplica(machine, fiber, p, type, "multimem_red",
                   [&](std::byte *element) {
                     readAndWrite(machine, fiber, element, bytesOf(type), 2,
                                  int32_t(Semantic::Relaxed), Access::Update);
                     store(machine, fiber, element,
                           apply(kind, type, loadBits(element, bytesOf(type)),
                                 uint64_t(bits)),
                           bytesOf(type));
                   });
    machine.scheduler.maybeYield(8);
  });
}
