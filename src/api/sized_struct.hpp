// Sized structs: the caller passes `struct_size` bytes. Members past them have their defaults, and
// bytes past the members that this library knows must be zero.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <type_traits>

#include "flashcore/flashcore.h"
#include "flashcore/flashcore.hpp"
#include "problem/status.hpp"

namespace flashcore::api {

// No struct grows past this size; a larger struct_size is garbage, and that many bytes must not be read.
inline constexpr size_t kLargestStruct = 8192;

// The smallest sizes accepted: inputs need the members without defaults, outputs all members of version 0.1.
template <class T>
constexpr size_t kSmallest = 0;
template <>
inline constexpr size_t kSmallest<flashcore_problem> = offsetof(flashcore_problem, lse);
template <>
inline constexpr size_t kSmallest<flashcore_plan_options> = offsetof(flashcore_plan_options,
                                                                     kernel);
template <>
inline constexpr size_t kSmallest<flashcore_arguments> = offsetof(flashcore_arguments, lse);
template <>
inline constexpr size_t kSmallest<flashcore_gradients> = offsetof(flashcore_gradients, d_lse);
template <>
inline constexpr size_t kSmallest<flashcore_backward_arguments> =
    offsetof(flashcore_backward_arguments, d_lse);
template <>
inline constexpr size_t kSmallest<flashcore_merge_problem> = offsetof(flashcore_merge_problem, lse);
template <>
inline constexpr size_t kSmallest<flashcore_merge_arguments> = offsetof(flashcore_merge_arguments,
                                                                        lse);
template <>
inline constexpr size_t kSmallest<flashcore_append_problem> = offsetof(flashcore_append_problem,
                                                                       seqlens_new);
template <>
inline constexpr size_t kSmallest<flashcore_append_arguments> = offsetof(flashcore_append_arguments,
                                                                         seqlens_new);
template <>
inline constexpr size_t kSmallest<flashcore_quantize_problem> = offsetof(flashcore_quantize_problem,
                                                                         mean);
template <>
inline constexpr size_t kSmallest<flashcore_quantize_arguments> =
    offsetof(flashcore_quantize_arguments, mean);
template <>
inline constexpr size_t kSmallest<flashcore_device_info> = sizeof(flashcore_device_info);
template <>
inline constexpr size_t kSmallest<flashcore_build_info> = sizeof(flashcore_build_info);

// The name of the parameter.
template <class T>
constexpr std::string_view kName = "info";
template <>
inline constexpr std::string_view kName<flashcore_problem> = "problem";
template <>
inline constexpr std::string_view kName<flashcore_plan_options> = "options";
template <>
inline constexpr std::string_view kName<flashcore_arguments> = "arguments";
template <>
inline constexpr std::string_view kName<flashcore_merge_problem> = "problem";
template <>
inline constexpr std::string_view kName<flashcore_merge_arguments> = "arguments";
template <>
inline constexpr std::string_view kName<flashcore_append_problem> = "problem";
template <>
inline constexpr std::string_view kName<flashcore_append_arguments> = "arguments";
template <>
inline constexpr std::string_view kName<flashcore_quantize_problem> = "problem";
template <>
inline constexpr std::string_view kName<flashcore_quantize_arguments> = "arguments";
template <>
inline constexpr std::string_view kName<flashcore_gradients> = "gradients";
template <>
inline constexpr std::string_view kName<flashcore_backward_arguments> = "arguments";

// Members come in units of 8 bytes, except for tensors, which are not cut either.
template <class T>
constexpr bool ends_between_members(size_t size) {
  if constexpr (std::is_same_v<T, flashcore_problem>) {
    constexpr size_t first = offsetof(flashcore_problem, q);
    constexpr size_t last = offsetof(flashcore_problem, has_softmax_scale);
    if (size < last) return (size - first) % sizeof(flashcore_tensor) == 0;
    constexpr size_t state = offsetof(flashcore_problem, dropout_state);
    if (size > state && size < sizeof(T)) return (size - state) % sizeof(flashcore_tensor) == 0;
  }
  if constexpr (std::is_same_v<T, flashcore_gradients>) {
    constexpr size_t first = offsetof(flashcore_gradients, d_o);
    if (size < sizeof(T)) return (size - first) % sizeof(flashcore_tensor) == 0;
  }
  if constexpr (std::is_same_v<T, flashcore_merge_problem>) {
    if (size < sizeof(T)) return (size - sizeof(size_t)) % sizeof(flashcore_tensor) == 0;
  }
  if constexpr (std::is_same_v<T, flashcore_append_problem>) {
    constexpr size_t last = offsetof(flashcore_append_problem, kv_scale_block);
    if (size < last) return (size - sizeof(size_t)) % sizeof(flashcore_tensor) == 0;
  }
  if constexpr (std::is_same_v<T, flashcore_quantize_problem>) {
    constexpr size_t last = offsetof(flashcore_quantize_problem, scale_block);
    if (size < last) return (size - sizeof(size_t)) % sizeof(flashcore_tensor) == 0;
  }
  return size % 8 == 0;
}

template <class T>
Status check_struct(const T* pointer, size_t size) {
  if (size < kSmallest<T> || size > kLargestStruct || !ends_between_members<T>(size)) {
    return invalid("{}: struct_size is {}, wanted sizeof of the struct, {} in this version",
                   kName<T>, size, sizeof(T));
  }
  if (reinterpret_cast<uintptr_t>(pointer) % alignof(T) != 0) {
    return invalid("{}: pointer {} is not aligned, wanted a multiple of {}", kName<T>,
                   static_cast<const void*>(pointer), alignof(T));
  }
  return {};
}

template <class T>
Status check_not_null(const T* pointer) {
  if (pointer != nullptr) return {};
  return invalid("{}: pointer is null, wanted a struct", kName<T>);
}

template <class T>
size_t declared_size(const T* from) {
  size_t size = 0;
  std::memcpy(&size, from, sizeof size);
  return size;
}

// `value` must hold the defaults on entry.
template <class T>
Status read_sized(const T* from, T& value) {
  FLASHCORE_RETURN_IF_ERROR(check_not_null(from));
  const size_t size = declared_size(from);
  FLASHCORE_RETURN_IF_ERROR(check_struct(from, size));
  const auto* const bytes = reinterpret_cast<const unsigned char*>(from);
  for (size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) {
      return unsupported("{}: byte {} of {} is not zero, wanted only the {} bytes of version {}",
                         kName<T>, i, size, sizeof(T), build_info().version);
    }
  }
  std::memcpy(&value, from, std::min(size, sizeof(T)));
  return {};
}

template <class T>
Status write_sized(const T& value, T* to) {
  FLASHCORE_RETURN_IF_ERROR(check_not_null(to));
  const size_t size = declared_size(to);
  FLASHCORE_RETURN_IF_ERROR(check_struct(to, size));
  auto* const bytes = reinterpret_cast<unsigned char*>(to);
  std::memcpy(bytes, &value, std::min(size, sizeof(T)));
  if (size > sizeof(T)) std::memset(bytes + sizeof(T), 0, size - sizeof(T));
  std::memcpy(bytes, &size, sizeof size);
  return {};
}

template <class T>
Status init_sized(T value, T* to, size_t struct_size) {
  FLASHCORE_RETURN_IF_ERROR(check_not_null(to));
  FLASHCORE_RETURN_IF_ERROR(check_struct(to, struct_size));
  std::memcpy(to, &struct_size, sizeof struct_size);
  return write_sized(value, to);
}

TensorDesc to_cpp(const flashcore_tensor& tensor);

// A tensor that may be absent: rank 0, and all zero.
Status read_optional(std::string_view name, const flashcore_tensor& tensor,
                     std::optional<TensorDesc>& out);

Status read_flag(std::string_view name, int32_t value, bool& out);

}  // namespace flashcore::api
