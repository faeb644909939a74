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

size_t Flows::groupOf(const std::array<int32_t, 3> &through, double cap) {
  auto [found, isNew] =
      numbers.try_emplace(std::pair(through, cap), groups.size());
  if (isNew) {
    Group &group = groups.emplace_back();
    group.resources = through;
    group.cap = cap;
  }
  return found->second;
}

void Flows::start(std::array<int32_t, 3> through, double bytes, double cap,
                  std::function<void()> done) {
  for (int32_t &resource : through) {
    if (resource >= 0 && resources[resource].capacity == unlimited) {
      resource = -1;
    }
  }
  size_t index = groupOf(through, cap);
  Group &group = groups[index];
  if (group.flows.empty()) {
    group.rate = group.passed = 0;
    for (int32_t resource : through) {
      if (resource >= 0) {
        resources[resource].groups.push_back(index);
      }
    }
  }
  group.passed = passedOf(group);
  group.since = now;
  group.flows.push_back({group.passed + bytes, numFlows++, std::move(done)});
  std::push_heap(group.flows.begin(), group.flows.end());
  group.isChanged = true;
  changed.push_back(index);
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
    Group &group = groups[index];
    if (group.isReached || group.flows.empty()) {
      return;
    }
    group.isReached = true;
    open.push_back(index);
    for (int32_t resource : group.resources) {
      reach(resource);
    }
  };
  for (size_t index : changed) {
    take(index);
  }
  for (int32_t resource : left) {
    reach(resource);
  }
  for (size_t at = 0; at < reached.size(); ++at) {
    for (size_t index : resources[reached[at]].groups) {
      take(index);
    }
  }
  changed.clear();
  left.clear();
  std::sort(open.begin(), open.end());
}

void Flows::fix(size_t index, double rate) {
  Group &group = groups[index];
  if (rate != group.rate || group.isChanged) {
    group.passed = passedOf(group);
    group.since = now;
    group.rate = rate;
    group.version = ++numEnds;
    group.isChanged = false;
    const Flow &first = group.flows.front();
    double bytes = first.until - group.passed;
    double at = bytes <= nothing ? now : now + bytes / rate;
    ends.push({at, first.number, index, group.version});
  }
  auto count = double(group.flows.size());
  for (int32_t resource : group.resources) {
    if (resource >= 0) {
      Resource &used = resources[resource];
      used.free = std::max(0.0, used.free - count * rate);
      used.unfixed -= count;
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
    resource.unfixed = 0;
    for (size_t group : resource.groups) {
      resource.unfixed += double(groups[group].flows.size());
    }
    resource.isReached = false;
  }
  for (size_t index : open) {
    groups[index].isReached = false;
  }
  while (!open.empty()) {
    double fair = unlimited, lowest = unlimited;
    for (int32_t index : reached) {
      const Resource &resource = resources[index];
      if (resource.unfixed > 0) {
        fair = std::min(fair, resource.free / resource.unfixed);
      }
    }
    for (size_t index : open) {
      lowest = std::min(lowest, groups[index].cap);
    }
    // Who is at a full resource is decided before any of them takes its part.
    for (int32_t index : reached) {
      Resource &resource = resources[index];
      resource.isFull = resource.unfixed > 0 &&
                        resource.free <= fair * resource.unfixed * (1 + 1e-9);
    }
    auto stops = [&](size_t index) {
      const Group &group = groups[index];
      if (lowest <= fair) {
        return group.cap <= fair;
      }
      return std::any_of(group.resources.begin(), group.resources.end(),
                         [&](int32_t resource) {
                           return resource >= 0 && resources[resource].isFull;
                         });
    };
    auto rest = std::stable_partition(
        open.begin(), open.end(), [&](size_t group) { return !stops(group); });
    for (auto index = rest; index != open.end(); ++index) {
      fix(*index, lowest <= fair ? groups[*index].cap : fair);
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
  for (size_t group : resource.groups) {
    rate += double(groups[group].flows.size()) * groups[group].rate;
  }
  if (rate != resource.told) {
    onRate(index, resource.told = rate);
  }
}

const Flows::End *Flows::firstEnd() {
  while (!ends.empty() &&
         groups[ends.top().group].version != ends.top().version) {
    ends.pop();
  }
  return ends.empty() ? nullptr : &ends.top();
}

double Flows::next() {
  if (!changed.empty() || !left.empty()) {
    share();
  }
  const End *end = firstEnd();
  return end ? end->at : unlimited;
}

/// Move those of a group that have passed to `over`, at least the first one.
void Flows::takeFrom(size_t index, std::vector<Flow> &over) {
  Group &group = groups[index];
  double passed = passedOf(group) + nothing;
  do {
    std::pop_heap(group.flows.begin(), group.flows.end());
    over.push_back(std::move(group.flows.back()));
    group.flows.pop_back();
  } while (!group.flows.empty() && group.flows.front().until <= passed);
  group.version = 0;
  group.isChanged = true;
  if (!group.flows.empty()) {
    changed.push_back(index);
    return;
  }
  for (int32_t resource : group.resources) {
    if (resource >= 0) {
      std::vector<size_t> &users = resources[resource].groups;
      *std::find(users.begin(), users.end(), index) = users.back();
      users.pop_back();
      left.push_back(resource);
      if (onRate && users.empty()) {
        tellRate(resource); // nobody may ask for the next end any more
      }
    }
  }
}

std::vector<std::function<void()>> Flows::takeDone() {
  std::vector<Flow> over;
  while (const End *end = firstEnd()) {
    const Group &group = groups[end->group];
    if (end->at > now &&
        group.flows.front().until - passedOf(group) > nothing) {
      break;
    }
    size_t index = end->group;
    ends.pop();
    takeFrom(index, over);
  }
  std::sort(over.begin(), over.end(),
            [](const Flow &a, const Flow &b) { return a.number < b.number; });
  std::vector<std::function<void()>> done;
  for (Flow &each : over) {
    done.push_back(std::move(each.done));
  }
  return done;
}

} // namespace ditron::sim
