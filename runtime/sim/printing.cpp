// What a program says: device_print's lines and device_assert's message.
#include "call.h"

#include <cstdarg>
#include <cstdio>

using namespace ditron::sim;

/// As printf has it: the lowering writes the format, as Triton does for a GPU.
static std::string said(const void *form, va_list values) {
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
    bool alone = machine.settings().numRanks == 1;
    machine.print((alone ? "" : format("[rank ", fiber.launch->rank, "] ")) +
                  said(form, values));
  });
  va_end(values);
}

void ditron_sim_assert_fail(void *form, int32_t loc, ...) {
  va_list values;
  va_start(values, loc);
  call(loc, [&](Machine &, Fiber &) {
    throw Failure{"assertion failed" + said(form, values), ""};
  });
}
