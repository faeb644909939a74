// A program in execution: a stack of its own, on which it runs until it waits.
#pragma once

#include "races/thread_state.h"
#include "scheduler/access_history.h"
#include "scheduler/stack.h"
#include "scheduler/wait.h"
#include "timing/program_time.h"

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace ditron::sim {

struct Launch;

struct Fiber {
  Launch *launch = nullptr;
  std::array<int32_t, 3> pid = {};
  Stack stack;
  bool started = false;
  bool done = false;
  int32_t loc = -1;      ///< Of its last call into the machine.
  bool mayRepeat = true; ///< Whether that is in a loop that may not terminate.
  void **workerContext = nullptr; ///< Of the worker thread that runs it in
                                  ///< parallel with others; null: none.
  size_t waitIndex = 0;           ///< In the wait queue.
  int32_t traceSlot = -1; ///< Among its rank's resident programs, in a trace.
  Wait wait;
  AccessHistory history;
  ThreadState thread;
  std::unique_ptr<ProgramTime> time; ///< Null: there is no clock.
  std::vector<uintptr_t>
      watched; ///< Words, address / 8, whose change wakes it.

  /// The one that the calling thread runs; null: none.
  static Fiber *current();
  static void setCurrent(Fiber *fiber);
};

} // namespace ditron::sim
