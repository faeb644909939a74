// Transfers that share resources (links, memory, NICs), as fluids: each has the
// rate of max-min fairness, and no packets are simulated.
//
// Who starts or ends changes the rates of those only that it shares a resource
// with, and of those that these do: what it costs does not grow with the
// machine. Transfers through the same resources with the same cap have the same
// rate; they are one group, so that neither does it grow with the SMs of a GPU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
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
    double until = 0;    ///< It is done when its group's `passed` is this.
    uint64_t number = 0; ///< In the order of `start`.
    std::function<void()> done;
    bool operator<(const Flow &other) const { // a heap's first one ends first
      return std::pair(until, number) > std::pair(other.until, other.number);
    }
  };
  struct Group {
    std::array<int32_t, 3> resources = {};
    double cap = 0, rate = 0; ///< Of each flow.
    double passed = 0; ///< Bytes of each flow since there are any, at `since`.
    double since = 0;
    uint64_t version = 0;   ///< Of its end, in `ends`.
    bool isChanged = false; ///< Flows have come or gone since `share`.
    bool isReached = false;
    std::vector<Flow> flows; ///< A heap.
  };
  /// When the first flow of a group ends, unless something has changed since.
  struct End {
    double at;
    uint64_t number;
    size_t group;
    uint64_t version;
    bool operator<(const End &other) const {
      return std::pair(at, number) > std::pair(other.at, other.number);
    }
  };
  struct Resource {
    double capacity = 0;
    double free = 0;    ///< While rates are computed.
    double unfixed = 0; ///< Flows whose rates are to be computed.
    bool isFull = false;
    bool isReached = false;
    double told = 0;            ///< By `onRate`.
    std::vector<size_t> groups; ///< Those that have flows.
  };
  size_t groupOf(const std::array<int32_t, 3> &resources, double cap);
  const End *firstEnd();
  void share();
  void reach(int32_t resource);
  void reachAll();
  void fix(size_t index, double rate);
  void takeFrom(size_t index, std::vector<Flow> &over);
  void tellRate(int32_t resource);
  double passedOf(const Group &group) const {
    return group.passed +
           (now > group.since ? group.rate * (now - group.since) : 0);
  }

  std::vector<Resource> resources;
  std::vector<Group> groups;
  std::map<std::pair<std::array<int32_t, 3>, double>, size_t> numbers;
  std::priority_queue<End> ends;
  std::vector<size_t> changed; ///< Groups that flows have joined or left,
  std::vector<int32_t> left;   ///< and resources that the last of one has left.
  double now = 0;
  uint64_t numFlows = 0, numEnds = 0;
  // What `share` has reached.
  std::vector<size_t> open;
  std::vector<int32_t> reached;
};

} // namespace ditron::sim
