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

} // namespace ditron::sim
