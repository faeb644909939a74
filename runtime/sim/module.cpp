// The Python module `ditron._sim`: a machine as objects, and the addresses of
// what compiled kernels call.
#include "libdevice.h"
#include "stream_module.h"
#include "text.h"

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
  Symbol symbol;
  symbol.bytes = bytes;
  symbol.name = std::move(name);
  symbol.dtype = std::move(dtype);
  symbol.itemsize = itemsize;
  symbol.shape = std::move(shape);
  symbol.ranks = std::move(ranks);
  try {
    Symbol known = symbol;
    known.offset = machine.heap.allocate(std::move(symbol));
    if (machine.races) {
      machine.races->allocated(known, undefined);
    }
    return known.offset;
  } catch (const Failure &failure) {
    throw std::runtime_error(failure.what + ": " + failure.hint);
  }
}

/// What is wrong with an access of a rank's script: nothing, or one report.
static std::vector<ProgramReport> script(Machine &machine, int32_t rank,
                                         uintptr_t address, size_t bytes,
                                         bool writes, const std::string &line) {
  std::vector<ProgramReport> reports;
  if (machine.races) {
    std::optional<ProgramReport> wrong = machine.races->host(
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
                       bool bounded, bool plain) {
  Launch launch =
      makeLaunch(rank, address, std::move(name), std::move(locations), grid,
                 args, std::move(operands));
  launch.independent = independent;
  launch.bounded = bounded;
  launch.plain = plain;
  return machine.submit(std::move(launch), group);
}

NB_MODULE(_sim, m) {
  m.doc() = "The simulated SHMEM machine.";
  nb::set_leak_warnings(false); // a tensor that lives until the interpreter
                                // ends keeps its machine, and may
  m.def("symbols", &symbols,
        "Address of every symbol that compiled kernels may call "
        "(runtime/sim/abi.h).");

  nb::class_<ProgramReport>(m, "ProgramReport",
                            "A program that waits or has failed.")
      .def_ro("kernel", &ProgramReport::kernel)
      .def_ro("location", &ProgramReport::location,
              "file:line:col of its last call into the machine, or empty.")
      .def_ro("stream", &ProgramReport::stream,
              "Where it runs: \"stream copy\", \"main stream\"; empty: the "
              "script's launch, or the script.")
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
           "the number of its slot. Without them these are not known.");

  nb::class_<TraceEvent>(m, "TraceEvent",
                         "One line of the record of a run: see "
                         "runtime/sim/trace.h for which fields mean what.")
      .def_ro("time", &TraceEvent::time)
      .def_ro("kind", &TraceEvent::kind)
      .def_ro("rank", &TraceEvent::rank)
      .def_ro("place", &TraceEvent::place)
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
      .value("STUCK", Machine::Status::Stuck)
      .value("IDLE", Machine::Status::Idle)
      .value("FAILED", Machine::Status::Failed);

  bindStreams(m);

  nb::class_<Machine>(
      m, "Machine",
      "Ranks with symmetric heaps whose kernels run as fibers of one thread.")
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
          "bounded"_a = false, "plain"_a = false,
          "Queue a launch and return its number. independent: its programs may "
          "run at the same time.")
      .def("spread", &Machine::spread, "cores"_a,
           "Run independent launches on that many cores.")
      .def(
          "give_up_after", &Machine::giveUpAfter, "looks"_a,
          "Call it a deadlock when programs have looked that often and nothing "
          "was new.")
      .def("run", &Machine::run, "max_switches"_a,
           nb::call_guard<nb::gil_scoped_release>(),
           "Run programs until a launch completes, max_switches are used up, "
           "or nothing can go on.")
      .def("take_completed", &Machine::takeCompleted,
           "Numbers of the launches that have completed since last asked.")
      .def("take_printed", &Machine::takePrinted,
           "Lines that kernels have printed since last asked.")
      .def("take_warnings", &Machine::takeWarnings,
           "Of what is wrong and has no consequence, since last asked.")
      .def("quiet", &Machine::quiet, "rank"_a,
           "Let everything that a rank has sent arrive.")
      .def("find_races", &Machine::findRaces,
           "Look for races from here on; before the first allocation.")
      .def("weaken", &Machine::weaken,
           "Let stores be seen late and reads be stale from here on; before "
           "the first launch.")
      .def(
          "meet",
          [](Machine &self, const std::vector<int32_t> &ranks, bool quiet) {
            if (self.races) {
              self.races->meet(ranks, quiet);
            }
          },
          "ranks"_a, "quiet"_a,
          "The scripts of these ranks have met; quiet: what they have sent has "
          "arrived.")
      .def("script_access", &script, "rank"_a, "address"_a, "nbytes"_a,
           "writes"_a, "line"_a,
           "A rank's script reads or writes; what is wrong with that.")
      .def("record", &Machine::record, "capacity"_a,
           "Keep a record of what happens from here on, at most that many "
           "events.")
      .def(
          "take_events",
          [](Machine &self) {
            return self.events ? self.events->take()
                               : std::vector<TraceEvent>();
          },
          "The record, which is empty afterwards.")
      .def_prop_ro(
          "record_full",
          [](Machine &self) { return self.events && self.events->full(); },
          "Whether events were left out of the record.")
      .def(
          "record_script",
          [](Machine &self, int32_t rank, bool begins, std::string what) {
            if (self.events) {
              self.events->host(rank, begins, std::move(what));
            }
          },
          "rank"_a, "begins"_a, "what"_a,
          "Put what a rank's script does in the record.")
      .def("stream", &Machine::stream, "rank"_a, "name"_a, "index"_a,
           nb::rv_policy::reference_internal,
           "A rank's stream; made when it is first asked for.")
      .def_prop_ro("busy", &Machine::busy, "Whether something is on a stream.")
      .def("circle", &Machine::circle,
           "Streams that wait for each other, in words, or nothing.")
      .def_prop_ro("failure", &Machine::failure, nb::rv_policy::copy)
      .def("waiters", &Machine::waiters)
      .def("starved", &Machine::starved)
      .def_prop_ro("trace_hash", &Machine::traceHash,
                   "Equal for runs that took the same steps.")
      .def_prop_ro("switches", &Machine::switches);
}
