// A pool of threads for the host's other cores. They sleep until there is work,
// and live as long as the process.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

namespace ditron::sim {

class ThreadPool {
public:
  static ThreadPool &ofProcess();

  /// Let up to `count` threads run `job` too, until `finish`. False when the
  /// pool is in use.
  bool start(int count, std::function<void()> job);
  /// Let no more threads begin, and return when those that have are done.
  void finish();

private:
  void serve();

  std::mutex lock;
  std::condition_variable wake, idle;
  std::function<void()> work;
  int numThreads = 0;
  int numWanted = 0;  ///< May still begin the job.
  int numRunning = 0; ///< Have begun it.
  bool inUse = false;
};

} // namespace ditron::sim
