#include "machine.h"

#include "report/text.h"
#include "scheduler/fault.h"
#include "streams/stream.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ditron::sim {

static thread_local Machine *currentMachine = nullptr;

Machine *Machine::current() { return currentMachine; }

Machine *Machine::exchangeCurrent(Machine *machine, Fiber *fiber) {
  Fiber::setCurrent(fiber);
  return std::exchange(currentMachine, machine);
}

Machine::Machine(const Options &options)
    : settings(options), heap(options.numRanks, options.heapBytes),
      random(options.seed), draws(options.seed),
      network(options.numRanks, options.ranksPerNode, options.seed, random,
              [this](const void *address, size_t bytes) {
                scheduler.memoryChanged(address, bytes);
              }),
      scheduler(random, network, options.numRanks), teams(options.numRanks),
      launches(options.numRanks, options.resident, options.seed),
      stacks(options.stackBytes), parallel(*this) {}

Machine::~Machine() = default;

void Machine::enableTrace(size_t capacity) {
  trace = std::make_unique<Trace>(capacity);
  network.onDelivered = [this](const Transfer &transfer, const void *where,
                               size_t bytes) {
    trace->delivered(heap, transfer, where, bytes);
  };
  traceActivities();
}

void Machine::enableClock(const TimingModel &model) {
  clock = std::make_unique<Clock>(model, settings.numRanks,
                                  settings.ranksPerNode, scheduler, network);
  scheduler.setClock(*clock);
  launches.setInOrder();
  network.onSent = [this](const Transfer &transfer) { clock->sent(transfer); };
  traceActivities();
}

void Machine::traceActivities() {
  if (!trace || !clock) {
    return;
  }
  trace->useTime([this] { return uint64_t(clock->now()); });
  clock->recordUsages();
  clock->onActivity = [this](const Fiber &fiber, const char *kind,
                             bool begins) {
    if (begins) {
      trace->called(fiber, kind, "", nullptr, 0);
    } else {
      trace->returned(fiber, kind, 0);
    }
  };
}

void Machine::enableRaceDetector() {
  races = std::make_unique<RaceDetector>(heap, settings.numRanks,
                                         settings.ranksPerNode);
  network.beforeSignal = [this](const Transfer &transfer) {
    if (transfer.message && !diagnostics.hasFailed()) {
      if (std::optional<ProgramReport> wrong = races->deliverSignal(transfer)) {
        diagnostics.fail(std::move(*wrong));
      }
    }
  };
}

void Machine::enableWeakMemory() {
  weakMemory = std::make_unique<WeakMemory>(
      heap, settings.seed, [this](const void *address, size_t bytes) {
        scheduler.memoryChanged(address, bytes);
      });
}

// --- launches --------------------------------------------------------------

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
  for (int32_t rank = 0; rank < settings.numRanks; ++rank) {
    world.push_back(rank);
  }
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  launch->node =
      int32_t(std::find(nodes.begin(), nodes.end(), nodeOf(launch->rank)) -
              nodes.begin());
  launch->teams = {&teams.get(group), &teams.get(std::move(onNode)),
                   &teams.get(std::move(world))};
  uint64_t id = launch->id = launches.newId();
  scheduler.addToHash(id * 64 + launch->rank);
  if (launch->programs() == 0) {
    completed.push_back(id);
    return id;
  }
  scheduler.spins.progress();
  Launch &queued = launches.add(std::move(launch));
  if (trace) {
    trace->launched(queued);
  }
  if (races) {
    races->launched(queued);
  }
  if (clock) {
    clock->launched(queued, queued.stream ? queued.stream->label() : "");
    if (!queued.stream) { // a stream has waited
      clock->scheduleLaunch(
          queued.rank, [this, rank = queued.rank] { startPrograms(rank); });
      return id;
    }
  }
  startPrograms(queued.rank);
  return id;
}

bool Machine::canRunInParallel(const Launch &launch) const {
  // The race detector, weak memory, the trace and the clock need one order.
  return parallel.accepts(launch) && !races && !weakMemory && !trace && !clock;
}

void Machine::startPrograms(int32_t rank) {
  while (Launch *launch = launches.startable(rank)) {
    if (canRunInParallel(*launch)) {
      launches.takeWhole(rank);
      parallel.add(*launch);
      continue;
    }
    Fiber &fiber = launches.startProgram(rank);
    if (trace) {
      fiber.traceSlot = trace->takeSlot(rank);
    }
    if (clock) {
      clock->programStarted(fiber);
    }
    scheduler.start(fiber);
  }
}

void Machine::complete(Launch &launch) {
  // The host may free what the kernel was given once the launch has completed.
  network.completeLaunch(launch.rank, launch.id, [&](const void *address) {
    return !heap.locate(address);
  });
  if (weakMemory) {
    weakMemory->launchCompleted(launch);
  }
  if (clock) {
    clock->launchCompleted(launch);
  }
  if (trace) {
    trace->launchCompleted(launch);
  }
  if (races) {
    races->launchCompleted(launch);
  }
  if (launch.stream) {
    launch.stream->launchCompleted();
  } else {
    completed.push_back(launch.id);
  }
  launches.remove(launch);
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

bool Machine::hasStreamWork() const {
  return std::any_of(streams.begin(), streams.end(),
                     [](const auto &one) { return one.second->hasWork(); });
}

// --- the loop --------------------------------------------------------------

Machine::Status Machine::run(uint64_t maxSwitches) {
  if (thread == std::thread::id()) {
    thread = std::this_thread::get_id();
  }
  if (thread != std::this_thread::get_id()) {
    throw std::logic_error("a machine must be run by one thread only");
  }
  Machine *outer = exchangeCurrent(this, nullptr);
  Status status;
  {
    FaultGuard guard;
    status = diagnostics.hasFailed() ? Status::Failed : runGuarded(maxSwitches);
  }
  exchangeCurrent(outer, nullptr); // a fault leaves a fiber
  return status;
}

/// A fault ends the run with a failure. Nothing here has a destructor, as a
/// fault jumps out of the loop.
Machine::Status Machine::runGuarded(uint64_t maxSwitches) {
  struct {
    Machine *machine;
    uint64_t maxSwitches;
    Status status;
  } run = {this, maxSwitches, Status::Failed};
  auto body = [](void *context) {
    auto &it = *static_cast<decltype(run) *>(context);
    it.status = it.machine->loop(it.maxSwitches);
  };
  Fault fault;
  if (!runCatchingFaults(body, &run, fault)) {
    Fiber &fiber = *Fiber::current();
    diagnostics.fail(fiber, describeFault(*this, fiber, fault));
    return Status::Failed;
  }
  return run.status;
}

Machine::Status Machine::loop(uint64_t maxSwitches) {
  for (uint64_t step = 0;; ++step) {
    if (diagnostics.hasFailed()) {
      return Status::Failed;
    }
    if (!completed.empty()) {
      return Status::Completed;
    }
    if (diagnostics.isFull() || step == maxSwitches) {
      return Status::Paused;
    }
    if (parallel.hasLaunches()) {
      if (!parallel.run()) {
        return Status::Paused;
      }
      continue;
    }
    // Who spins on many words reads often, and time may bring what changes
    // them.
    bool timePasses = !scheduler.hasReady() && clock && clock->hasNext();
    if (!timePasses && scheduler.spins.isCheckDue() && isLivelocked()) {
      return Status::Blocked;
    }
    if (!network.empty() && scheduler.policy.delivers()) {
      deliverOne();
    }
    if (weakMemory) {
      weakMemory->maybePublish();
    }
    if (scheduler.isRescanDue()) {
      scheduler.wakeSatisfied();
    }
    if (!scheduler.hasReady() && clock && clock->runNext()) {
      continue;
    }
    if (!scheduler.hasReady() && !deliverOne() &&
        !(weakMemory && weakMemory->publishOne()) &&
        !scheduler.wakeSatisfied() && !scheduler.wakeSpinning()) {
      return launches.empty() ? Status::Idle : Status::Blocked;
    }
    if (scheduler.hasReady()) {
      resume(scheduler.next());
    }
  }
}

bool Machine::deliverOne() {
  if (!network.deliverOne()) {
    return false;
  }
  scheduler.addToHash(network.nextId());
  scheduler.wakeDelivered();
  return true;
}

/// If not, makes all visible that is in flight, and lets programs read again.
bool Machine::isLivelocked() {
  if (scheduler.isLivelocked()) {
    return true;
  }
  while (deliverOne()) {
  }
  while (weakMemory && weakMemory->publishOne()) {
  }
  scheduler.retrySpinning();
  return false;
}

// --- programs --------------------------------------------------------------

void Machine::resume(Fiber &fiber) {
  if (!fiber.started && !start(fiber)) {
    return;
  }
  if (trace) {
    trace->resumed(fiber);
  }
  if (weakMemory) {
    weakMemory->switchIn(fiber);
  }
  if (clock) {
    clock->resumed(fiber);
  }
  scheduler.switchTo(fiber);
  if (weakMemory) {
    weakMemory->switchOut();
  }
  if (trace) {
    trace->suspended(fiber);
  }
  if (fiber.done) {
    end(fiber);
  }
}

bool Machine::start(Fiber &fiber) {
  fiber.started = true;
  launches.mayExchange(fiber);
  scheduler.spins.progress();
  if (races && !fiber.launch->isStream) {
    races->programStarted(fiber);
  }
  try {
    fiber.stack = stacks.take();
  } catch (const std::bad_alloc &) {
    diagnostics.fail(fiber, outOfStacks(stacks));
    return false;
  }
  fiber.stack.prepare(runProgram);
  if (trace && !fiber.launch->isStream) {
    trace->programStarted(fiber);
  }
  return true;
}

/// The first function on every program's stack.
void Machine::runProgram() {
  Fiber &fiber = *Fiber::current();
  Launch &launch = *fiber.launch;
  launch.kernel(launch.args.data(), fiber.pid[0], fiber.pid[1], fiber.pid[2],
                launch.grid[0], launch.grid[1], launch.grid[2]);
  Machine &machine = *Machine::current();
  if (machine.clock) {
    machine.clock->settle(fiber);
  }
  machine.drainStores(fiber);
  fiber.done = true;
  machine.abandon();
}

/// Before a program ends: others may run before its buffered stores are
/// visible.
void Machine::drainStores(Fiber &fiber) {
  try {
    if (races) {
      races->checkSameValueStores(fiber);
    }
  } catch (Failure &failure) {
    diagnostics.fail(fiber, std::move(failure));
    abandon();
  }
  while (weakMemory && weakMemory->hasBufferedStores(fiber) &&
         !random.oneIn(4)) {
    scheduler.yield();
  }
}

void Machine::end(Fiber &fiber) {
  scheduler.spins.progress();
  stacks.give(std::move(fiber.stack));
  Launch &launch = *fiber.launch;
  int32_t rank = launch.rank;
  if (trace) {
    trace->programEnded(fiber);
  }
  if (races) {
    races->programEnded(fiber);
  }
  if (weakMemory) {
    weakMemory->programEnded(fiber);
  }
  if (clock) {
    clock->programEnded(fiber);
  }
  if (launches.endProgram(fiber)) {
    complete(launch);
  }
  startPrograms(rank);
}

void Machine::abandon() {
  scheduler.leave(*Fiber::current());
  __builtin_unreachable();
}

void Machine::barrier(Team &team) {
  Fiber &fiber = *Fiber::current();
  int32_t member = team.indexOf[fiber.launch->rank];
  if (Fiber *other = team.inside[member]) {
    throw Failure{
        format("a second program of this rank calls a barrier while program (",
               join(other->pid), ") is still in it"),
        "call it from one program per rank, for example under `if "
        "tl.program_id(0) == 0`"};
  }
  uint64_t generation = team.generation;
  if (races) {
    races->enterBarrier(fiber, team);
  }
  if (++team.arrived == int32_t(team.ranks.size())) {
    team.arrived = 0;
    ++team.generation;
    if (races) {
      races->leaveBarrier(fiber, team);
    }
    for (Fiber *&inside : team.inside) {
      if (inside) {
        if (races) {
          races->leaveBarrier(*inside, team);
        }
        scheduler.wake(*inside);
        inside = nullptr;
      }
    }
    scheduler.maybeYield();
    return;
  }
  team.inside[member] = &fiber;
  Wait wait;
  wait.kind = Wait::Kind::Barrier;
  wait.team = &team;
  wait.id = generation;
  scheduler.block(wait);
}

// --- the host --------------------------------------------------------------

void Machine::print(std::string line) {
  diagnostics.print(std::move(line));
  if (diagnostics.isFull()) {
    scheduler.maybeYield(1);
  }
}

std::vector<uint64_t> Machine::takeCompleted() {
  return std::exchange(completed, {});
}

} // namespace ditron::sim
