// Transfers that share resources (links, memory, NICs), as fluids: each has the
// rate of max-min fairness, and no packets are simulated.
//
// Who starts or ends changes the rates of those only that it shares a resource
// with, and of those that these do: what it costs does not grow with the
// machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

namespace ditron::sim {

constexpr double unlimited = std::numeric_limits<double>::infinity();

class Flows {
public:
  explicit Flows(std::vector<double> capacities);

  /// Move `bytes` through `resources` (-1: none), at most at rate `cap`; `done`
  /// is called when all have passed.
  void start(std::array<int32_t, 3> resources, double bytes, double cap,
             std::function<void()> done);
  /// When the next one is done.
  double next();
  /// Let time pass up to `time`, at most `next()`.
  void advance(double time) { now = time; }
  /// Those that are done now, which are forgotten; in the order of `start`.
  std::vector<std::function<void()>> takeDone();
  /// Called, when set, with a resource and the rate of all that passes through
  /// it, where that changes.
  std::function<void(int32_t, double)> onRate;

private:
  struct Flow {
    std::array<int32_t, 3> resources = {};
    double left = 0; ///< Bytes, at `since`.
    double since = 0;
    double cap = 0, rate = 0;
    uint64_t number = 0;  ///< In the order of `start`.
    uint64_t version = 0; ///< Of its end, in `ends`.
    bool isReached = false;
    std::function<void()> done;
  };
  /// When a flow ends, unless its rate has changed since.
  struct End {
    double at;
    uint64_t number;
    size_t flow;
    uint64_t version;
    bool operator<(const End &other) const {
      return std::pair(at, number) > std::pair(other.at, other.number);
    }
  };
  struct Resource {
    double capacity = 0;
    double free = 0;     ///< While rates are computed.
    int32_t unfixed = 0; ///< Flows whose rates are to be computed.
    bool isFull = false;
    bool isReached = false;
    double told = 0; ///< By `onRate`.
    std::vector<size_t> flows;
  };
  const End *firstEnd();
  void share();
  void reach(int32_t resource);
  void reachAll();
  void fix(Flow &flow, double rate);
  void tellRate(int32_t resource);
  double leftOf(const Flow &flow) const {
    return flow.left - flow.rate * (now - flow.since);
  }

  std::vector<Resource> resources;
  std::vector<Flow> flows;
  std::vector<size_t> unused; ///< Of `flows`.
  std::priority_queue<End> ends;
  std::vector<size_t> added;    ///< Flows without a rate yet,
  std::vector<int32_t> changed; ///< and resources that others have left.
  double now = 0;
  uint64_t numFlows = 0, numEnds = 0;
  // What `share` has reached.
  std::vector<size_t> open;
  std::vector<int32_t> reached;
};

} // namespace ditron::sim
