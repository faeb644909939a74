// Stacks, and the switch between them, by which programs share a thread.
#pragma once

#include <cstddef>
#include <vector>

namespace ditron::sim {

/// A stack whose pages are committed when they are first touched, above guard
/// pages that fault.
class Stack {
public:
  Stack() = default; ///< None.
  explicit Stack(size_t bytes);
  Stack(Stack &&other) noexcept;
  Stack &operator=(Stack &&other) noexcept;
  ~Stack();

  /// Prepare the stack so that the first switch to it calls `entry`, which must
  /// never return.
  void prepare(void (*entry)());
  bool contains(const void *address) const;
  /// Whether the address lies in the guard pages.
  bool guards(const void *address) const;

  void *context =
      nullptr; ///< Where execution continues; valid while switched away.

private:
  std::byte *base = nullptr; ///< Guard pages, then the stack.
  size_t bytes = 0;
};

/// Save the running context in `*from` and continue in `to`.
void switchContext(void **from, void *to);

/// Stacks for reuse. The last one given is the next taken: it is in the cache.
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
