#include "scheduler/fault.h"

#include "machine.h"
#include "report/text.h"

#include <csetjmp>
#include <csignal>
#include <memory>
#include <mutex>

namespace ditron::sim {

constexpr int handledSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr size_t handlerStackBytes = size_t(64) << 10;

// Handlers belong to the process, so machines in several threads share one
// installation.
static std::mutex installing;
static int installations = 0;
static struct sigaction previous[NSIG];

/// The handler's own stack, because a program's may have overflowed; lives as
/// long as the thread.
struct HandlerStack {
  std::byte memory[handlerStackBytes];
};
static thread_local std::unique_ptr<HandlerStack> handlerStack;
static thread_local stack_t previousStack;

static thread_local sigjmp_buf *faultExit = nullptr;
static thread_local int faultSignal = 0;
static thread_local void *faultAddress = nullptr;

static void *const noAddress = reinterpret_cast<void *>(-1);

static void onFault(int signal, siginfo_t *info, void *) {
  if (!Fiber::current() || !faultExit) {
    sigaction(signal, &previous[signal],
              nullptr); // not a program's: it is raised again, and handled as
                        // before
    return;
  }
  faultSignal = signal;
  // The processor does not report a non-canonical address.
  faultAddress = info->si_code == SI_KERNEL ? noAddress : info->si_addr;
  siglongjmp(*faultExit, 1);
}

FaultGuard::FaultGuard() {
  if (!handlerStack) {
    handlerStack = std::make_unique<HandlerStack>();
  }
  stack_t stack = {};
  stack.ss_sp = handlerStack->memory;
  stack.ss_size = handlerStackBytes;
  sigaltstack(&stack, &previousStack);
  std::lock_guard<std::mutex> lock(installing);
  if (installations++ == 0) {
    struct sigaction action = {};
    action.sa_sigaction = onFault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    for (int signal : handledSignals) {
      sigaction(signal, &action, &previous[signal]);
    }
  }
}

FaultGuard::~FaultGuard() {
  sigaltstack(&previousStack, nullptr);
  std::lock_guard<std::mutex> lock(installing);
  if (--installations == 0) {
    for (int signal : handledSignals) {
      sigaction(signal, &previous[signal], nullptr);
    }
  }
}

/// Nothing in this frame has a destructor: a jump out of a program skips them.
bool runCatchingFaults(void (*body)(void *), void *context, Fault &fault) {
  sigjmp_buf *outer = faultExit;
  sigjmp_buf exit;
  faultExit = &exit;
  bool fine = false;
  if (sigsetjmp(exit, 0) == 0) {
    body(context);
    fine = true;
  } else {
    fault = {faultSignal, faultAddress};
  }
  faultExit = outer;
  return fine;
}

Failure describeFault(const Machine &machine, const Fiber &fiber,
                      const Fault &fault) {
  if (fault.signal == SIGFPE) {
    return {"integer division by zero",
            "check divisors such as a number of ranks or of tiles"};
  }
  if (fault.signal == SIGILL) {
    return {"execution reached a trap",
            "code that the compiler holds to be unreachable was reached"};
  }
  if (fiber.stack.guards(fault.address)) {
    return {
        format("the program's tiles do not fit in its stack of ",
               machine.options().stackBytes, " bytes"),
        "use smaller tiles, or give the simulator larger stacks (stack_bytes)"};
  }
  std::optional<Heap::Location> location = machine.heap.locate(fault.address);
  if (location && location->multicast) {
    return {"an ordinary load or store at a multicast address",
            "use dl.multimem_* on it"};
  }
  if (reinterpret_cast<uintptr_t>(fault.address) < 4096) {
    return {"a load or store at a null pointer",
            "symm_at gives null for ranks of other nodes: reach them by putmem "
            "and getmem"};
  }
  return {fault.address == noAddress
              ? "a load or store at an address that cannot exist, or is not "
                "aligned for a vector"
              : format("a load or store at ", fault.address,
                       ", which is no memory of this program"),
          "check the offsets and masks of the loads and stores after the line "
          "shown, the last one known"};
}

Failure outOfStacks(const StackPool &stacks) {
  return {
      format("no memory for another stack of ", stacks.stackBytes(), " bytes"),
      "let fewer programs run at a time (resident), or give them smaller "
      "stacks (stack_bytes)"};
}

} // namespace ditron::sim
