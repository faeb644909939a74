// Building sentences for reports.
#pragma once

#include <sstream>
#include <string>

namespace ditron::sim {

template <typename... Parts> std::string format(const Parts &...parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <typename List> std::string join(const List &list) {
  std::ostringstream out;
  const char *separator = "";
  for (const auto &entry : list) {
    out << separator << entry;
    separator = ", ";
  }
  return out.str();
}

} // namespace ditron::sim
