// Streams: queues of work of one rank. An item starts when the one before it is
// over; between streams only events, signals and barriers order anything.
//
// A stream is a fiber that needs no place on an SM, as the front end of a GPU
// does not: it launches, waits and writes signals, and copies between ranks by
// a copy engine. Copies and fills within a rank are kernels and need a place.
#pragma once

#include "machine.h"

#include <functional>

namespace ditron::sim {

/// Rows of equal length that are copied; without `from`, filled with `pattern`.
struct Transfer {
  std::byte *to = nullptr;
  const std::byte *from = nullptr;
  size_t rows = 1;
  size_t bytes = 0; ///< Of a row.
  size_t toPitch = 0, fromPitch = 0;
  size_t itemsize = 1;
  std::vector<std::byte> pattern; ///< One element.

  /// Bytes from the first row's begin to the last row's end.
  size_t toSpan() const { return rows ? (rows - 1) * toPitch + bytes : 0; }
  size_t fromSpan() const { return rows ? (rows - 1) * fromPitch + bytes : 0; }
  std::byte *toRow(size_t row) const { return to + row * toPitch; }
  const std::byte *fromRow(size_t row) const { return from + row * fromPitch; }
};

/// A part of a transfer that moves at once: the same stretch of some rows.
struct Piece {
  size_t row, rows, start, bytes;
};

/// A moment on a stream.
struct StreamEvent {
  Stream *stream = nullptr;
  std::string line;
  int64_t recorded = 0; ///< 1 once the stream has come there.
  Clock clock;
  uint64_t age = 0; ///< Of the clock.
};

struct StreamItem {
  enum class Kind {
    Launch, ///< Of a kernel, or a copy or fill within the rank.
    RankCopy,
    SignalWrite,
    SignalWait,
    Record,
    Await,
    Barrier,
    Tell ///< The script that it has come to here.
  };
  Kind kind = Kind::Tell;
  int32_t loc = 0;
  std::string what; ///< In words, for records and reports.
  Clock known;      ///< What the script knew when it enqueued the item.
  std::vector<int32_t> group;
  std::unique_ptr<Launch> launch;
  Transfer transfer;
  int32_t peer = -1; ///< World rank.
  bool push = true;
  int64_t *signal = nullptr;
  int64_t value = 0;
  int32_t count = 1;
  SignalOp op = SignalOp::Set;
  Compare compare = Compare::Ge;
  std::shared_ptr<StreamEvent> event;
  std::vector<Operand> operands;
  uint64_t id = 0; ///< Tell: under which number.
};

class Stream {
public:
  Stream(Machine &machine, int32_t rank, const std::string &name, int32_t index,
         int32_t number);
  Stream(const Stream &) = delete;

  // Each puts an item at the end, and returns what is wrong with it: nothing,
  // or one report. `line` is the user's, file:line[:col].
  using Wrong = std::vector<ProgramReport>;
  Wrong launch(const std::string &line, Launch launch,
               std::vector<int32_t> group);
  /// To or from the rank itself it is a copy within the rank, as on a GPU.
  Wrong rankCopy(const std::string &line, Transfer transfer, int32_t peer,
                 bool push, std::vector<Operand> operands);
  /// A copy, or a fill, within the rank.
  Wrong move(const std::string &line, Transfer transfer,
             std::vector<Operand> operands);
  Wrong writeSignal(const std::string &line, void *signal, int64_t value,
                    SignalOp op, int32_t peer);
  Wrong waitSignals(const std::string &line, void *signals, int32_t count,
                    int64_t value, Compare compare);
  std::shared_ptr<StreamEvent> record(const std::string &line);
  Wrong await(const std::string &line, std::shared_ptr<StreamEvent> event);
  Wrong barrier(const std::string &line, std::vector<int32_t> group);
  /// The machine tells by this number that all so far is over; 0: it is.
  uint64_t synchronize();

  bool busy() const { return !items.empty(); }
  /// How many items have been enqueued, and how many of them the script knows
  /// to be over.
  uint64_t enqueued() const { return count; }
  uint64_t known() const;
  /// A launch of this stream is over.
  void launchOver();

  // For reports.
  const std::string &label() const { return name; }
  /// "rank 1's stream copy".
  std::string who() const;
  /// What it waits for, unless that is for work, or for a kernel.
  std::optional<ProgramReport> waiter() const;
  /// The item under way; null when there is none.
  const StreamItem *current() const;
  const std::string &lineOf(const StreamItem &item) const {
    return self.locations[item.loc];
  }
  const std::deque<StreamItem> &queue() const { return items; }
  Fiber &body() { return fiber; }
  int32_t rankOf() const { return self.rank; }

  /// Run items for ever; the function of the stream's fiber.
  void serve();

private:
  Wrong enqueue(StreamItem item, const std::string &line,
                const std::function<void(StreamItem &)> &check = nullptr);
  void run(StreamItem &item);
  void runLaunch(StreamItem &item);
  void runCopy(const StreamItem &item);
  void byEngine(const Transfer &transfer, const std::vector<Piece> &pieces,
                Delivery delivery);
  void byNetwork(const Transfer &transfer, const std::vector<Piece> &pieces,
                 Delivery delivery);
  void runSignalWrite(const StreamItem &item);
  /// Stop until `counter` is more than `value`.
  void waitFor(const int64_t &counter, int64_t value);

  Machine &machine;
  std::string name; ///< "stream copy", "stream ring[2]", "main stream".
  Launch self;      ///< What the fiber belongs to.
  Fiber fiber;
  std::deque<StreamItem> items;
  int64_t added = 0, served = 0; ///< Items, those that only tell among them.
  uint64_t count = 0, over = 0;  ///< Items without those.
  int64_t launchesOver = 0;
};

} // namespace ditron::sim
