// A wild pointer or a division by zero in a kernel becomes a report, not the
// end of the process.
#pragma once

#include "report/report.h"

namespace ditron::sim {

class Machine;
class StackPool;

/// While one lives, the signals that a program's bad instruction raises come
/// out of `runCatchingFaults`. Signals raised by other code go to the handlers
/// that were installed before.
class FaultGuard {
public:
  FaultGuard();
  FaultGuard(const FaultGuard &) = delete;
  ~FaultGuard();
};

struct Fault {
  int signal = 0;
  void *address = nullptr;
};

/// Call `body(context)`; false, and how, when a program faulted in it. Nothing
/// in between may have a destructor.
bool runCatchingFaults(void (*body)(void *), void *context, Fault &fault);

Failure describeFault(const Machine &machine, const Fiber &fiber,
                      const Fault &fault);
/// There is no memory for another stack.
Failure outOfStacks(const StackPool &stacks);

} // namespace ditron::sim
