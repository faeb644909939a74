#include "timing/operand_reads.h"

#include <algorithm>

namespace ditron::sim {

size_t OperandReads::read(const void *address, double bytes, int32_t wave) {
  auto place = uintptr_t(address);
  auto [found, isNew] = numbers.try_emplace(Place{place, wave}, reads.size());
  if (isNew) {
    reads.push_back({place, wave});
  }
  if (volumes.size() <= size_t(wave)) {
    volumes.resize(size_t(wave) + 1);
  }
  Read &read = reads[found->second];
  double most = std::max(read.bytes, bytes);
  volumes[wave] += most - read.bytes;
  read.bytes = most;
  ++read.sharers;
  return found->second;
}

double OperandReads::fromMemory(size_t number, double cache) const {
  const Read &read = reads[number];
  double since = 0; // bytes read after an earlier wave began
  for (int32_t wave = read.wave - 1; wave >= 0; --wave) {
    since += volumes[wave];
    if (since > cache) {
      break;
    }
    if (numbers.count({read.address, wave})) {
      return 0;
    }
  }
  return read.bytes / read.sharers;
}

} // namespace ditron::sim
