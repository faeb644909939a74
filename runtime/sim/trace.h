// What a run did, in the order it happened: kept only when somebody asked for
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ditron::sim {

class Heap;
class Machine;
struct Delivery;
struct Fiber;
struct Launch;

/// One line of the record. `kind` says which of the other fields mean anything:
///   launch, launch end     id of the launch; what: kernel; value: programs
///   begin, end             a program at its place; what: kernel (program)
///   turn, turn end         the scheduler lets a program run until it stops
///   call, call end         one call into the machine; name, what, and for
///                          signals the address and count
///   send                   id, peer, bytes (0: a signal alone), address
///   data, signal           id arrives: rank is where, peer who sent it
///   stream                 a stream (what) has the place from here on
///   item, item end         an item of the stream at that place; what it does
struct TraceEvent {
  uint64_t time = 0;
  const char *kind = "";
  int32_t rank = -1;
  int32_t place = -1; ///< Of the program among its rank's resident ones.
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

/// The record of one machine. Its clock counts steps: each call of a program
/// into the machine, each turn, and each event is one, so no two events happen
/// at the same time.
class Trace {
public:
  explicit Trace(size_t capacity) : capacity(capacity) {}

  /// Streams have places too, from here on.
  static constexpr int32_t firstStream = 1 << 16;

  void tick() { ++clock; }
  /// The lowest place of `rank` that no resident program has.
  int32_t takePlace(int32_t rank);

  void launched(const Launch &launch);
  void completed(const Launch &launch);
  void begun(const Fiber &fiber);
  void ended(const Fiber &fiber);
  void turn(const Fiber &fiber);
  void turnEnded(const Fiber &fiber);
  void called(const Fiber &fiber, const char *name, std::string what,
              const void *signal, int32_t count);
  void returned(const Fiber &fiber, const char *name, int64_t value);
  void sent(const Fiber &fiber, const Delivery &delivery);
  void arrived(const Heap &heap, const Delivery &delivery, const void *where,
               size_t bytes);
  void streamMade(const Fiber &fiber, const std::string &label);
  void itemBegins(const Fiber &fiber, const std::string &what);
  void itemEnds(const Fiber &fiber);
  /// What a rank's script does: kind "call" or "call end" without a place.
  void host(int32_t rank, bool begins, std::string what);

  std::vector<TraceEvent> take();
  /// Whether the run was longer than what is kept.
  bool full() const { return overflown; }

private:
  TraceEvent *add(const char *kind);
  TraceEvent *add(const char *kind, const Fiber &fiber);

  size_t capacity;
  uint64_t clock = 0;
  bool overflown = false;
  std::vector<TraceEvent> events;
  std::vector<std::vector<bool>> taken; ///< Per rank, per place.
};

/// A call of a program into the machine, as the record shows it: from here to
/// the end of the scope. `describe()` is asked only when there is a record.
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
