// The events, what each followed, and what is recorded of launches.
#include "timing/clock.h"

#include "network/network.h"
#include "scheduler/fiber.h"
#include "scheduler/launch.h"
#include "scheduler/scheduler.h"

#include <algorithm>

namespace ditron::sim {

std::vector<double> Clock::capacities(const TimingModel &model,
                                      int32_t numRanks, int32_t ranksPerNode) {
  std::vector<double> all;
  double nic = model.nic > 0 ? model.nic : unlimited;
  for (int32_t rank = 0; rank < numRanks; ++rank) {
    all.insert(all.end(), {model.link, model.link, model.hbm, nic, nic});
  }
  if (model.linkPair > 0) {
    all.insert(all.end(), size_t(numRanks) * ranksPerNode, model.linkPair);
  }
  return all;
}

Clock::Clock(const TimingModel &model, int32_t numRanks, int32_t ranksPerNode,
             Scheduler &scheduler, Network &network)
    : model(model), numRanks(numRanks), ranksPerNode(ranksPerNode),
      scheduler(scheduler), network(network),
      flows(capacities(model, numRanks, ranksPerNode)),
      queues(size_t(numRanks) * model.sms * numPorts),
      occupied(size_t(numRanks) * model.sms), computing(numRanks) {}

void Clock::schedule(double at, std::function<void()> event) {
  events.push({at, numEvents++, std::move(event)});
}

bool Clock::hasNext() { return !events.empty() || flows.next() != unlimited; }

bool Clock::runNext() {
  if (!hasNext()) {
    return false;
  }
  double nextDone = flows.next();
  if (!events.empty() && events.top().at <= nextDone) {
    Event event = events.top();
    events.pop();
    flows.advance(event.at);
    time = event.at;
    event.run();
    return true;
  }
  flows.advance(nextDone);
  time = nextDone;
  for (const std::function<void()> &done : flows.takeDone()) {
    done();
  }
  return true;
}

double Clock::latency(int32_t rank, int32_t peer) const {
  return rank == peer           ? model.local
         : sameNode(rank, peer) ? model.peer
                                : model.nicLatency;
}

// --- activities ------------------------------------------------------------

int64_t Clock::begin(const char *kind, int32_t rank, int32_t peer,
                     int64_t record, int64_t previous) {
  activities.push_back({kind, rank, peer, record, time, time, previous});
  return int64_t(activities.size()) - 1;
}

/// A part of what `fiber` does has ended; it goes on when all has.
void Clock::part(Fiber &fiber, const char *kind, int64_t activity) {
  if (--fiber.time->outstanding > 0) {
    return;
  }
  activities[activity].kind = kind;
  activities[activity].end = time;
  cause = fiber.time->last = activity;
  if (onActivity) {
    onActivity(fiber, kind, false);
  }
  scheduler.start(fiber);
}

void Clock::sleep(Fiber &fiber, const char *kind, double ns) {
  if (ns <= 0) {
    return;
  }
  int64_t activity =
      begin(kind, fiber.launch->rank, -1, fiber.time->record, fiber.time->last);
  fiber.time->outstanding = 1;
  if (onActivity) {
    onActivity(fiber, kind, true);
  }
  schedule(time + ns,
           [this, &fiber, kind, activity] { part(fiber, kind, activity); });
  scheduler.leave(fiber);
}

// --- transfers -------------------------------------------------------------

void Clock::sent(const Transfer &transfer) {
  int32_t from = transfer.origin, to = transfer.target;
  uint64_t id = transfer.id;
  const char *kind =
      transfer.bytes ? (transfer.isGet ? "get" : "put") : "signal";
  Fiber *sender = Fiber::current();
  int64_t activity =
      begin(kind, from, to, sender && sender->time ? sender->time->record : -1,
            sender && sender->time ? sender->time->last : cause);
  double flight = latency(from, to);
  auto arrive = [this, id, activity] { land(id, activity); };
  if (sameNode(from, to) || !transfer.bytes) {
    schedule(time + flight, arrive);
    return;
  }
  if (transfer.isGet) {
    std::swap(from, to);
  }
  flows.start({of(from, NicOut), of(to, NicIn), -1}, double(transfer.bytes),
              unlimited,
              [this, flight, arrive] { schedule(time + flight, arrive); });
}

/// Transfer `id` has arrived, unless it has been delivered already; an order
/// may hold it back until earlier ones have.
void Clock::land(uint64_t id, int64_t activity) {
  deferred.push_back({id, activity});
  for (size_t index = deferred.size(); index-- > 0;) {
    auto [waiting, its] = deferred[index];
    cause = its;
    activities[its].end = time;
    if (network.land(waiting)) {
      deferred.erase(deferred.begin() + ptrdiff_t(index));
      scheduler.wakeDelivered();
      index = deferred.size(); // those that it held back
    }
  }
}

// --- notices ---------------------------------------------------------------

void Clock::resumed(const Fiber &fiber) { cause = fiber.time->last; }

void Clock::woken(Fiber &fiber) {
  if (fiber.time && cause >= 0) {
    fiber.time->last = cause;
  }
}

void Clock::waited(Fiber &fiber, double since) {
  if (fiber.time && time > since && !fiber.wait.isForDelivery()) {
    fiber.time->idle = true;
  }
  if (fiber.time && fiber.time->record >= 0) {
    launches[fiber.time->record].waited += time - since;
  }
}

void Clock::launched(const Launch &launch, const std::string &stream) {
  recordOf[launch.id] = int64_t(launches.size());
  LaunchTime &record = launches.emplace_back();
  record.rank = launch.rank;
  record.name = launch.name;
  record.stream = stream;
  record.programs = launch.programs();
  int64_t perSm = (record.programs + model.sms - 1) / model.sms;
  record.sharing =
      double(std::clamp<int64_t>(perSm, 1, std::max(1, launch.programsPerSm)));
  record.queued = time;
  record.started = unlimited;
}

void Clock::scheduleLaunch(int32_t rank, std::function<void()> start) {
  int64_t activity = begin("launch", rank, -1, -1, -1);
  schedule(time + model.launch, [this, activity, start] {
    activities[activity].end = time;
    cause = activity;
    start();
  });
}

void Clock::programStarted(Fiber &fiber) {
  fiber.time = std::make_unique<ProgramTime>();
  fiber.time->last = cause;
  fiber.time->record = recordOf.at(fiber.launch->id);
  LaunchTime &record = launches[fiber.time->record];
  fiber.time->sharing = record.sharing;
  fiber.time->wave +=
      int32_t(double(record.begun++) / (model.sms * record.sharing));
  if (int32_t weight = fiber.launch->isStream ? 0 : fiber.launch->weight()) {
    auto first = occupied.begin() + int64_t(fiber.launch->rank) * model.sms;
    auto least = std::min_element(first, first + model.sms);
    *least += weight;
    fiber.time->sm = int32_t(least - first);
  }
  record.started = std::min(record.started, time);
}

void Clock::programEnded(Fiber &fiber) {
  LaunchTime &record = launches[fiber.time->record];
  record.ended = time;
  record.last = cause = fiber.time->last;
  if (fiber.time->sm >= 0) {
    occupied[int64_t(fiber.launch->rank) * model.sms + fiber.time->sm] -=
        fiber.launch->weight();
  }
}

void Clock::launchCompleted(const Launch &launch) {
  if (auto found = recordOf.find(launch.id); found != recordOf.end()) {
    operandReads.erase(found->second);
    recordOf.erase(found);
  }
}

int64_t Clock::opBegins(Fiber &fiber, const std::string &what,
                        const std::string &stream) {
  LaunchTime &record = launches.emplace_back();
  record.rank = fiber.launch->rank;
  record.name = what;
  record.stream = stream;
  record.queued = record.started = time;
  return fiber.time->record = int64_t(launches.size()) - 1;
}

void Clock::opEnds(Fiber &fiber, int64_t record) {
  launches[record].ended = time;
  launches[record].last = fiber.time->last;
  fiber.time->record = -1;
}

void Clock::recordUsages() {
  flows.onRate = [this](int32_t number, double rate) {
    static constexpr std::array names = {"link out", "link in", "memory",
                                         "nic out", "nic in"};
    int32_t resource = number % numResources;
    double most = resource <= In       ? model.link
                  : resource == Memory ? model.hbm
                                       : model.nic;
    recordedUsages.push_back(
        {number / numResources, names[resource], time, rate / most});
  };
}

std::vector<Activity> Clock::criticalPath(size_t launch) const {
  std::vector<Activity> path;
  for (int64_t at = launches.at(launch).last; at >= 0;
       at = activities[at].previous) {
    path.push_back(activities[at]);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

} // namespace ditron::sim
