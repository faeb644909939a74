// What acquires synchronize with: a release sequence for each atomic variable,
// that is for each address and width that atomics and signals have used.
#pragma once

#include "abi/abi.h"
#include "races/shadow_memory.h"
#include "races/vector_clock.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ditron::sim {

struct Release {
  int32_t rank;
  Scope scope;
  VectorClock clock;
};

struct SyncVar {
  uintptr_t address;
  size_t bytes;
  std::vector<Release> releases = {};
  AccessId latest = 0; ///< The latest signal that was delivered here.

  void publish(Release release) {
    for (Release &other : releases) {
      if (other.rank == release.rank && other.scope == release.scope) {
        other.clock.join(release.clock);
        return;
      }
    }
    releases.push_back(std::move(release));
  }
};

/// The variables of an address space. None crosses an aligned word of 8 bytes.
class SyncVars {
public:
  /// The variable of that address and width.
  SyncVar &at(const void *p, size_t bytes) {
    auto address = reinterpret_cast<uintptr_t>(p);
    std::vector<SyncVar> &word = words[address / wordBytes];
    auto found = std::find_if(word.begin(), word.end(), [&](auto &var) {
      return var.address == address && var.bytes == bytes;
    });
    return found == word.end() ? word.emplace_back(SyncVar{address, bytes})
                               : *found;
  }
  /// `visit(var)` for the variables that have any of those bytes: a part of a
  /// signal may be polled, too.
  template <typename Visit>
  void forEach(const void *p, size_t bytes, Visit visit) {
    auto address = reinterpret_cast<uintptr_t>(p);
    auto word = words.find(address / wordBytes);
    if (word != words.end()) {
      for (SyncVar &var : word->second) {
        if (var.address < address + bytes &&
            address < var.address + var.bytes) {
          visit(var);
        }
      }
    }
  }
  /// Forget those of a range of whole words.
  void erase(uintptr_t address, size_t bytes) {
    for (size_t byte = 0; byte < bytes && !words.empty(); byte += wordBytes) {
      words.erase((address + byte) / wordBytes);
    }
  }
  void clear() { words.clear(); }

private:
  static constexpr uintptr_t wordBytes = 8;
  std::unordered_map<uintptr_t, std::vector<SyncVar>> words;
};

} // namespace ditron::sim
