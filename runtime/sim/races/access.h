// The kinds of accesses that the race detector distinguishes.
#pragma once

#include <cstdint>

namespace ditron::sim {

enum class Access : uint8_t {
  Load,
  Store,
  AtomicLoad,
  AtomicStore,
  Atomic,
  Update, ///< An atomic that changes a value by itself, as adding does.
  Put,
  PutSource,
  Get,
  GetSource,
  Signal,
  Wait,
  HostRead,
  HostWrite,
  Copy, ///< By a copy engine.
  CopySource,
  PacketWrite,
  PacketRead
};

bool isWrite(Access kind);
bool isAtomic(Access kind);
/// Whether it is one side of a copy, which may copy uninitialized memory.
bool isCopy(Access kind);
/// As reports call it: "put", "put's read of its source".
const char *spelling(Access kind);

} // namespace ditron::sim
