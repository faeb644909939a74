#include "scheduler/thread_pool.h"

#include <csignal>
#include <pthread.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace ditron::sim {

ThreadPool &ThreadPool::ofProcess() {
  // Never destroyed: its threads sleep in it when the process ends. A fork has
  // no threads but the caller's, so the child makes a pool of its own.
  static std::mutex making;
  static ThreadPool *pool = nullptr;
  static pid_t owner = 0;
  std::lock_guard<std::mutex> guard(making);
  if (!pool || owner != getpid()) {
    pool = new ThreadPool;
    owner = getpid();
  }
  return *pool;
}

bool ThreadPool::start(int count, std::function<void()> job) {
  std::lock_guard<std::mutex> guard(lock);
  if (inUse) {
    return false;
  }
  inUse = true;
  work = std::move(job);
  numWanted = count;
  for (; numThreads < count; ++numThreads) {
    try {
      std::thread([this] { serve(); }).detach();
    } catch (const std::system_error &) {
      break; // fewer will do
    }
  }
  wake.notify_all();
  return true;
}

void ThreadPool::finish() {
  std::unique_lock<std::mutex> guard(lock);
  numWanted = 0;
  idle.wait(guard, [&] { return numRunning == 0; });
  work = nullptr;
  inUse = false;
}

void ThreadPool::serve() {
  // Signals to the process are for its other threads, except for faults.
  sigset_t all;
  sigfillset(&all);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    sigdelset(&all, fault);
  }
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  std::unique_lock<std::mutex> guard(lock);
  for (;;) {
    wake.wait(guard, [&] { return numWanted > 0; });
    --numWanted;
    ++numRunning;
    guard.unlock();
    work();
    guard.lock();
    if (--numRunning == 0) {
      idle.notify_all();
    }
  }
}

} // namespace ditron::sim
