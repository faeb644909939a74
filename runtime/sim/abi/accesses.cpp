// Ordinary loads and stores, and checks of other operations' operands.
#include "abi/call.h"
#include "abi/element.h"

#include <optional>

using namespace ditron::sim;

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
  OutOfBounds outOfBounds() const {
    return isStore ? OutOfBounds::Fails : OutOfBounds::Warns;
  }
};

void ditron_sim_check_range(void *p, int64_t bytes, int32_t flags,
                            int32_t loc) {
  call(loc, [=, is = AccessFlags(flags)](Machine &machine, Fiber &fiber) {
    checkAccess(machine, fiber, p, bytes, is.what(), is.outOfBounds(),
                is.argument);
    if (is.isStore) {
      observeWrite(machine, fiber, p);
    } else if (bytes <= 8 && !fiber.workerContext) {
      pollOrdinary(machine, fiber, p, loadBits(p, int32_t(bytes)),
                   int32_t(bytes));
    }
  });
}

void ditron_sim_check_origin(void *p, int64_t bytes, int32_t argument,
                             void *what, int32_t loc) {
  call(loc, [=](Machine &machine, Fiber &fiber) {
    checkProvenance(machine, fiber, p, bytes, static_cast<const char *>(what),
                    argument);
  });
}

void ditron_sim_spend(int32_t cost, int64_t amount, void *p) {
  Machine &machine = *Machine::current();
  if (!machine.clock || amount <= 0) {
    return;
  }
  Fiber &fiber = *Fiber::current();
  std::optional<Heap::Location> location = machine.heap.locate(p);
  int32_t peer =
      location && !location->multicast ? location->rank : fiber.launch->rank;
  machine.clock->spend(fiber, Cost(cost), double(amount), peer, p);
}

int32_t ditron_sim_draw(double probability, int32_t uniform, int32_t loc) {
  const Fiber &fiber = *Fiber::current();
  return Machine::current()->draws.draw(*fiber.launch, fiber.pid,
                                        loc & ~mayRepeat, probability, uniform);
}

void ditron_sim_record(void *p, int64_t bytes, int32_t flags, int32_t loc) {
  ByteRange range{p, bytes};
  ditron_sim_record_runs(&range, 1, flags, loc);
}

void ditron_sim_record_runs(void *p, int64_t count, int32_t flags,
                            int32_t loc) {
  ByteRanges ranges{static_cast<const ByteRange *>(p), size_t(count)};
  call(loc, [=, is = AccessFlags(flags)](Machine &machine, Fiber &fiber) {
    checkAccess(machine, fiber, ranges, is.what(), is.outOfBounds(),
                is.argument);
    if (machine.weakMemory) {
      for (const ByteRange &range : ranges) {
        if (is.isStore) {
          machine.weakMemory->store(fiber, range.address, size_t(range.bytes));
        } else if (is.isVolatile) {
          machine.weakMemory->invalidate(fiber, range.address,
                                         size_t(range.bytes));
        } else {
          machine.weakMemory->load(fiber, range.address, size_t(range.bytes));
        }
      }
    }
    if (machine.races) {
      Access kind = is.isVolatile ? (is.isStore ? Access::AtomicStore
                                                : Access::AtomicLoad)
                                  : (is.isStore ? Access::Store : Access::Load);
      machine.races->access(fiber, ranges, kind);
    }
  });
}
