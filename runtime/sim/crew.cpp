#include "crew.h"

#include <csignal>
#include <pthread.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace ditron::sim {

Crew &Crew::ofProcess() {
  // Never destroyed: its threads sleep in it when the process ends. A fork
  // leaves the threads behind, so the child makes a crew of its own.
  static std::mutex making;
  static Crew *crew = nullptr;
  static pid_t owner = 0;
  std::lock_guard<std::mutex> guard(making);
  if (!crew || owner != getpid()) {
    crew = new Crew;
    owner = getpid();
  }
  return *crew;
}

bool Crew::call(int count, std::function<void()> job) {
  std::lock_guard<std::mutex> guard(lock);
  if (taken) {
    return false;
  }
  taken = true;
  work = std::move(job);
  wanted = count;
  for (; threads < count; ++threads) {
    try {
      std::thread([this] { serve(); }).detach();
    } catch (const std::system_error &) {
      break; // fewer will do
    }
  }
  wake.notify_all();
  return true;
}

void Crew::finish() {
  std::unique_lock<std::mutex> guard(lock);
  wanted = 0;
  idle.wait(guard, [&] { return inside == 0; });
  work = nullptr;
  taken = false;
}

void Crew::serve() {
  // Signals to the process are for its own threads; faults are ours.
  sigset_t all;
  sigfillset(&all);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    sigdelset(&all, fault);
  }
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  std::unique_lock<std::mutex> guard(lock);
  for (;;) {
    wake.wait(guard, [&] { return wanted > 0; });
    --wanted;
    ++inside;
    guard.unlock();
    work();
    guard.lock();
    if (--inside == 0) {
      idle.notify_all();
    }
  }
}

} // namespace ditron::sim
