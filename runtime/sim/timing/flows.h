// Transfers that share resources (links, memory, NICs), as fluids: each has the
// rate of max-min fairness, and no packets are simulated.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace ditron::sim {

constexpr double unlimited = std::numeric_limits<double>::infinity();

class Flows {
public:
  explicit Flows(std::vector<double> capacities)
      : capacities(std::move(capacities)) {}

  /// Move `bytes` through `resources` (-1: none), at most at rate `cap`; `done`
  /// is called when all have passed.
  void start(std::array<int32_t, 3> resources, double bytes, double cap,
             std::function<void()> done);
  /// When the next one is done.
  double next();
  /// Let time pass up to `time`, at most `next()`.
  void advance(double time);
  /// Those that are done now, which are forgotten; in the order of `start`.
  std::vector<std::function<void()>> takeDone();
  bool empty() const { return flows.empty(); }

private:
  struct Flow {
    std::array<int32_t, 3> resources;
    double left, cap, rate;
    std::function<void()> done;
  };
  void share();

  std::vector<double> capacities;
  std::vector<Flow> flows;
  double now = 0;
  bool shared = true; ///< Whether the rates are current.
  // Scratch of `share`, per resource.
  std::vector<double> free;
  std::vector<int32_t> unfixed;
};

} // namespace ditron::sim
