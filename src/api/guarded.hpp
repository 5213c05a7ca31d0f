// A call of the C interface: its message, and the exceptions that it stops.
#pragma once

#include <algorithm>
#include <array>
#include <exception>
#include <new>
#include <stdexcept>
#include <string_view>

#include "flashcore/flashcore.h"
#include "flashcore/flashcore.hpp"
#include "problem/status.hpp"

namespace flashcore::api {

// A fixed buffer rather than a string: errors can be reported when memory has run out.
inline std::array<char, 1024>& last_error() {
  thread_local std::array<char, 1024> buffer{};
  return buffer;
}

inline flashcore_status report(StatusCode code, std::string_view message) noexcept {
  std::array<char, 1024>& buffer = last_error();
  const size_t length = std::min(message.size(), buffer.size() - 1);
  std::copy_n(message.begin(), length, buffer.begin());
  buffer[length] = '\0';
  return static_cast<flashcore_status>(code);
}

template <class Body>
flashcore_status guarded(const Body& body) noexcept {
  try {
    const Status status = body();
    return report(status.code(), status.message());
  } catch (const std::bad_alloc&) {
    return report(StatusCode::out_of_memory, "memory: the host has none left for this call");
  } catch (const std::length_error&) {
    return report(StatusCode::out_of_memory, "memory: the call needs more than an object can hold");
  } catch (const std::exception& error) {
    return report(StatusCode::internal, error.what());
  } catch (...) {
    return report(StatusCode::internal, "internal: an exception of an unknown type");
  }
}

inline Status check_output(std::string_view name, const void* pointer) {
  if (pointer != nullptr) return {};
  return invalid("{}: pointer is null, wanted a place for the result", name);
}

}  // namespace flashcore::api
