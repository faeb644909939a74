// The trace of a run: what happened, in order. Kept only when it is enabled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ditron::sim {

class Heap;
struct Transfer;
struct Fiber;
struct Launch;

/// `kind` says which of the other fields have a meaning:
///   launch, launch end     id of the launch; what: kernel; value: programs
///   begin, end             a program in its slot; what: kernel (program)
///   run, run end           the scheduler runs a program until it leaves
///   call, call end         one call into the machine; name, what, and for
///                          signals the address and count
///   send                   id, peer, bytes (0: a signal alone), address
///   data, signal           id is delivered: rank is where, peer who sent it
///   stream                 a stream (what) has the slot from here on
///   op, op end             an operation of the stream in that slot; what
struct TraceEvent {
  uint64_t time = 0;
  const char *kind = "";
  int32_t rank = -1;
  int32_t slot = -1; ///< Of the program among its rank's resident ones; -1:
                     ///< host code.
  uint64_t launch = 0;
  std::string location; ///< file:line:col of the call.
  const char *name = "";
  std::string what;
  uint64_t id = 0;
  int32_t peer = -1;
  uint64_t bytes = 0;
  uint64_t address = 0; ///< Of a signal.
  int64_t value = 0;
};

/// The trace of one machine. Its clock counts steps: each call of a program
/// into the machine, each time that one runs, and each event is one, so no two
/// events have the same time.
class Trace {
public:
  explicit Trace(size_t capacity) : capacity(capacity) {}

  /// Slots from here on are those of streams.
  static constexpr int32_t firstStream = 1 << 16;

  void tick() { ++clock; }
  /// Events have the time of `now`, in ns, instead of the step.
  void useTime(std::function<uint64_t()> now) { time = std::move(now); }
  /// The lowest slot of `rank` that no resident program has.
  int32_t takeSlot(int32_t rank);

  void launched(const Launch &launch);
  void launchCompleted(const Launch &launch);
  void programStarted(const Fiber &fiber);
  void programEnded(const Fiber &fiber);
  void resumed(const Fiber &fiber);
  void suspended(const Fiber &fiber);
  void called(const Fiber &fiber, const char *name, std::string what,
              const void *signal, int32_t count);
  void returned(const Fiber &fiber, const char *name, int64_t value);
  void sent(const Fiber &fiber, const Transfer &transfer);
  void delivered(const Heap &heap, const Transfer &transfer, const void *where,
                 size_t bytes);
  void streamCreated(const Fiber &fiber, const std::string &label);
  void streamOpBegins(const Fiber &fiber, const std::string &what);
  void streamOpEnds(const Fiber &fiber);
  /// What a rank's host code does: kind "call" or "call end" without a slot.
  void host(int32_t rank, bool begins, std::string what);

  std::vector<TraceEvent> take();
  /// Whether there were more events than the capacity.
  bool isTruncated() const { return truncated; }

private:
  TraceEvent *add(const char *kind);
  TraceEvent *add(const char *kind, const Fiber &fiber);

  size_t capacity;
  uint64_t clock = 0;
  std::function<uint64_t()> time; ///< Empty: steps are counted.
  bool truncated = false;
  std::vector<TraceEvent> events;
  std::vector<std::vector<bool>> taken; ///< Per rank, per slot.
};

/// A call of a program into the machine, in the trace: from here to the end of
/// the scope. `describe()` is called only when there is a trace.
class TracedCall {
public:
  template <typename Describe>
  TracedCall(Trace *trace, const Fiber &fiber, const char *name,
             Describe describe, const void *signal = nullptr, int32_t count = 0)
      : trace(trace), fiber(fiber), name(name),
        signal(static_cast<const int64_t *>(signal)) {
    if (trace) {
      trace->called(fiber, name, describe(), signal, count);
    }
  }
  TracedCall(Trace *trace, const Fiber &fiber, const char *name)
      : TracedCall(trace, fiber, name, [] { return std::string(); }) {}
  TracedCall(const TracedCall &) = delete;
  ~TracedCall() {
    if (trace) {
      trace->returned(fiber, name, signal ? *signal : 0);
    }
  }

private:
  Trace *trace;
  const Fiber &fiber;
  const char *name;
  const int64_t *signal;
};

} // namespace ditron::sim
