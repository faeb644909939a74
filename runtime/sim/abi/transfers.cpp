// Puts, gets and signals; fence, quiet and barriers.
#include "abi/call.h"
#include "abi/element.h"

#include <utility>

using namespace ditron::sim;

/// How a put or get is done.
constexpr int32_t isNbi = 1;
constexpr int32_t isFloats = 2; ///< Which timing-only mode does not move.

static Transfer transferTo(const Fiber &fiber, int32_t target) {
  Transfer transfer;
  transfer.origin = fiber.launch->rank;
  transfer.target = target;
  transfer.launch = fiber.launch->id;
  return transfer;
}

static void send(Machine &machine, Fiber &fiber, Transfer transfer,
                 bool readNow) {
  transfer.id = machine.network.nextId();
  if (machine.trace) {
    machine.trace->sent(fiber, transfer);
  }
  CoherentScope coherent(machine.weakMemory.get(), fiber);
  machine.network.send(std::move(transfer), readNow);
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
                       int32_t rank, int32_t op, bool ordered, Scope scope,
                       const char *what) {
  Transfer transfer = transferTo(fiber, worldRank(fiber, rank));
  transfer.signal =
      signalWrite(machine, fiber, sig, value, transfer.target, op, what);
  TracedCall traced(machine.trace.get(), fiber, what, [&] {
    return format(machine.heap.nameOf(sig), " of rank ", transfer.target,
                  SignalOp(op) == SignalOp::Add ? " += " : " = ", value);
  });
  if (machine.clock) {
    if (ordered) {
      machine.clock->spendFence(fiber, scope);
    }
    machine.clock->settle(fiber);
  }
  if (ordered) {
    machine.network.fence(transfer.origin, transfer.target);
  }
  if (machine.weakMemory) {
    machine.weakMemory->release(fiber, scope == Scope::Gpu);
  }
  if (machine.races) {
    if (ordered) {
      machine.races->fence(fiber, transfer.target);
    }
    transfer.message = machine.races->signal(fiber, transfer, scope);
  }
  observeWrite(machine, fiber, transfer.signal.address);
  send(machine, fiber, std::move(transfer), false);
}

void ditron_sim_notify(void *sig, int64_t value, int32_t rank, int32_t op,
                       int32_t scope, int32_t loc) {
  call(loc, [=](Machine &machine, Fiber &fiber) {
    sendSignal(machine, fiber, sig, value, rank, op, true, Scope(scope),
               "notify");
    machine.scheduler.maybeYield();
  });
}

void ditron_sim_signal_op(void *sig, int64_t value, int32_t rank, int32_t op,
                          int32_t loc) {
  call(loc, [=](Machine &machine, Fiber &fiber) {
    sendSignal(machine, fiber, sig, value, rank, op, false, Scope::World,
               "signal_op");
    machine.scheduler.maybeYield();
  });
}

/// Let a wild pointer fault in the program, and not when the transfer is
/// delivered.
static void touch(const void *p, int64_t bytes) {
  auto *bytewise = static_cast<const volatile char *>(p);
  if (bytes > 0) {
    (void)bytewise[0];
    (void)bytewise[bytes - 1];
  }
}

static void put(Machine &machine, Fiber &fiber, void *dst, void *src, int64_t n,
                SignalWrite signal, int32_t target, int32_t how,
                const char *what) {
  bool nbi = how & isNbi;
  Transfer transfer = transferTo(fiber, target);
  transfer.isDropped = machine.isTimingOnly() && how & isFloats;
  transfer.to = symmetric(machine, fiber, dst, n, target, what);
  checkAccess(machine, fiber, src, n, what);
  transfer.from = static_cast<const std::byte *>(src);
  transfer.bytes = size_t(n);
  transfer.signal = signal;
  touch(src, n);
  TracedCall traced(machine.trace.get(), fiber, what, [&] {
    return format(n, " bytes to ", machine.heap.nameOf(dst), " of rank ",
                  target);
  });
  if (machine.clock) {
    machine.clock->move(fiber, target, double(n), true);
  }
  if (n > 0 || signal.address) {
    if (machine.weakMemory) {
      machine.weakMemory->flush(fiber, src, size_t(n));
      machine.weakMemory->flush(fiber, transfer.to, size_t(n));
      if (signal.address) {
        machine.weakMemory->release(fiber);
      }
    }
    if (machine.races) {
      transfer.message = machine.races->put(fiber, transfer, nbi);
    }
    observeWrite(machine, fiber, transfer.to);
    send(machine, fiber, std::move(transfer), !nbi);
  }
}

void ditron_sim_putmem(void *dst, void *src, int64_t n, int32_t rank,
                       int32_t how, int32_t loc) {
  call(loc, [=](Machine &machine, Fiber &fiber) {
    put(machine, fiber, dst, src, n, {}, worldRank(fiber, rank), how, "putmem");
    machine.scheduler.maybeYield();
  });
}

void ditron_sim_putmem_signal(void *dst, void *src, int64_t n, void *sig,
                              int64_t value, int32_t rank, int32_t op,
                              int32_t how, int32_t loc) {
  call(loc, [=](Machine &machine, Fiber &fiber) {
    int32_t target = worldRank(fiber, rank);
    SignalWrite signal =
        signalWrite(machine, fiber, sig, value, target, op, "putmem_signal");
    put(machine, fiber, dst, src, n, signal, target, how, "putmem_signal");
    machine.scheduler.maybeYield();
  });
}

void ditron_sim_getmem(void *dst, void *src, int64_t n, int32_t rank,
                       int32_t how, int32_t loc) {
  call(loc, [=](Machine &machine, Fiber &fiber) {
    bool nbi = how & isNbi;
    Transfer transfer = transferTo(fiber, worldRank(fiber, rank));
    transfer.isGet = true;
    transfer.isDropped = machine.isTimingOnly() && how & isFloats;
    transfer.from =
        symmetric(machine, fiber, src, n, transfer.target, "getmem");
    checkAccess(machine, fiber, dst, n, "getmem");
    touch(dst, n);
    transfer.to = static_cast<std::byte *>(dst);
    transfer.bytes = size_t(n);
    const std::byte *from = transfer.from;
    uint64_t id = machine.network.nextId();
    TracedCall traced(machine.trace.get(), fiber, "getmem", [&] {
      return format(n, " bytes of ", machine.heap.nameOf(src), " of rank ",
                    transfer.target);
    });
    if (machine.clock) {
      machine.clock->move(fiber, transfer.target, double(n), false);
      id = machine.network.nextId();
    }
    if (n > 0) {
      if (machine.weakMemory) {
        machine.weakMemory->flush(fiber, transfer.from, size_t(n));
        machine.weakMemory->flush(fiber, dst, size_t(n));
      }
      if (machine.races) {
        machine.races->get(fiber, transfer, nbi);
      }
      send(machine, fiber, std::move(transfer), false);
    }
    if (nbi) {
      machine.scheduler.maybeYield();
    } else {
      Wait wait;
      wait.kind = Wait::Kind::Transfer;
      wait.id = id;
      machine.scheduler.block(wait);
    }
    // A loop may spin on a get, too.
    if (n > 0 && n <= 8) {
      pollOrdinary(machine, fiber, from, loadBits(from, int32_t(n)),
                   int32_t(n));
    } else {
      observeEffect(machine, fiber);
    }
  });
}

void ditron_sim_fence(int32_t loc) {
  call(loc, [](Machine &machine, Fiber &fiber) {
    TracedCall traced(machine.trace.get(), fiber, "fence");
    if (machine.clock) {
      machine.clock->spendFence(fiber, Scope::World);
    }
    settle(machine, fiber);
    machine.network.fence(fiber.launch->rank);
    if (machine.weakMemory) {
      machine.weakMemory->fence(fiber);
      machine.weakMemory->acquire(fiber);
    }
    if (machine.races) {
      machine.races->fence(fiber);
    }
    machine.scheduler.maybeYield();
  });
}

static void quiet(Machine &machine, Fiber &fiber) {
  settle(machine, fiber);
  Wait wait;
  wait.kind = Wait::Kind::Quiet;
  wait.id = machine.network.nextId();
  if (machine.weakMemory) {
    machine.weakMemory->release(fiber);
  }
  machine.scheduler.block(wait);
  if (machine.weakMemory) {
    machine.weakMemory->acquire(fiber);
  }
  if (machine.races) {
    machine.races->quiet(fiber);
  }
}

void ditron_sim_quiet(int32_t loc) {
  call(loc, [](Machine &machine, Fiber &fiber) {
    TracedCall traced(machine.trace.get(), fiber, "quiet");
    quiet(machine, fiber);
    machine.scheduler.maybeYield();
  });
}

static void barrier(int32_t team, bool withQuiet, int32_t loc) {
  call(loc, [=](Machine &machine, Fiber &fiber) {
    Team &members = *fiber.launch->teams[team];
    TracedCall traced(machine.trace.get(), fiber,
                      withQuiet ? "barrier" : "sync_all",
                      [&] { return "of ranks " + join(members.ranks); });
    if (withQuiet) {
      quiet(machine, fiber);
    }
    observeEffect(machine, fiber);
    settle(machine, fiber);
    if (machine.weakMemory) {
      machine.weakMemory->release(fiber);
    }
    machine.barrier(members);
    if (machine.clock) {
      machine.clock->sleep(fiber, "barrier", machine.clock->model.barrier);
    }
    if (machine.weakMemory) {
      machine.weakMemory->acquire(fiber);
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
