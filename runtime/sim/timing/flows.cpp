#include "timing/flows.h"

#include <algorithm>
#include <utility>

namespace ditron::sim {

/// Bytes that are none: what rounding leaves.
constexpr double nothing = 1e-3;

void Flows::start(std::array<int32_t, 3> resources, double bytes, double cap,
                  std::function<void()> done) {
  flows.push_back({resources, bytes, cap, 0, std::move(done)});
  shared = false;
}

/// Raise all rates together: a flow stops at its cap, or when a resource that
/// it uses is full.
void Flows::share() {
  shared = true;
  free = capacities;
  unfixed.assign(capacities.size(), 0);
  std::vector<Flow *> open;
  for (Flow &flow : flows) {
    open.push_back(&flow);
    for (int32_t resource : flow.resources) {
      if (resource >= 0) {
        ++unfixed[resource];
      }
    }
  }
  auto fix = [&](Flow &flow, double rate) {
    flow.rate = rate;
    for (int32_t resource : flow.resources) {
      if (resource >= 0) {
        free[resource] = std::max(0.0, free[resource] - rate);
        --unfixed[resource];
      }
    }
  };
  while (!open.empty()) {
    double fair = unlimited, lowest = unlimited;
    for (size_t resource = 0; resource < free.size(); ++resource) {
      if (unfixed[resource]) {
        fair = std::min(fair, free[resource] / unfixed[resource]);
      }
    }
    for (const Flow *flow : open) {
      lowest = std::min(lowest, flow->cap);
    }
    // Who is at a full resource is decided before any of them takes its part.
    std::vector<bool> isFull(free.size());
    if (lowest > fair) {
      for (size_t resource = 0; resource < free.size(); ++resource) {
        isFull[resource] =
            unfixed[resource] &&
            free[resource] <= fair * unfixed[resource] * (1 + 1e-9);
      }
    }
    auto stops = [&](const Flow *flow) {
      if (lowest <= fair) {
        return flow->cap <= fair;
      }
      return std::any_of(
          flow->resources.begin(), flow->resources.end(),
          [&](int32_t resource) { return resource >= 0 && isFull[resource]; });
    };
    auto rest =
        std::stable_partition(open.begin(), open.end(),
                              [&](const Flow *flow) { return !stops(flow); });
    std::vector<Flow *> fixed(rest, open.end());
    open.erase(rest, open.end());
    for (Flow *flow : fixed) {
      fix(*flow, std::min(flow->cap, lowest <= fair ? flow->cap : fair));
    }
  }
}

double Flows::next() {
  if (!shared) {
    share();
  }
  double first = unlimited;
  for (const Flow &flow : flows) {
    first = std::min(first,
                     flow.left <= nothing ? now : now + flow.left / flow.rate);
  }
  return first;
}

void Flows::advance(double time) {
  if (!shared) {
    share();
  }
  for (Flow &flow : flows) {
    flow.left -= flow.rate * (time - now);
  }
  now = time;
}

std::vector<std::function<void()>> Flows::takeDone() {
  std::vector<std::function<void()>> done;
  auto rest =
      std::stable_partition(flows.begin(), flows.end(), [](const Flow &flow) {
        return flow.left > nothing;
      });
  for (auto flow = rest; flow != flows.end(); ++flow) {
    done.push_back(std::move(flow->done));
    shared = false;
  }
  flows.erase(rest, flows.end());
  return done;
}

} // namespace ditron::sim
