// Stacks and the switch between them: how many programs share one thread.
#pragma once

#include <cstddef>
#include <vector>

namespace ditron::sim {

/// A stack whose pages are committed when they are first touched, below it a
/// guard that faults.
class Stack {
public:
  Stack() = default; ///< No stack at all.
  explicit Stack(size_t bytes);
  Stack(Stack &&other) noexcept;
  Stack &operator=(Stack &&other) noexcept;
  ~Stack();

  /// Prepare the stack so that the first switch to it calls `entry`, which must
  /// never return.
  void prepare(void (*entry)());
  bool contains(const void *address) const;
  bool guards(const void *address) const;

  void *context =
      nullptr; ///< Where execution goes on; valid while switched away.

private:
  std::byte *base = nullptr; ///< The guard comes first, then the stack itself.
  size_t bytes = 0;
};

/// Leave the running context in `*from` and go on in `to`.
void switchContext(void **from, void *to);

/// Stacks for reuse, the last one first: it is the one that is warm.
class StackPool {
public:
  explicit StackPool(size_t bytes) : bytes(bytes) {}
  Stack take();
  void give(Stack stack);
  size_t stackBytes() const { return bytes; }

private:
  size_t bytes;
  std::vector<Stack> free;
};

} // namespace ditron::sim
