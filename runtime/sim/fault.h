// A wild pointer or a division by zero in a kernel becomes a report, not the
// end of the process.
#pragma once

namespace ditron::sim {

/// While one lives, the signals that a program's bad instruction raises come
/// out of `Machine::guarded`. Signals raised by other code go to whoever
/// handled them before.
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

/// Call `body(context)`; false, and how, when a program did something bad in
/// it. Nothing in between may have a destructor.
bool survives(void (*body)(void *), void *context, Fault &fault);

} // namespace ditron::sim
