#include "scheduler/stack.h"

#include <cstdint>
#include <new>
#include <sys/mman.h>
#include <utility>

// A build may define DITRON_SIM_UCONTEXT to test the portable switch.
#if defined(__x86_64__) && !defined(DITRON_SIM_UCONTEXT)
#define DITRON_SIM_ASSEMBLY
#else
#include <ucontext.h>
#endif

namespace ditron::sim {

/// Large, because a kernel's stack frame may skip a single page without
/// touching it.
constexpr size_t guardBytes = size_t(16) << 20;
/// More unused stacks than this are unmapped.
constexpr size_t pooledStacks = 256;

Stack::Stack(size_t bytes) : bytes(bytes) {
  void *memory =
      mmap(nullptr, guardBytes + bytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::bad_alloc();
  }
  base = static_cast<std::byte *>(memory);
  if (mprotect(base + guardBytes, bytes, PROT_READ | PROT_WRITE) != 0) {
    munmap(memory, guardBytes + bytes);
    base = nullptr;
    throw std::bad_alloc();
  }
}

Stack::Stack(Stack &&other) noexcept
    : context(std::exchange(other.context, nullptr)),
      base(std::exchange(other.base, nullptr)), bytes(other.bytes) {}

Stack &Stack::operator=(Stack &&other) noexcept {
  std::swap(context, other.context);
  std::swap(base, other.base);
  std::swap(bytes, other.bytes);
  return *this;
}

Stack::~Stack() {
  if (base) {
    munmap(base, guardBytes + bytes);
  }
}

bool Stack::contains(const void *address) const {
  return base && address >= base + guardBytes &&
         address < base + guardBytes + bytes;
}

bool Stack::guards(const void *address) const {
  return base && address >= base && address < base + guardBytes;
}

#if defined(DITRON_SIM_ASSEMBLY)

// Saves the callee-saved registers. ucontext would do, but costs two system
// calls per switch.
asm(R"(
.pushsection .text
.globl ditron_sim_switch_context
.hidden ditron_sim_switch_context
.type ditron_sim_switch_context, @function
ditron_sim_switch_context:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size ditron_sim_switch_context, . - ditron_sim_switch_context
.popsection
)");

extern "C" void ditron_sim_switch_context(void **from, void *to);

void switchContext(void **from, void *to) {
  ditron_sim_switch_context(from, to);
}

void Stack::prepare(void (*entry)()) {
  auto *top = reinterpret_cast<void **>(base + guardBytes + bytes);
  *--top = nullptr; // the return address of `entry`: a backtrace ends here, and
                    // the stack is aligned as after a call
  *--top = reinterpret_cast<void *>(entry);
  for (int i = 0; i < 6; ++i) {
    *--top = nullptr;
  }
  context = top;
}

#else

void switchContext(void **from, void *to) {
  ucontext_t here;
  *from = &here;
  swapcontext(&here, static_cast<ucontext_t *>(to));
}

void Stack::prepare(void (*entry)()) {
  auto *initial = reinterpret_cast<ucontext_t *>(base + guardBytes + bytes -
                                                 sizeof(ucontext_t) - 64);
  initial = reinterpret_cast<ucontext_t *>(
      reinterpret_cast<uintptr_t>(initial) & ~uintptr_t(63));
  getcontext(initial);
  initial->uc_stack.ss_sp = base + guardBytes;
  initial->uc_stack.ss_size =
      reinterpret_cast<std::byte *>(initial) - (base + guardBytes);
  initial->uc_link = nullptr;
  makecontext(initial, entry, 0);
  context = initial;
}

#endif

Stack StackPool::take() {
  if (free.empty()) {
    return Stack(bytes);
  }
  Stack stack = std::move(free.back());
  free.pop_back();
  return stack;
}

void StackPool::give(Stack stack) {
  if (free.size() < pooledStacks) {
    free.push_back(std::move(stack));
  }
}

} // namespace ditron::sim
