#include "timing/flows.h"

#include <algorithm>

namespace ditron::sim {

/// Bytes that are none: what rounding leaves.
constexpr double nothing = 1e-3;

Flows::Flows(std::vector<double> capacities) : resources(capacities.size()) {
  for (size_t index = 0; index < capacities.size(); ++index) {
    resources[index].capacity = capacities[index];
  }
}

void Flows::start(std::array<int32_t, 3> through, double bytes, double cap,
                  std::function<void()> done) {
  if (unused.empty()) {
    unused.push_back(flows.size());
    flows.emplace_back();
  }
  size_t index = unused.back();
  unused.pop_back();
  Flow &flow = flows[index] = Flow();
  flow.resources = through;
  flow.left = bytes;
  flow.since = now;
  flow.cap = cap;
  flow.number = numFlows++;
  flow.done = std::move(done);
  for (int32_t &resource : flow.resources) {
    if (resource >= 0 && resources[resource].capacity == unlimited) {
      resource = -1;
    } else if (resource >= 0) {
      resources[resource].flows.push_back(index);
    }
  }
  added.push_back(index);
}

void Flows::reach(int32_t resource) {
  if (resource >= 0 && !resources[resource].isReached) {
    resources[resource].isReached = true;
    reached.push_back(resource);
  }
}

/// Whoever shares a resource with what has changed, directly or not.
void Flows::reachAll() {
  open.clear();
  reached.clear();
  auto take = [&](size_t index) {
    Flow &flow = flows[index];
    if (flow.isReached) {
      return;
    }
    flow.isReached = true;
    open.push_back(index);
    for (int32_t resource : flow.resources) {
      reach(resource);
    }
  };
  for (size_t index : added) {
    take(index);
  }
  for (int32_t resource : changed) {
    reach(resource);
  }
  for (size_t at = 0; at < reached.size(); ++at) {
    for (size_t index : resources[reached[at]].flows) {
      take(index);
    }
  }
  added.clear();
  changed.clear();
  std::sort(open.begin(), open.end(), [&](size_t a, size_t b) {
    return flows[a].number < flows[b].number;
  });
}

void Flows::fix(Flow &flow, double rate) {
  if (rate != flow.rate || flow.version == 0) {
    flow.left = leftOf(flow);
    flow.since = now;
    flow.rate = rate;
    flow.version = ++numEnds;
    double at = flow.left <= nothing ? now : now + flow.left / rate;
    ends.push({at, flow.number, size_t(&flow - flows.data()), flow.version});
  }
  for (int32_t resource : flow.resources) {
    if (resource >= 0) {
      Resource &used = resources[resource];
      used.free = std::max(0.0, used.free - rate);
      --used.unfixed;
    }
  }
}

/// Raise all rates together: a flow stops at its cap, or when a resource that
/// it uses is full.
void Flows::share() {
  reachAll();
  for (int32_t index : reached) {
    Resource &resource = resources[index];
    resource.free = resource.capacity;
    resource.unfixed = int32_t(resource.flows.size());
    resource.isReached = false;
  }
  for (size_t index : open) {
    flows[index].isReached = false;
  }
  while (!open.empty()) {
    double fair = unlimited, lowest = unlimited;
    for (int32_t index : reached) {
      const Resource &resource = resources[index];
      if (resource.unfixed) {
        fair = std::min(fair, resource.free / resource.unfixed);
      }
    }
    for (size_t index : open) {
      lowest = std::min(lowest, flows[index].cap);
    }
    // Who is at a full resource is decided before any of them takes its part.
    for (int32_t index : reached) {
      Resource &resource = resources[index];
      resource.isFull = resource.unfixed &&
                        resource.free <= fair * resource.unfixed * (1 + 1e-9);
    }
    auto stops = [&](size_t index) {
      const Flow &flow = flows[index];
      if (lowest <= fair) {
        return flow.cap <= fair;
      }
      return std::any_of(flow.resources.begin(), flow.resources.end(),
                         [&](int32_t resource) {
                           return resource >= 0 && resources[resource].isFull;
                         });
    };
    auto rest = std::stable_partition(
        open.begin(), open.end(), [&](size_t flow) { return !stops(flow); });
    for (auto index = rest; index != open.end(); ++index) {
      fix(flows[*index], lowest <= fair ? flows[*index].cap : fair);
    }
    open.erase(rest, open.end());
  }
  if (onRate) {
    for (int32_t index : reached) {
      tellRate(index);
    }
  }
}

void Flows::tellRate(int32_t index) {
  Resource &resource = resources[index];
  double rate = 0;
  for (size_t flow : resource.flows) {
    rate += flows[flow].rate;
  }
  if (rate != resource.told) {
    onRate(index, resource.told = rate);
  }
}

const Flows::End *Flows::firstEnd() {
  while (!ends.empty() &&
         flows[ends.top().flow].version != ends.top().version) {
    ends.pop();
  }
  return ends.empty() ? nullptr : &ends.top();
}

double Flows::next() {
  if (!added.empty() || !changed.empty()) {
    share();
  }
  const End *end = firstEnd();
  return end ? end->at : unlimited;
}

std::vector<std::function<void()>> Flows::takeDone() {
  std::vector<std::pair<uint64_t, std::function<void()>>> over;
  while (const End *end = firstEnd()) {
    size_t index = end->flow;
    Flow &flow = flows[index];
    if (end->at > now && leftOf(flow) > nothing) {
      break;
    }
    ends.pop();
    over.push_back({flow.number, std::move(flow.done)});
    flow.version = 0;
    for (int32_t resource : flow.resources) {
      if (resource >= 0) {
        std::vector<size_t> &users = resources[resource].flows;
        *std::find(users.begin(), users.end(), index) = users.back();
        users.pop_back();
        changed.push_back(resource);
        if (onRate && users.empty()) {
          tellRate(resource); // nobody may ask for the next end any more
        }
      }
    }
    unused.push_back(index);
  }
  std::sort(over.begin(), over.end(),
            [](const auto &a, const auto &b) { return a.first < b.first; });
  std::vector<std::function<void()>> done;
  for (auto &[number, each] : over) {
    done.push_back(std::move(each));
  }
  return done;
}

} // namespace ditron::sim
