#include "python/stream_module.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace ditron::sim {

/// Rows and their length in bytes, then address and pitch of destination and
/// source, and the bytes of an element.
static StridedCopy makeCopy(size_t rows, size_t bytes, uintptr_t to,
                            size_t toPitch, uintptr_t from, size_t fromPitch,
                            size_t itemsize, nb::bytes pattern, bool isData) {
  StridedCopy copy;
  copy.isData = isData;
  copy.rows = rows;
  copy.bytes = bytes;
  copy.to = reinterpret_cast<std::byte *>(to);
  copy.toPitch = toPitch;
  copy.from = reinterpret_cast<const std::byte *>(from);
  copy.fromPitch = fromPitch;
  copy.itemsize = itemsize;
  auto *element = reinterpret_cast<const std::byte *>(pattern.c_str());
  copy.pattern.assign(element, element + pattern.size());
  return copy;
}

void bindStreams(nb::module_ &m) {
  nb::class_<StreamEvent>(m, "StreamEvent",
                          "A point of a stream, as a CUDA event.");

  nb::class_<StridedCopy>(m, "StridedCopy",
                          "Rows of bytes to copy; from address 0: to fill with "
                          "the pattern, one element.")
      .def(
          "__init__",
          [](StridedCopy *self, size_t rows, size_t bytes, uintptr_t to,
             size_t toPitch, uintptr_t from, size_t fromPitch, size_t itemsize,
             nb::bytes pattern, bool isData) {
            new (self)
                StridedCopy(makeCopy(rows, bytes, to, toPitch, from, fromPitch,
                                     itemsize, pattern, isData));
          },
          "rows"_a, "nbytes"_a, "to"_a, "to_pitch"_a, "source"_a,
          "source_pitch"_a, "itemsize"_a, "pattern"_a = nb::bytes("", 0),
          "is_data"_a = false);

  nb::class_<Stream>(m, "Stream",
                     "A queue of operations of one rank. Its methods enqueue "
                     "one, or return reports of what is wrong with it.")
      .def(
          "launch",
          [](Stream &self, const std::string &line, std::vector<int32_t> group,
             uintptr_t address, std::string name,
             std::vector<std::string> locations, std::array<int32_t, 3> grid,
             const std::vector<int64_t> &args, std::vector<Operand> operands,
             bool independent, bool bounded, bool plain,
             int32_t programsPerSm) {
            Launch launch = makeLaunch(self.rankOf(), address, std::move(name),
                                       std::move(locations), grid, args,
                                       std::move(operands));
            launch.independent = independent;
            launch.bounded = bounded;
            launch.plain = plain;
            launch.programsPerSm = programsPerSm;
            return self.launch(line, std::move(launch), std::move(group));
          },
          "line"_a, "group"_a, "address"_a, "name"_a, "locations"_a, "grid"_a,
          "args"_a, "operands"_a, "independent"_a = false, "bounded"_a = false,
          "plain"_a = false, "programs_per_sm"_a = 1)
      .def("rank_copy", &Stream::rankCopy, "line"_a, "copy"_a, "peer"_a,
           "push"_a, "operands"_a)
      .def("local_copy", &Stream::localCopy, "line"_a, "copy"_a, "operands"_a,
           "A copy or a fill within the rank.")
      .def(
          "signal_write",
          [](Stream &self, const std::string &line, uintptr_t signal,
             int64_t value, int32_t op, int32_t peer) {
            return self.writeSignal(line, reinterpret_cast<void *>(signal),
                                    value, SignalOp(op), peer);
          },
          "line"_a, "signal"_a, "value"_a, "op"_a, "peer"_a)
      .def(
          "signal_wait",
          [](Stream &self, const std::string &line, uintptr_t signals,
             int32_t count, int64_t value, int32_t compare, bool asKernel) {
            return self.waitSignals(line, reinterpret_cast<void *>(signals),
                                    count, value, Compare(compare), asKernel);
          },
          "line"_a, "signals"_a, "count"_a, "value"_a, "compare"_a,
          "as_kernel"_a = false)
      .def(
          "call_host",
          [](Stream &self, const std::string &line, std::string name,
             uint64_t id, HostCall::Ranges reads, HostCall::Ranges writes,
             std::vector<Operand> operands) {
            HostCall call;
            call.id = id;
            call.reads = std::move(reads);
            call.writes = std::move(writes);
            return self.callHost(line, std::move(name), std::move(call),
                                 std::move(operands));
          },
          "line"_a, "name"_a, "id"_a, "reads"_a, "writes"_a, "operands"_a,
          "A function of host code: take_completed returns its id when it is "
          "to be called. reads, writes: addresses and bytes.")
      .def("host_call_returned", &Stream::hostCallReturned, "id"_a,
           "ns"_a = 0.0, "ns: what it takes, with a clock.")
      .def("record_event", &Stream::recordEvent, "line"_a)
      .def("wait_event", &Stream::waitEvent, "line"_a, "event"_a)
      .def("barrier", &Stream::barrier, "line"_a, "group"_a)
      .def("synchronize", &Stream::synchronize,
           "The id that take_completed returns when all so far has completed; "
           "0: it has already.")
      .def_prop_ro("has_work", &Stream::hasWork)
      .def_prop_ro("num_enqueued", &Stream::numEnqueued, "Operations so far.")
      .def_prop_ro(
          "num_synchronized", &Stream::numSynchronized,
          "How many of them completed before what host code does now.");
}

} // namespace ditron::sim
