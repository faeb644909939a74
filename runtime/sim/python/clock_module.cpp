#include "python/clock_module.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <stdexcept>
#include <string>

namespace nb = nanobind;
using namespace nb::literals;

namespace ditron::sim {

/// Raises for a number that is missing.
static TimingModel modelOf(const std::map<std::string, double> &numbers) {
  TimingModel model;
  auto number = [&](const char *name) {
    auto found = numbers.find(name);
    if (found == numbers.end()) {
      throw std::invalid_argument(std::string("a clock needs ") + name);
    }
    return found->second;
  };
  model.sms = int(number("sms"));
  model.dot8 = number("dot8");
  model.dot16 = number("dot16");
  model.dot32 = number("dot32");
  model.vector = number("vector");
  model.special = number("special");
  model.cache = number("cache");
  model.hbm = number("hbm");
  model.hbmSm = number("hbm_sm");
  model.burst = number("burst");
  model.sustained = number("sustained");
  model.fill = number("fill");
  model.link = number("link");
  model.linkPair = number("link_pair");
  model.storeSm = number("store_sm");
  model.loadSm = number("load_sm");
  model.storeShare = number("store_share");
  model.loadShare = number("load_share");
  model.copyShare = number("copy_share");
  model.copySetup = number("copy_setup");
  model.copyNext = number("copy_next");
  model.copyLeast = number("copy_least");
  model.copyBusy = number("copy_busy");
  model.nic = number("nic");
  model.nicLatency = number("nic_latency");
  model.nicPost = number("nic_post");
  model.launch = number("launch");
  model.peer = number("peer");
  model.local = number("local");
  model.fence = number("fence");
  model.stream = number("stream");
  model.barrier = number("barrier");
  return model;
}

void bindClock(nb::module_ &m, nb::class_<Machine> &machine) {
  nb::class_<Activity>(m, "Activity",
                       "A stretch of time of a program, a stream or a "
                       "transfer; times in ns.")
      .def_prop_ro("kind",
                   [](const Activity &self) { return std::string(self.kind); })
      .def_ro("rank", &Activity::rank)
      .def_ro("peer", &Activity::peer)
      .def_ro("launch", &Activity::launch,
              "Its number among launch_times; -1: none.")
      .def_ro("start", &Activity::start)
      .def_ro("end", &Activity::end);

  nb::class_<LaunchTime>(m, "LaunchTime",
                         "When a launch, or a stream's operation, ran; times "
                         "in ns, those of programs added up.")
      .def_ro("rank", &LaunchTime::rank)
      .def_ro("name", &LaunchTime::name)
      .def_ro("stream", &LaunchTime::stream)
      .def_ro("programs", &LaunchTime::programs, "0: of no kernel.")
      .def_ro("queued", &LaunchTime::queued)
      .def_ro("started", &LaunchTime::started)
      .def_ro("ended", &LaunchTime::ended)
      .def_ro("compute", &LaunchTime::compute)
      .def_ro("waited", &LaunchTime::waited);

  nb::class_<Usage>(m, "Usage",
                    "What all transfers together use of a rank's resource from "
                    "a time in ns on, as part of its capacity.")
      .def_ro("rank", &Usage::rank)
      .def_prop_ro("resource",
                   [](const Usage &self) { return std::string(self.resource); })
      .def_ro("at", &Usage::at)
      .def_ro("part", &Usage::part);

  machine
      .def(
          "enable_clock",
          [](Machine &self, const std::map<std::string, double> &numbers) {
            self.enableClock(modelOf(numbers));
          },
          "numbers"_a,
          "Let time pass as on a machine of these numbers (TimingModel); "
          "before the first stream and launch.")
      .def("set_timing_only", &Machine::setTimingOnly,
           "Copies move no floating-point data.")
      .def_prop_ro(
          "now",
          [](Machine &self) { return self.clock ? self.clock->now() : 0.0; },
          "The time in ns.")
      .def(
          "usages",
          [](Machine &self) {
            return self.clock ? self.clock->usages() : std::vector<Usage>();
          },
          "Where they change, in the order of time; with a trace only.")
      .def("launch_times",
           [](Machine &self) {
             return self.clock ? self.clock->launchTimes()
                               : std::vector<LaunchTime>();
           })
      .def(
          "critical_path",
          [](Machine &self, size_t launch) {
            return self.clock->criticalPath(launch);
          },
          "launch"_a,
          "What led to the end of a launch, by its number among launch_times; "
          "first to last.");
}

} // namespace ditron::sim
