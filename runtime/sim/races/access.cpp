#include "races/access.h"

namespace ditron::sim {

bool isWrite(Access kind) {
  switch (kind) {
  case Access::Store:
  case Access::AtomicStore:
  case Access::Atomic:
  case Access::Update:
  case Access::Put:
  case Access::Get:
  case Access::Signal:
  case Access::HostWrite:
  case Access::Copy:
  case Access::PacketWrite:
    return true;
  default:
    return false;
  }
}

bool isAtomic(Access kind) {
  switch (kind) {
  case Access::AtomicLoad:
  case Access::AtomicStore:
  case Access::Atomic:
  case Access::Update:
  case Access::Signal:
  case Access::Wait:
    return true;
  default:
    return false;
  }
}

bool isCopy(Access kind) {
  switch (kind) {
  case Access::Put:
  case Access::PutSource:
  case Access::Get:
  case Access::GetSource:
  case Access::Copy:
  case Access::CopySource:
    return true;
  default:
    return false;
  }
}

const char *spelling(Access kind) {
  constexpr const char *spellings[] = {"load",
                                       "store",
                                       "atomic load",
                                       "atomic store",
                                       "atomic",
                                       "atomic update",
                                       "put",
                                       "put's read of its source",
                                       "get",
                                       "get's read of its source",
                                       "signal",
                                       "wait",
                                       "read by host code",
                                       "write by host code",
                                       "copy",
                                       "copy's read of its source",
                                       "ll_put",
                                       "ll_get"};
  return spellings[int(kind)];
}

} // namespace ditron::sim
