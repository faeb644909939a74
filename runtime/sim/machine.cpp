// Launches and the scheduler.
#include "machine.h"

#include "fault.h"
#include "stream.h"
#include "text.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ditron::sim {

static thread_local Machine *runningMachine = nullptr;
static thread_local Fiber *runningFiber = nullptr;

/// How often, in switches, waits are looked at again: ordinary stores change
/// memory without telling the machine.
constexpr uint64_t rescanPeriod = 256;
/// Printed lines for which the host is asked to take them.
constexpr size_t manyLines = 256;

Machine::Machine(const Options &options)
    : heap(options.numRanks, options.heapBytes), options(options),
      random(options.seed),
      network(options.numRanks, options.ranksPerNode, options.seed, random,
              [this](const void *address, size_t bytes) {
                changed(address, bytes);
              }),
      stacks(options.stackBytes), straggler(options.numRanks),
      queues(options.numRanks), residents(options.numRanks) {
  // Not never: a program may spin in a way that is not recognised, on what is
  // under way.
  constexpr uint64_t habits[] = {2, 8, 64, 1024};
  landOneIn = habits[random.below(4)];
  for (int32_t rank = 0; rank < options.numRanks; ++rank) {
    straggler[rank] = random.oneIn(4);
  }
}

Machine::~Machine() = default;

void Machine::record(size_t capacity) {
  events = std::make_unique<Trace>(capacity);
  network.arrived = [this](const Delivery &delivery, const void *where,
                           size_t bytes) {
    events->arrived(heap, delivery, where, bytes);
  };
}

void Machine::findRaces() {
  races = std::make_unique<Races>(heap, options.numRanks);
  network.signalling = [this](const Delivery &delivery) {
    if (delivery.passage && !hasFailed) {
      if (std::optional<ProgramReport> wrong = races->land(delivery)) {
        failed = std::move(*wrong);
        hasFailed = true;
      }
    }
  };
}

void Machine::weaken() {
  visibility = std::make_unique<Visibility>(
      heap, options.seed,
      [this](const void *address, size_t bytes) { changed(address, bytes); });
}

Fiber *Machine::current() { return runningFiber; }
Machine *Machine::running() { return runningMachine; }

Team &Machine::team(std::vector<int32_t> ranks, const std::string &name) {
  std::unique_ptr<Team> &slot = teams[{ranks, name}];
  if (!slot) {
    slot = std::make_unique<Team>();
    slot->indexOf.assign(options.numRanks, -1);
    slot->inside.assign(ranks.size(), nullptr);
    for (size_t index = 0; index < ranks.size(); ++index) {
      slot->indexOf[ranks[index]] = int32_t(index);
    }
    slot->ranks = std::move(ranks);
  }
  return *slot;
}

uint64_t Machine::submit(Launch description,
                         const std::vector<int32_t> &group) {
  auto launch = std::make_unique<Launch>(std::move(description));
  std::vector<int32_t> onNode, nodes, world;
  for (int32_t rank : group) {
    if (nodeOf(rank) == nodeOf(launch->rank)) {
      onNode.push_back(rank);
    }
    nodes.push_back(nodeOf(rank));
  }
  for (int32_t rank = 0; rank < options.numRanks; ++rank) {
    world.push_back(rank);
  }
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  launch->node =
      int32_t(std::find(nodes.begin(), nodes.end(), nodeOf(launch->rank)) -
              nodes.begin());
  launch->teams = {&team(group), &team(std::move(onNode)),
                   &team(std::move(world))};
  uint64_t id = launch->id = nextLaunch++;
  note(id * 64 + launch->rank);
  if (launch->programs() == 0) {
    completed.push_back(id);
    return id;
  }
  news();
  Launch &queued = *(launches[id] = std::move(launch));
  if (events) {
    events->launched(queued);
  }
  if (races) {
    races->launched(queued);
  }
  queues[queued.rank].push_back(&queued);
  admit(queued.rank);
  return id;
}

void Machine::admit(int32_t rank) {
  std::deque<Launch *> &queue = queues[rank];
  while (!queue.empty() && residents[rank] < options.resident) {
    Launch &launch = *queue.front();
    if (launch.independent && launch.programs() > 1 && cores > 1 && !races &&
        !visibility && !events) {
      launch.started = launch.programs();
      batches.push_back(std::make_unique<Batch>(launch));
      queue.pop_front();
      continue;
    }
    if (unused.empty()) {
      unused.push_back(&fibers.emplace_back());
    }
    Fiber &fiber = *unused.back();
    unused.pop_back();
    fiber = Fiber();
    fiber.launch = &launch;
    if (events) {
      fiber.slot = events->takePlace(rank);
    }
    fiber.pid = launch.program(launch.started++);
    ++residents[rank];
    ready.push_back(&fiber);
    if (launch.started == launch.programs()) {
      queue.pop_front();
    }
  }
}

Stream &Machine::stream(int32_t rank, const std::string &name, int32_t index) {
  std::unique_ptr<Stream> &slot = streams[{rank, name, index}];
  if (!slot) {
    auto others = std::count_if(streams.begin(), streams.end(), [&](auto &one) {
      return one.second && one.second->rankOf() == rank;
    });
    slot = std::make_unique<Stream>(*this, rank, name, index, int32_t(others));
  }
  return *slot;
}

bool Machine::busy() const {
  return std::any_of(streams.begin(), streams.end(),
                     [](const auto &one) { return one.second->busy(); });
}

Machine::Status Machine::run(uint64_t maxSwitches) {
  if (thread == std::thread::id()) {
    thread = std::this_thread::get_id();
  }
  if (thread != std::this_thread::get_id()) {
    throw std::logic_error("a machine must be run by one thread only");
  }
  Machine *outer = std::exchange(runningMachine, this);
  Status status;
  {
    FaultGuard guard;
    status = hasFailed ? Status::Failed : guarded(maxSwitches);
  }
  runningMachine = outer;
  runningFiber = nullptr; // a fault leaves it set
  return status;
}

Machine::Status Machine::loop(uint64_t maxSwitches) {
  for (uint64_t step = 0;; ++step) {
    if (hasFailed) {
      return Status::Failed;
    }
    if (!completed.empty() || printed.size() >= manyLines) {
      return completed.empty() ? Status::Paused : Status::Completed;
    }
    if (step == maxSwitches) {
      return Status::Paused;
    }
    if (!batches.empty()) {
      if (!runBatch()) {
        return Status::Paused;
      }
      continue;
    }
    if (looks >= nextTry && onlyPolled()) {
      return Status::Stuck;
    }
    if (!network.empty() && random.oneIn(landOneIn)) {
      land();
    }
    if (visibility) {
      visibility->drift();
    }
    if (switchCount % rescanPeriod == rescanPeriod - 1) {
      wakeWaiters();
    }
    if (ready.empty() && !land() && !(visibility && visibility->publishOne()) &&
        !wakeWaiters() && !wakeSpinners()) {
      return launches.empty() ? Status::Idle : Status::Stuck;
    }
    if (!ready.empty()) {
      resume(*pick());
    }
  }
}

bool Machine::land() {
  if (!network.landOne()) {
    return false;
  }
  note(network.nextId());
  for (size_t index = quieting.size(); index-- > 0;) {
    if (over(*quieting[index])) {
      wake(*quieting[index]);
    }
  }
  return true;
}

Fiber *Machine::pick() {
  size_t index = random.below(ready.size());
  for (int attempt = 0; attempt < 3 && straggler[ready[index]->launch->rank] &&
                        !random.oneIn(16);
       ++attempt) {
    index = random.below(ready.size());
  }
  Fiber *fiber = ready[index];
  ready[index] = ready.back();
  ready.pop_back();
  return fiber;
}

void programEntry() {
  Fiber &fiber = *runningFiber;
  Launch &launch = *fiber.launch;
  launch.kernel(launch.args.data(), fiber.pid[0], fiber.pid[1], fiber.pid[2],
                launch.grid[0], launch.grid[1], launch.grid[2]);
  runningMachine->linger();
  fiber.done = true;
  runningMachine->abandon();
}

/// A program's last stores take their time: others may go on meanwhile.
void Machine::linger() {
  try {
    if (races) {
      races->checkEchoes(*current());
    }
  } catch (Failure &failure) {
    fail(*current(), std::move(failure));
    abandon();
  }
  while (visibility && visibility->owes(*current()) && !random.oneIn(4)) {
    ready.push_back(current());
    leave();
  }
}

void Machine::resume(Fiber &fiber) {
  ++switchCount;
  note(((fiber.launch->id * 4096 + fiber.launch->rank) << 20) ^
       (uint64_t(fiber.pid[2]) << 40) ^ (uint64_t(fiber.pid[1]) << 20) ^
       fiber.pid[0]);
  if (!fiber.begun) {
    fiber.begun = true;
    news();
    if (races && !fiber.launch->isStream) {
      races->begun(fiber);
    }
    try {
      fiber.stack = stacks.take();
    } catch (const std::bad_alloc &) {
      fail(fiber, noStack());
      return;
    }
    fiber.stack.prepare(programEntry);
    if (events && !fiber.launch->isStream) {
      events->begun(fiber);
    }
  }
  if (events) {
    events->turn(fiber);
  }
  runningFiber = &fiber;
  if (visibility) {
    visibility->enter(fiber);
  }
  switchContext(&scheduler, fiber.stack.context);
  if (visibility) {
    visibility->leave();
  }
  runningFiber = nullptr;
  if (events) {
    events->turnEnded(fiber);
  }
  if (fiber.done) {
    retire(fiber);
  }
}

Failure Machine::noStack() const {
  return {
      format("no memory for another stack of ", stacks.stackBytes(), " bytes"),
      "let fewer programs run at a time (resident), or give them smaller "
      "stacks (stack_bytes)"};
}

void Machine::retire(Fiber &fiber) {
  news();
  stacks.give(std::move(fiber.stack));
  Launch &launch = *fiber.launch;
  int32_t rank = launch.rank;
  if (events) {
    events->ended(fiber);
  }
  if (races) {
    races->ended(fiber);
  }
  if (visibility) {
    visibility->ended(fiber);
  }
  unused.push_back(&fiber);
  --residents[rank];
  if (++launch.finished == launch.programs()) {
    conclude(launch);
  }
  admit(rank);
}

/// All its programs have ended.
void Machine::conclude(Launch &launch) {
  // The host may free what the kernel was given once it hears that the launch
  // is over.
  network.settle(launch.rank, launch.id,
                 [&](const void *address) { return !heap.locate(address); });
  if (visibility) {
    visibility->completed(launch);
  }
  if (events) {
    events->completed(launch);
  }
  if (races) {
    races->completed(launch);
  }
  if (launch.stream) {
    launch.stream->launchOver();
  } else {
    completed.push_back(launch.id);
  }
  launches.erase(launch.id);
}

void Machine::leave() {
  Fiber &fiber = *runningFiber;
  switchContext(&fiber.stack.context, fiber.home ? *fiber.home : scheduler);
}

/// Make the calling thread run a program of `machine`; returns whose it ran.
Machine *Machine::occupy(Machine *machine, Fiber *fiber) {
  runningFiber = fiber;
  return std::exchange(runningMachine, machine);
}

void Machine::abandon() {
  leave();
  __builtin_unreachable();
}

std::vector<uint64_t> Machine::takeCompleted() {
  return std::exchange(completed, {});
}
void Machine::print(std::string line) {
  printed.push_back(std::move(line));
  if (printed.size() >= manyLines) {
    pass();
  }
}
std::vector<std::string> Machine::takePrinted() {
  return std::exchange(printed, {});
}
std::vector<ProgramReport> Machine::takeWarnings() {
  return std::exchange(warnings, {});
}

void Machine::note(uint64_t event) {
  trace = (trace ^ event) * 0x9e3779b97f4a7c15u + (trace >> 29);
}

} // namespace ditron::sim
