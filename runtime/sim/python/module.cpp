// The Python module `ditron._sim`: the machine, and the addresses of the
// functions that compiled kernels call.
#include "abi/libdevice.h"
#include "machine.h"
#include "python/clock_module.h"
#include "python/stream_module.h"
#include "report/deadlock.h"
#include "report/text.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace nb::literals;
using namespace ditron::sim;

static nb::dict symbols() {
  nb::dict addresses;
#define DITRON_SIM_ADDRESS(result, name, parameters)                           \
  addresses["ditron_sim_" #name] =                                             \
      reinterpret_cast<uintptr_t>(&ditron_sim_##name);
  DITRON_SIM_SYMBOLS(DITRON_SIM_ADDRESS)
  DITRON_SIM_FUNCTIONS(DITRON_SIM_ADDRESS)
#undef DITRON_SIM_ADDRESS
  return addresses;
}

static size_t allocate(Machine &machine, size_t bytes, std::string name,
                       std::string dtype, size_t itemsize,
                       std::vector<int64_t> shape, std::vector<int32_t> ranks,
                       bool undefined) {
  Allocation allocation;
  allocation.bytes = bytes;
  allocation.name = std::move(name);
  allocation.dtype = std::move(dtype);
  allocation.itemsize = itemsize;
  allocation.shape = std::move(shape);
  allocation.ranks = std::move(ranks);
  try {
    Allocation named = allocation;
    named.offset = machine.heap.allocate(std::move(allocation));
    if (machine.races) {
      machine.races->allocated(named, undefined);
    }
    return named.offset;
  } catch (const Failure &failure) {
    throw std::runtime_error(failure.what + ": " + failure.hint);
  }
}

/// What is wrong with an access by a rank's host code: nothing, or one report.
static std::vector<ProgramReport> hostAccess(Machine &machine, int32_t rank,
                                             uintptr_t address, size_t bytes,
                                             bool writes,
                                             const std::string &line) {
  std::vector<ProgramReport> reports;
  if (machine.races) {
    std::optional<ProgramReport> wrong = machine.races->hostAccess(
        rank, reinterpret_cast<const void *>(address), bytes, writes, line);
    if (wrong) {
      reports.push_back(std::move(*wrong));
    }
  }
  return reports;
}

Launch ditron::sim::makeLaunch(int32_t rank, uintptr_t address,
                               std::string name,
                               std::vector<std::string> locations,
                               std::array<int32_t, 3> grid,
                               const std::vector<int64_t> &args,
                               std::vector<Operand> operands) {
  Launch launch;
  launch.operands = std::move(operands);
  launch.rank = rank;
  launch.kernel = reinterpret_cast<Kernel>(address);
  launch.name = std::move(name);
  launch.locations = std::move(locations);
  launch.grid = grid;
  launch.args.assign(args.begin(), args.end());
  return launch;
}

static uint64_t submit(Machine &machine, int32_t rank,
                       const std::vector<int32_t> &group, uintptr_t address,
                       std::string name, std::vector<std::string> locations,
                       std::array<int32_t, 3> grid,
                       const std::vector<int64_t> &args,
                       std::vector<Operand> operands, bool independent,
                       bool bounded, bool plain, int32_t programsPerSm) {
  Launch launch =
      makeLaunch(rank, address, std::move(name), std::move(locations), grid,
                 args, std::move(operands));
  launch.independent = independent;
  launch.bounded = bounded;
  launch.plain = plain;
  launch.programsPerSm = programsPerSm;
  return machine.submit(std::move(launch), group);
}

NB_MODULE(_sim, m) {
  m.doc() = "The simulated SHMEM machine.";
  // A tensor may live until the interpreter ends, and keeps its machine alive.
  nb::set_leak_warnings(false);
  m.def("symbols", &symbols,
        "Address of every symbol that compiled kernels may call "
        "(runtime/sim/abi/abi.h).");

  nb::class_<ProgramReport>(m, "ProgramReport",
                            "A program that waits or has failed.")
      .def_ro("kernel", &ProgramReport::kernel)
      .def_ro("location", &ProgramReport::location,
              "file:line:col of its last call into the machine, or empty.")
      .def_ro("stream", &ProgramReport::stream,
              "Where it runs: \"stream copy\", \"main stream\"; empty: "
              "launched by host code, or host code.")
      .def_ro("rank", &ProgramReport::rank)
      .def_ro("program", &ProgramReport::program)
      .def_ro("what", &ProgramReport::what)
      .def_ro("hint", &ProgramReport::hint)
      .def_ro("kind", &ProgramReport::kind)
      .def_ro("others", &ProgramReport::others);

  nb::class_<Operand>(m, "Operand", "A tensor that a kernel was given.")
      .def(nb::init<std::string, uint64_t, uint64_t, uint64_t, uint64_t,
                    uint64_t, int32_t>(),
           "name"_a, "address"_a, "nbytes"_a, "itemsize"_a, "first"_a = 0,
           "end"_a = 0, "argument"_a = -1,
           "[first, end): addresses of the allocation that it is in; argument: "
           "its number among the kernel's. Without them these are unknown.");

  nb::class_<TraceEvent>(m, "TraceEvent",
                         "An event of a trace: see runtime/sim/report/trace.h "
                         "for which fields mean what.")
      .def_ro("time", &TraceEvent::time)
      .def_ro("kind", &TraceEvent::kind)
      .def_ro("rank", &TraceEvent::rank)
      .def_ro("slot", &TraceEvent::slot)
      .def_ro("launch", &TraceEvent::launch)
      .def_ro("location", &TraceEvent::location)
      .def_ro("name", &TraceEvent::name)
      .def_ro("what", &TraceEvent::what)
      .def_ro("id", &TraceEvent::id)
      .def_ro("peer", &TraceEvent::peer)
      .def_ro("nbytes", &TraceEvent::bytes)
      .def_ro("address", &TraceEvent::address)
      .def_ro("value", &TraceEvent::value);

  nb::enum_<Machine::Status>(m, "Status", "Why a run has stopped.")
      .value("COMPLETED", Machine::Status::Completed)
      .value("PAUSED", Machine::Status::Paused)
      .value("BLOCKED", Machine::Status::Blocked)
      .value("IDLE", Machine::Status::Idle)
      .value("FAILED", Machine::Status::Failed);

  bindStreams(m);

  nb::class_<Machine> machine(
      m, "Machine",
      "Ranks with symmetric heaps whose kernels run as fibers of one thread.");
  bindClock(m, machine);
  machine
      .def(
          "__init__",
          [](Machine *self, int32_t ranks, int32_t ranksPerNode,
             size_t heapBytes, uint64_t seed, int32_t resident,
             size_t stackBytes) {
            new (self) Machine(Options{ranks, ranksPerNode, heapBytes,
                                       stackBytes, resident, seed});
          },
          "ranks"_a, "ranks_per_node"_a, "heap_bytes"_a, "seed"_a, "resident"_a,
          "stack_bytes"_a)
      .def("allocate", &allocate, "nbytes"_a, "name"_a, "dtype"_a, "itemsize"_a,
           "shape"_a, "ranks"_a, "undefined"_a = false,
           "Reserve zeroed bytes on every rank and return their offset in the "
           "heaps.")
      .def(
          "release",
          [](Machine &self, size_t offset) { self.heap.release(offset); },
          "offset"_a)
      .def(
          "address",
          [](Machine &self, int32_t rank, size_t offset) {
            return reinterpret_cast<uintptr_t>(self.heap.at(rank, offset));
          },
          "rank"_a, "offset"_a)
      .def(
          "view",
          [](nb::handle self, int32_t rank, size_t offset, size_t bytes) {
            auto &machine = nb::cast<Machine &>(self);
            return nb::ndarray<uint8_t, nb::device::cpu, nb::ndim<1>>(
                machine.heap.at(rank, offset), {bytes}, self);
          },
          "rank"_a, "offset"_a, "nbytes"_a,
          "Bytes of one rank's heap, as a DLPack array that keeps the machine "
          "alive.")
      .def(
          "submit", &submit, "rank"_a, "group"_a, "address"_a, "name"_a,
          "locations"_a, "grid"_a, "args"_a,
          "operands"_a = std::vector<Operand>(), "independent"_a = false,
          "bounded"_a = false, "plain"_a = false, "programs_per_sm"_a = 1,
          "Queue a launch and return its number. independent: its programs may "
          "run at the same time.")
      .def(
          "enable_parallel",
          [](Machine &self, int32_t cores) { self.parallel.setCores(cores); },
          "cores"_a, "Run independent launches on that many cores.")
      .def(
          "set_spin_limit",
          [](Machine &self, uint64_t reads) {
            self.scheduler.spins.setLimit(reads);
          },
          "reads"_a,
          "It is a deadlock when programs have read known values that often.")
      .def("run", &Machine::run, "max_switches"_a,
           nb::call_guard<nb::gil_scoped_release>(),
           "Run programs until a launch completes, max_switches are used up, "
           "or no program can run.")
      .def(
          "take_completed", &Machine::takeCompleted,
          "Ids of the launches and stream synchronizations that have completed "
          "since the last call.")
      .def(
          "take_printed",
          [](Machine &self) { return self.diagnostics.takePrinted(); },
          "Lines that kernels have printed since the last call.")
      .def(
          "take_warnings",
          [](Machine &self) { return self.diagnostics.takeWarnings(); },
          "Of mistakes without consequences, since the last call.")
      .def("quiet", &Machine::quiet, "rank"_a,
           "Complete all transfers of a rank.")
      .def("enable_race_detector", &Machine::enableRaceDetector,
           "Detect races from here on; before the first allocation.")
      .def("enable_weak_memory", &Machine::enableWeakMemory,
           "Buffer stores and keep stale lines from here on; before the first "
           "launch.")
      .def(
          "host_barrier",
          [](Machine &self, const std::vector<int32_t> &ranks, bool quiet) {
            if (self.races) {
              self.races->hostBarrier(ranks, quiet);
            }
          },
          "ranks"_a, "quiet"_a,
          "A barrier of these ranks' host code; quiet: it completes their "
          "transfers.")
      .def("host_access", &hostAccess, "rank"_a, "address"_a, "nbytes"_a,
           "writes"_a, "line"_a,
           "A rank's host code accesses memory; returns what is wrong with it.")
      .def(
          "has_local_transfers",
          [](Machine &self, int32_t rank) {
            return self.races && self.races->hasLocalTransfers(rank);
          },
          "rank"_a,
          "Whether nonblocking transfers may use memory of the rank that is "
          "not symmetric.")
      .def("enable_trace", &Machine::enableTrace, "capacity"_a,
           "Trace what happens from here on, up to that many events.")
      .def(
          "take_trace",
          [](Machine &self) {
            return self.trace ? self.trace->take() : std::vector<TraceEvent>();
          },
          "The events since the last call.")
      .def_prop_ro(
          "trace_truncated",
          [](Machine &self) { return self.trace && self.trace->isTruncated(); },
          "Whether there were more events than the trace keeps.")
      .def(
          "trace_host",
          [](Machine &self, int32_t rank, bool begins, std::string what) {
            if (self.trace) {
              self.trace->host(rank, begins, std::move(what));
            }
          },
          "rank"_a, "begins"_a, "what"_a,
          "Add what a rank's host code does to the trace.")
      .def("stream", &Machine::stream, "rank"_a, "name"_a, "index"_a,
           nb::rv_policy::reference_internal,
           "A rank's stream; made when it is first asked for.")
      .def(
          "new_id", [](Machine &self) { return self.launches.newId(); },
          "For Stream.call_host.")
      .def_prop_ro(
          "heap_capacity", [](Machine &self) { return self.heap.capacity(); },
          "Bytes of each rank's heap, which are rounded up.")
      .def_prop_ro("has_stream_work", &Machine::hasStreamWork,
                   "Whether a stream has operations.")
      .def("stream_cycle", &streamCycle,
           "Streams that wait for each other, in words, or nothing.")
      .def_prop_ro("failure",
                   [](Machine &self) { return self.diagnostics.failure(); })
      .def("waiting_programs", &waitingPrograms,
           "Every program that waits or spins, by rank.")
      .def("starved_launches", &starvedLaunches,
           "A line per launch whose programs find no slot to start in.")
      .def_prop_ro(
          "trace_hash",
          [](Machine &self) { return self.scheduler.traceHash(); },
          "Equal for runs that took the same steps.")
      .def_prop_ro("switches",
                   [](Machine &self) { return self.scheduler.switches(); });
}
