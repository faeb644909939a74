// A launch whose programs have nothing to do with each other, on all cores.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace ditron::sim {

struct Launch;

struct Batch {
  explicit Batch(Launch &launch) : launch(launch) {}

  using Time = std::chrono::steady_clock::time_point;
  Launch &launch;
  std::atomic<int64_t> next{0}; ///< The first program that nobody has begun.
  std::atomic<bool> failed{false};
};

} // namespace ditron::sim
