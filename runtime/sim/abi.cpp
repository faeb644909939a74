// Ranks, symmetric pointers, signals, puts and gets, barriers.
#include "call.h"
#include "compare.h"
#include "number.h"

#include <cstdio>

using namespace ditron::sim;

static const Team &teamOf(int32_t team) {
  return *Machine::current()->launch->teams[team];
}

int32_t ditron_sim_rank(int32_t team) {
  return teamOf(team).indexOf[Machine::current()->launch->rank];
}
int32_t ditron_sim_num_ranks(int32_t team) {
  return int32_t(teamOf(team).ranks.size());
}
int32_t ditron_sim_local_rank() {
  return ditron_sim_rank(int32_t(TeamKind::Node));
}
int32_t ditron_sim_num_local_ranks() {
  return ditron_sim_num_ranks(int32_t(TeamKind::Node));
}
int32_t ditron_sim_node() { return Machine::current()->launch->node; }

void *ditron_sim_symm_at(void *p, int32_t rank, int32_t loc) {
  return call(loc, [=](Machine &machine, Fiber &fiber) -> void * {
    int32_t target = worldRank(fiber, rank);
    // Only the heap is checked, not the allocation: lanes that a mask turns off
    // may lie past the end.
    std::optional<Heap::Place> place = machine.heap.locate(p);
    if (!place || place->multicast) {
      throw Failure{p ? format("symm_at: expected a symmetric address, got ", p,
                               ", which is in no symmetric heap")
                      : "symm_at of a null pointer",
                    p ? "allocate the tensor by ditron.symm_empty or symm_zeros"
                      : "a tensor without elements is null: call symm_at where "
                        "there are some"};
    }
    if (place->rank != fiber.launch->rank) {
      throw Failure{format("symm_at: expected this rank's own symmetric "
                           "address, got one in the heap of rank ",
                           place->rank),
                    "apply symm_at once, to the pointer the kernel was given"};
    }
    return machine.nodeOf(target) == machine.nodeOf(fiber.launch->rank)
               ? machine.heap.at(target, place->offset)
               : nullptr;
  });
}

void *ditron_sim_multicast_ptr(void *p, int32_t team, int32_t loc) {
  return call(loc, [=](Machine &machine, Fiber &fiber) -> void * {
    std::optional<Heap::Place> place = machine.heap.locate(p);
    if (!place || place->multicast || place->rank != fiber.launch->rank) {
      throw Failure{
          format(
              "multicast_ptr: expected this rank's own symmetric address, got ",
              p),
          "pass the pointer of a tensor made by ditron.symm_empty or "
          "symm_zeros"};
    }
    for (int32_t rank : teamOf(team).ranks) {
      if (machine.nodeOf(rank) != machine.nodeOf(fiber.launch->rank)) {
        return nullptr;
      }
    }
    return machine.heap.multicastAt(TeamKind(team), place->offset);
  });
}

/// What checkAccess says of bytes, said of signals.
static void checkSignals(Machine &machine, const void *sig, int32_t n,
                         const char *what) {
  if (n < 0) {
    throw Failure{
        format(what, ": expected a count of at least 0 signals, got ", n),
        "check how the count is computed"};
  }
  std::optional<Heap::Place> place = machine.heap.locate(sig);
  std::optional<size_t> left =
      place ? machine.heap.bytesFrom(place->offset) : std::nullopt;
  if (left && size_t(n) > *left / 8) {
    throw Failure{format(what, " for ", n, " signals from ",
                         machine.heap.nameOf(sig), " on, where there are ",
                         *left / 8),
                  "check the pointer and the count (it counts signals, not "
                  "bytes), or allocate more",
                  "bounds"};
  }
}

static void waitForSignals(Machine &machine, Fiber &fiber, void *sig, int32_t n,
                           int64_t value, int32_t cmp, const char *what,
                           bool acquires = true, bool narrow = false) {
  checkSignals(machine, sig, n, what);
  checkAccess(machine, fiber, sig, int64_t(n) * 8, what);
  if (reinterpret_cast<uintptr_t>(sig) % 8 != 0) {
    throw Failure{
        format(what, ": expected a signal aligned to 8 bytes, got ", sig),
        "signals are int64 elements"};
  }
  Wait wait;
  wait.kind = Wait::Kind::Signals;
  wait.signals = static_cast<const int64_t *>(sig);
  wait.count = n;
  wait.value = value;
  wait.compare = Compare(cmp);
  TracedCall traced(
      machine.events.get(), fiber, what,
      [&] {
        return format("for ", machine.heap.nameOf(sig),
                      n > 1 ? format(" and ", n - 1, " more") : "", " ",
                      spelling(wait.compare), " ", value);
      },
      n > 0 ? sig : nullptr, n);
  machine.acted();
  machine.maybeYield();
  if (machine.visibility) {
    machine.visibility->settle(fiber, sig, size_t(n) * 8);
  }
  machine.block(wait);
  if (machine.visibility && acquires) {
    machine.visibility->acquire(fiber);
  }
  if (machine.races) {
    machine.races->access(fiber, sig, size_t(n) * 8, Access::Wait);
    for (int32_t index = 0; index < n; ++index) {
      if (acquires) {
        machine.races->acquire(fiber, wait.signals + index, narrow);
      } else {
        machine.races->hear(fiber, wait.signals + index, narrow);
      }
    }
  }
}

void ditron_sim_wait(void *sig, int32_t n, int64_t value, int32_t cmp,
                     int32_t scope, int32_t sem, int32_t loc) {
  call(loc, [=](Machine &machine, Fiber &fiber) {
    waitForSignals(machine, fiber, sig, n, value, cmp, "wait", acquires(sem),
                   isNarrow(scope));
  });
}

int64_t ditron_sim_signal_wait_until(void *sig, int64_t value, int32_t cmp,
                                     int32_t loc) {
  return call(loc, [=](Machine &machine, Fiber &fiber) {
    waitForSignals(machine, fiber, sig, 1, value, cmp, "signal_wait_until");
    return *static_cast<const int64_t *>(sig);
  });
}

static Delivery deliveryTo(const Fiber &fiber, int32_t target) {
  Delivery delivery;
  delivery.origin = fiber.launch->rank;
  delivery.target = target;
  delivery.launch = fiber.launch->id;
  return delivery;
}

static void send(Machine &machine, Fiber &fiber, Delivery delivery,
                 bool readNow) {
  delivery.id = machine.network.nextId();
  if (machine.events) {
    machine.events->sent(fiber, delivery);
  }
  Outside outside(machine.visibility.get(), fiber);
  machine.network.send(std::move(delivery), readNow);
}

static SignalWrite signalWrite(Machine &machine, Fiber &fiber, void *sig,
                               int64_t value, int32_t target, int32_t op,
                               const char *what) {
  if (reinterpret_cast<uintptr_t>(sig) % 8 != 0) {
    throw Failure{
        format(what, ": expected a signal aligned to 8 bytes, got ", sig),
        "signals are int64 elements"};
  }
  std::byte *address = symmetric(machine, fiber, sig, 8, target, what);
  return {reinterpret_cast<int64_t *>(address), value, SignalOp(op)};
}

static void sendSignal(Machine &machine, Fiber &fiber, void *sig, int64_t value,
                       int32_t rank, int32_t op, bool ordered, bool narrow,
                       const char *what) {
  Delivery delivery = deliveryTo(fiber, worldRank(fiber, rank));
  delivery.signal =
      signalWrite(machine, fiber, sig, value, delivery.target, op, what);
  TracedCall traced(machine.events.get(), fiber, what, [&] {
    return format(machine.heap.nameOf(sig), " of rank ", delivery.target,
                  SignalOp(op) == SignalOp::Add ? " += " : " = ", value);
  });
  if (ordered) {
    machine.network.fence(delivery.origin, delivery.target);
  }
  if (machine.visibility) {
    machine.visibility->release(fiber, narrow);
  }
  if (machine.races) {
    if (ordered) {
      machine.races->fence(fiber, delivery.target);
    }
    delivery.passage = machine.races->signal(fiber, delivery, narrow);
  }
  machine.wrote(delivery.signal.address);
  send(machine, fiber, std::move(delivery), false);
}

void ditron_sim_notify(void *sig, int64_t value, int32_t rank, int32_t op,
                       int32_t scope, int32_t loc) {
  call(loc, [=](Machine &machine, Fiber &fiber) {
    sendSignal(machine, fiber, sig, value, rank, op, true, isNarrow(scope),
               "notify");
    machine.maybeYield();
  });
}

void ditron_sim_signal_op(void *sig, int64_t value, int32_t rank, int32_t op,
                          int32_t loc) {
  call(loc, [=](Machine &machine, Fiber &fiber) {
    sendSignal(machine, fiber, sig, value, rank, op, false, false, "signal_op");
    machine.maybeYield();
  });
}

/// Let a wild pointer fault here, in the program, and not when the scheduler
/// lands what was sent.
static void touch(const void *p, int64_t bytes) {
  auto *bytewise = static_cast<const volatile char *>(p);
  if (bytes > 0) {
    (void)bytewise[0];
    (void)bytewise[bytes - 1];
  }
}

static void put(Machine &machine, Fiber &fiber, void *dst, void *src, int64_t n,
                SignalWrite signal, int32_t target, int32_t nbi,
                const char *what) {
  Delivery delivery = deliveryTo(fiber, target);
  delivery.to = symmetric(machine, fiber, dst, n, target, what);
  checkAccess(machine, fiber, src, n, what);
  delivery.from = static_cast<const std::byte *>(src);
  delivery.bytes = size_t(n);
  delivery.signal = signal;
  touch(src, n);
  TracedCall traced(machine.events.get(), fiber, what, [&] {
    return format(n, " bytes to ", machine.heap.nameOf(dst), " of rank ",
                  target);
  });
  if (n > 0 || signal.address) {
    if (machine.visibility) {
      machine.visibility->settle(fiber, src, size_t(n));
      machine.visibility->settle(fiber, delivery.to, size_t(n));
      if (signal.address) {
        machine.visibility->release(fiber);
      }
    }
    if (machine.races) {
      delivery.passage = machine.races->put(fiber, delivery, nbi);
    }
    machine.wrote(delivery.to);
    send(machine, fiber, std::move(delivery), !nbi);
  }
}

void ditron_sim_check_bytes(int64_t n, int32_t size, void *element,
                            int32_t loc) {
  if (n % size == 0) {
    return;
  }
  call(loc, [=](Machine &, Fiber &) {
    throw Failure{format(n, " bytes, not a multiple of the ", size,
                         " bytes of ", static_cast<const char *>(element)),
                  format("the count is of bytes, not of elements: multiply "
                         "by ",
                         size)};
  });
}

void ditron_sim_putmem(void *dst, void *src, int64_t n, int32_t rank,
                       int32_t nbi, int32_t loc) {
  call(loc, [=](Machine &machine, Fiber &fiber) {
    put(machine, fiber, dst, src, n, {}, worldRank(fiber, rank), nbi, "putmem");
    machine.maybeYield();
  });
}

void ditron_sim_putmem_signal(void *dst, void *src, int64_t n, void *sig,
                              int64_t value, int32_t rank, int32_t op,
                              int32_t nbi, int32_t loc) {
  call(loc, [=](Machine &machine, Fiber &fiber) {
    int32_t target = worldRank(fiber, rank);
    SignalWrite signal =
        signalWrite(machine, fiber, sig, value, target, op, "putmem_signal");
    put(machine, fiber, dst, src, n, signal, target, nbi, "putmem_signal");
    machine.maybeYield();
  });
}

void ditron_sim_getmem(void *dst, void *src, int64_t n, int32_t rank,
                       int32_t nbi, int32_t loc) {
  call(loc, [=](Machine &machine, Fiber &fiber) {
    Delivery delivery = deliveryTo(fiber, worldRank(fiber, rank));
    delivery.isGet = true;
    delivery.from =
        symmetric(machine, fiber, src, n, delivery.target, "getmem");
    checkAccess(machine, fiber, dst, n, "getmem");
    touch(dst, n);
    delivery.to = static_cast<std::byte *>(dst);
    delivery.bytes = size_t(n);
    const std::byte *from = delivery.from;
    uint64_t id = machine.network.nextId();
    TracedCall traced(machine.events.get(), fiber, "getmem", [&] {
      return format(n, " bytes of ", machine.heap.nameOf(src), " of rank ",
                    delivery.target);
    });
    if (n > 0) {
      if (machine.visibility) {
        machine.visibility->settle(fiber, delivery.from, size_t(n));
        machine.visibility->settle(fiber, dst, size_t(n));
      }
      if (machine.races) {
        machine.races->get(fiber, delivery, nbi);
      }
      send(machine, fiber, std::move(delivery), false);
    }
    if (nbi) {
      machine.maybeYield();
    } else {
      Wait wait;
      wait.kind = Wait::Kind::Arrival;
      wait.id = id;
      machine.block(wait);
    }
    // A loop may poll like that, too.
    if (n > 0 && n <= 8) {
      machine.polledOrdinarily(from, loadBits(from, int32_t(n)), int32_t(n));
    } else {
      machine.acted();
    }
  });
}

void ditron_sim_fence(int32_t loc) {
  call(loc, [](Machine &machine, Fiber &fiber) {
    TracedCall traced(machine.events.get(), fiber, "fence");
    machine.network.fence(fiber.launch->rank);
    if (machine.visibility) {
      machine.visibility->fence(fiber);
      machine.visibility->acquire(fiber);
    }
    if (machine.races) {
      machine.races->fence(fiber);
    }
    machine.maybeYield();
  });
}

static void quiet(Machine &machine, Fiber &fiber) {
  Wait wait;
  wait.kind = Wait::Kind::Quiet;
  wait.id = machine.network.nextId();
  if (machine.visibility) {
    machine.visibility->release(fiber);
  }
  machine.block(wait);
  if (machine.visibility) {
    machine.visibility->acquire(fiber);
  }
  if (machine.races) {
    machine.races->quiet(fiber);
  }
}

void ditron_sim_quiet(int32_t loc) {
  call(loc, [](Machine &machine, Fiber &fiber) {
    TracedCall traced(machine.events.get(), fiber, "quiet");
    quiet(machine, fiber);
    machine.maybeYield();
  });
}

static void barrier(int32_t team, bool withQuiet, int32_t loc) {
  call(loc, [=](Machine &machine, Fiber &fiber) {
    Team &members = *fiber.launch->teams[team];
    TracedCall traced(machine.events.get(), fiber,
                      withQuiet ? "barrier" : "sync_all",
                      [&] { return "of ranks " + join(members.ranks); });
    if (withQuiet) {
      quiet(machine, fiber);
    }
    machine.acted();
    if (machine.visibility) {
      machine.visibility->release(fiber);
    }
    machine.barrier(members);
    if (machine.visibility) {
      machine.visibility->acquire(fiber);
    }
  });
}

void ditron_sim_barrier_all(int32_t loc) {
  barrier(int32_t(TeamKind::Group), true, loc);
}
void ditron_sim_barrier(int32_t team, int32_t loc) { barrier(team, true, loc); }
void ditron_sim_sync_all(int32_t team, int32_t loc) {
  barrier(team, false, loc);
}

void ditron_sim_zero_divisor(int32_t loc) {
  call(loc, [=](Machine &, Fiber &) {
    throw Failure{"an integer is divided by zero, which on a GPU gives some "
                  "number",
                  "divide in an `if` that keeps zero out, or by "
                  "tl.maximum(n, 1)"};
  });
}

/// The `flags` of an ordinary access.
struct AccessFlags {
  bool isStore, isVolatile;
  int32_t argument;

  explicit AccessFlags(int32_t flags)
      : isStore(flags & 1), isVolatile(flags & 2), argument((flags >> 8) - 1) {}
  const char *what() const { return isStore ? "a store" : "a load"; }
  Beyond beyond() const { return isStore ? Beyond::Fails : Beyond::Warns; }
};

void ditron_sim_check_range(void *p, int64_t bytes, int32_t flags,
                            int32_t loc) {
  call(loc, [=, is = AccessFlags(flags)](Machine &machine, Fiber &fiber) {
    checkAccess(machine, fiber, p, bytes, is.what(), is.beyond(), is.argument);
    if (is.isStore) {
      machine.wrote(p);
    } else if (bytes <= 8 && !fiber.home) {
      machine.polledOrdinarily(p, loadBits(p, int32_t(bytes)), int32_t(bytes));
    }
  });
}

void ditron_sim_check_origin(void *p, int64_t bytes, int32_t argument,
                             void *what, int32_t loc) {
  call(loc, [=](Machine &machine, Fiber &fiber) {
    checkOrigin(machine, fiber, p, bytes, static_cast<const char *>(what),
                argument);
  });
}

void ditron_sim_record(void *p, int64_t bytes, int32_t flags, int32_t loc) {
  Run run{p, bytes};
  ditron_sim_record_runs(&run, 1, flags, loc);
}

void ditron_sim_record_runs(void *p, int64_t count, int32_t flags,
                            int32_t loc) {
  Runs runs{static_cast<const Run *>(p), size_t(count)};
  call(loc, [=, is = AccessFlags(flags)](Machine &machine, Fiber &fiber) {
    checkAccess(machine, fiber, runs, is.what(), is.beyond(), is.argument);
    if (machine.visibility) {
      for (const Run &run : runs) {
        if (is.isStore) {
          machine.visibility->store(fiber, run.address, size_t(run.bytes));
        } else if (is.isVolatile) {
          machine.visibility->refresh(fiber, run.address, size_t(run.bytes));
        } else {
          machine.visibility->load(fiber, run.address, size_t(run.bytes));
        }
      }
    }
    if (machine.races) {
      Access kind = is.isVolatile ? (is.isStore ? Access::AtomicStore
                                                : Access::AtomicLoad)
                                  : (is.isStore ? Access::Store : Access::Load);
      machine.races->access(fiber, runs, kind);
    }
  });
}
