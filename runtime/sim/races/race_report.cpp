// What reports say about races.
#include "machine.h"
#include "races/race_detector.h"
#include "report/text.h"

#include <string_view>

namespace ditron::sim {

static const char *article(std::string_view noun) {
  bool vowel =
      std::string_view("aeiou").find(noun[0]) != std::string_view::npos;
  return vowel || noun.substr(0, 3) == "ll_" ? "an " : "a ";
}

std::string RaceDetector::nameOf(int32_t rank, const void *p) const {
  if (std::optional<Heap::Location> location = heap.locate(p)) {
    return format(heap.nameOf(p), " of rank ", location->rank);
  }
  auto address = reinterpret_cast<uint64_t>(p);
  for (const Operand &operand : operands[rank]) { // the latest come first
    if (address >= operand.address &&
        address < operand.address + operand.bytes) {
      return format(operand.name, "[",
                    (address - operand.address) / operand.itemsize,
                    "] of rank ", rank);
    }
  }
  return format("memory at ", p, " of rank ", rank);
}

ProgramReport RaceDetector::report(AccessId id) const {
  const AccessRecord &record = records[id];
  const ThreadInfo &thread = threads[record.thread];
  const Source &source = sources[thread.source];
  ProgramReport report;
  report.kernel = source.kernel;
  if (record.loc >= 0 && size_t(record.loc) < source.locations.size()) {
    report.location = source.locations[record.loc];
  }
  report.rank = thread.rank;
  report.stream = queues[thread.queue].label;
  report.program = thread.program;
  report.what = format("the ", spelling(record.kind));
  return report;
}

/// How to order the two; `onTwoQueues`: of one rank; `inFlight`: one of them is
/// a nonblocking transfer, which its stream does not wait for; `betweenNodes`:
/// by ranks of two nodes.
static std::string hintFor(Access before, Access after, bool onTwoQueues,
                           bool inFlight, bool betweenNodes) {
  const char *scopes =
      betweenNodes ? "; between nodes both sides need scope=\"world\"" : "";
  auto either = [&](Access kind) { return before == kind || after == kind; };
  if (onTwoQueues && !inFlight &&
      (either(Access::HostRead) || either(Access::HostWrite))) {
    return "operations on a stream may still be in flight: synchronize() the "
           "stream first";
  }
  if (onTwoQueues && !inFlight) {
    return orderStreams;
  }
  if (either(Access::CopySource)) {
    return "the copy engine reads its source until the copy completes: before "
           "the copy, let its stream wait for a signal that follows the writes "
           "it is to read; write the source again only after a signal that "
           "follows the copy";
  }
  if (either(Access::Copy)) {
    return "a copy completes at any time: its reader has to wait for a signal "
           "written after it on its stream, and its sender for an "
           "acknowledgement before it overwrites the destination";
  }
  if (either(Access::PacketWrite) || either(Access::PacketRead)) {
    return "packets are read by dl.ll_get alone, by one program, and their "
           "buffer may be reused when that has returned: give each sender a "
           "buffer of its own, double-buffered by the epoch's parity, and send "
           "again only after the receiver's acknowledgement";
  }
  if (either(Access::PutSource)) {
    return "a nonblocking put reads its source at any time until dl.quiet(): "
           "call that before the source is written again, also when that is in "
           "the next launch";
  }
  if (before == Access::Get || after == Access::Get) {
    return "the destination of a nonblocking get may be read after dl.quiet()";
  }
  if (before == Access::Put && after == Access::Put) {
    return "two puts to one destination: give each rank (and each step) a "
           "buffer of its own, or put a dl.fence() or the receiver's "
           "acknowledgement between them";
  }
  if (either(Access::Put)) {
    return format("a put completes at any time: its reader has to wait for a "
                  "signal that follows it (putmem_signal, notify, or fence and "
                  "signal_op), and its sender for an acknowledgement before it "
                  "overwrites the destination",
                  scopes);
  }
  if (either(Access::HostRead) || either(Access::HostWrite)) {
    return "call ditron.barrier() between the host code's access and the "
           "kernels of other ranks";
  }
  if (either(Access::Update) && either(Access::AtomicStore)) {
    return "the store overwrites what the other has added: clear it before "
           "others may add again (signal them after that), or take and clear "
           "it by one atomic exchange";
  }
  if (isAtomic(before) != isAtomic(after)) {
    return "one is atomic and the other is not: use dl.wait, dl.notify, dl.ld "
           "or dl.st";
  }
  return format("order them: dl.notify after the first and dl.wait before the "
                "second (acquire and release, of a scope that includes both), "
                "or a barrier",
                scopes);
}

bool RaceDetector::onTwoQueues(AccessId before, AccessId after) const {
  const ThreadInfo &one = threads[records[before].thread];
  const ThreadInfo &two = threads[records[after].thread];
  return one.rank == two.rank && one.queue != two.queue;
}

void RaceDetector::reportRace(int32_t rank, uintptr_t address, AccessId before,
                              AccessId after) const {
  Access first = records[before].kind, second = records[after].kind;
  ProgramReport other = report(before);
  const ThreadInfo &one = threads[records[before].thread];
  const ThreadInfo &two = threads[records[after].thread];
  auto isInFlight = [](const ThreadInfo &thread, Access kind) {
    return thread.isRemote &&
           (kind == Access::PutSource || kind == Access::Get);
  };
  throw Failure{
      format("race on ", nameOf(rank, reinterpret_cast<const void *>(address)),
             ": nothing orders this ", spelling(second), " and ",
             article(spelling(first)), spelling(first), " by rank ", other.rank,
             other.stream.empty() ? "" : "'s ", other.stream),
      hintFor(first, second, onTwoQueues(before, after),
              isInFlight(one, first) || isInFlight(two, second),
              one.rank / ranksPerNode != two.rank / ranksPerNode),
      "race",
      {std::move(other)}};
}

} // namespace ditron::sim
