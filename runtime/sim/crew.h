// The host's other cores: threads that sleep until there is work, and live as
// long as the process.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

namespace ditron::sim {

class Crew {
public:
  static Crew &ofProcess();

  /// Let up to `count` others do `job` too, until `finish`. False when they are
  /// busy for somebody else.
  bool call(int count, std::function<void()> job);
  /// Return when nobody begins any more, and those who have begun are done.
  void finish();

private:
  void serve();

  std::mutex lock;
  std::condition_variable wake, idle;
  std::function<void()> work;
  int threads = 0; ///< How many there are,
  int wanted = 0;  ///< may still begin,
  int inside = 0;  ///< have begun.
  bool taken = false;
};

} // namespace ditron::sim
