// Streams: queues of operations of one rank. An operation starts when the one
// before it has completed; between streams only events, signals and barriers
// order anything.
//
// A stream is a fiber that takes no program slot, as the front end of a GPU
// takes no SM: it launches, waits for and writes signals, and copies between
// ranks by a copy engine. Copies and fills within a rank are kernels and take a
// slot.
#pragma once

#include "network/network.h"
#include "races/vector_clock.h"
#include "report/report.h"
#include "scheduler/fiber.h"
#include "scheduler/launch.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ditron::sim {

class Machine;

/// Rows of equal length that are copied; without `from`, filled with `pattern`.
struct StridedCopy {
  std::byte *to = nullptr;
  const std::byte *from = nullptr;
  size_t rows = 1;
  size_t bytes = 0; ///< Of a row.
  size_t toPitch = 0, fromPitch = 0;
  size_t itemsize = 1;
  bool isData = false; ///< Floating point: nothing but results depends on it.
  std::vector<std::byte> pattern; ///< One element.

  /// Bytes from the first row's beginning to the last row's end.
  size_t toSpan() const { return rows ? (rows - 1) * toPitch + bytes : 0; }
  size_t fromSpan() const { return rows ? (rows - 1) * fromPitch + bytes : 0; }
  std::byte *toRow(size_t row) const { return to + row * toPitch; }
  const std::byte *fromRow(size_t row) const { return from + row * fromPitch; }
};

/// A part of a copy that is moved at once: the same columns of some rows.
struct CopyPart {
  size_t row, rows, start, bytes;
};

/// A function of host code that is called when the stream comes to it.
struct HostCall {
  /// Address and bytes.
  using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;
  uint64_t id = 0; ///< What is reported when it is to be called.
  Ranges reads, writes;
  int64_t returned = 0; ///< 1 once it has.
  double ns = 0;        ///< What it takes then, with a clock.
};

/// As a CUDA event: a point of a stream.
struct StreamEvent {
  Stream *stream = nullptr;
  std::string line;
  int64_t recorded = 0; ///< 1 once the stream has come there.
  VectorClock clock;
  std::map<ThreadId, uint32_t> seenBeyondGpu; ///< As of a ThreadState.
  uint64_t epoch = 0;                         ///< Of both.
};

struct StreamOp {
  enum class Kind {
    Launch, ///< Of a kernel, a copy or fill within the rank, or a host call.
    RankCopy,
    SignalWrite,
    SignalWait,
    RecordEvent,
    WaitEvent,
    Barrier,
    Synchronize ///< Reports to host code that the stream has come here.
  };
  Kind kind = Kind::Synchronize;
  int32_t loc = 0;
  std::string what;     ///< In words, for traces and reports.
  VectorClock enqueued; ///< Of the host code that enqueued it.
  std::vector<int32_t> group;
  std::unique_ptr<Launch> launch;
  StridedCopy copy;
  HostCall call;
  int32_t peer = -1; ///< World rank.
  bool push = true;
  int64_t *signal = nullptr;
  int64_t value = 0;
  int32_t count = 1;
  SignalOp op = SignalOp::Set;
  Compare compare = Compare::Ge;
  bool asKernel = false; ///< SignalWait: in a CUDA graph.
  std::shared_ptr<StreamEvent> event;
  std::vector<Operand> operands;
  uint64_t id = 0; ///< Synchronize: what is reported.

  /// Whether the user asked for it as an operation of its own.
  bool isVisible() const { return kind != Kind::Synchronize; }
  /// SignalWait: the first signal that does not compare true; null: none.
  const int64_t *firstUnsatisfied() const;
};

class Stream {
public:
  Stream(Machine &machine, int32_t rank, const std::string &name, int32_t index,
         int32_t number);
  Stream(const Stream &) = delete;

  // Each enqueues an operation, and returns what is wrong with it: nothing, or
  // one report. `line` is the user's, file:line[:col].
  using Errors = std::vector<ProgramReport>;
  Errors launch(const std::string &line, Launch launch,
                std::vector<int32_t> group);
  /// To or from the rank itself it is a copy within the rank, as on a GPU.
  Errors rankCopy(const std::string &line, StridedCopy copy, int32_t peer,
                  bool push, std::vector<Operand> operands);
  /// A copy, or a fill, within the rank.
  Errors localCopy(const std::string &line, StridedCopy copy,
                   std::vector<Operand> operands);
  /// A function of host code that reads and writes memory of this rank. The
  /// machine reports its id when it is to be called; `hostCallReturned` ends
  /// it.
  Errors callHost(const std::string &line, std::string name, HostCall call,
                  std::vector<Operand> operands);
  void hostCallReturned(uint64_t id, double ns);
  Errors writeSignal(const std::string &line, void *signal, int64_t value,
                     SignalOp op, int32_t peer);
  /// `asKernel`: as a CUDA graph does it.
  Errors waitSignals(const std::string &line, void *signals, int32_t count,
                     int64_t value, Compare compare, bool asKernel);
  std::shared_ptr<StreamEvent> recordEvent(const std::string &line);
  Errors waitEvent(const std::string &line, std::shared_ptr<StreamEvent> event);
  Errors barrier(const std::string &line, std::vector<int32_t> group);
  /// The id that the machine reports as completed when all so far has; 0: it
  /// has already.
  uint64_t synchronize();

  bool hasWork() const { return !ops.empty(); }
  /// How many operations have been enqueued, and how many of them have
  /// completed before what host code does now.
  uint64_t numEnqueued() const { return enqueued; }
  uint64_t numSynchronized() const;
  /// A launch of this stream has completed.
  void launchCompleted();

  // For reports.
  const std::string &label() const { return name; }
  /// "rank 1's stream copy".
  std::string description() const;
  /// What it waits for, unless that is an operation, or a kernel.
  std::optional<ProgramReport> waitReport() const;
  /// The operation in progress; null when there is none.
  const StreamOp *current() const;
  const std::string &lineOf(const StreamOp &op) const {
    return self.locations[op.loc];
  }
  const std::deque<StreamOp> &queued() const { return ops; }
  int32_t rankOf() const { return self.rank; }

  /// Run operations for ever; the function of the stream's fiber.
  void serve();

private:
  Errors enqueue(StreamOp op, const std::string &line,
                 const std::function<void(StreamOp &)> &check = nullptr);
  void run(StreamOp &op);
  void runLaunch(StreamOp &op);
  void runSignalWait(StreamOp &op);
  void runBarrier(StreamOp &op);
  void runRankCopy(const StreamOp &op);
  void copyByEngine(const StridedCopy &copy, const std::vector<CopyPart> &parts,
                    Transfer transfer);
  void copyByNetwork(const StridedCopy &copy,
                     const std::vector<CopyPart> &parts, Transfer transfer);
  void runSignalWrite(const StreamOp &op);
  /// Wait until `counter` is more than `value`.
  void waitFor(const int64_t &counter, int64_t value);

  Machine &machine;
  std::string name; ///< "stream copy", "stream ring[2]", "main stream".
  Launch self;      ///< What the fiber belongs to.
  Fiber fiber;
  std::deque<StreamOp> ops;
  int64_t added = 0, served = 0; ///< Operations, with those that synchronize.
  uint64_t enqueued = 0, completed = 0; ///< Operations, without those.
  int64_t launchesCompleted = 0;
};

/// Streams that wait for each other, in words; empty when there are none.
std::string streamCycle(const Machine &machine);

} // namespace ditron::sim
