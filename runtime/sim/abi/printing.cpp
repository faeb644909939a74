// device_print and device_assert.
#include "abi/call.h"

#include <cstdarg>
#include <cstdio>

using namespace ditron::sim;

/// Formatted by printf: the lowering writes the format, as Triton does for
/// GPUs.
static std::string formatted(const void *form, va_list values) {
  const char *text = static_cast<const char *>(form);
  va_list again;
  va_copy(again, values);
  std::string line(size_t(std::vsnprintf(nullptr, 0, text, again)), '\0');
  va_end(again);
  std::vsnprintf(line.data(), line.size() + 1, text, values);
  return line;
}

void ditron_sim_print(void *form, int32_t loc, ...) {
  va_list values;
  va_start(values, loc);
  call(loc, [&](Machine &machine, Fiber &fiber) {
    bool alone = machine.options().numRanks == 1;
    machine.print((alone ? "" : format("[rank ", fiber.launch->rank, "] ")) +
                  formatted(form, values));
  });
  va_end(values);
}

void ditron_sim_assert_fail(void *form, int32_t loc, ...) {
  va_list values;
  va_start(values, loc);
  call(loc, [&](Machine &, Fiber &) {
    throw Failure{"assertion failed" + formatted(form, values), ""};
  });
}
