// Sized structs: the caller passes `struct_size` bytes. Members past them have their defaults, and
// bytes past the members that this library knows must be zero.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "flashcore/flashcore.h"
#include "flashcore/flashcore.hpp"
#include "problem/operands.hpp"
#include "problem/status.hpp"

namespace flashcore::api {

// No struct grows past this size; a larger struct_size is garbage, and that many bytes must not be read.
inline constexpr size_t kLargestStruct = 8192;

// Calls visit(line, offset, bytes) for the operands in a struct: tensors of a problem, or pointers to their data.
template <class T, class Visit>
constexpr void for_each_operand(const Visit& visit) {
  const auto of_call = [&]<class What>(std::type_identity<What>) {
    for (const auto& line : kOperands<What>) {
      if constexpr (std::is_same_v<T, typename StructsOf<What>::CProblem>) {
        visit(line, line.c_tensor, sizeof(flashcore_tensor));
      } else if constexpr (std::is_same_v<T, typename StructsOf<What>::CArguments>) {
        visit(line, line.c_data, sizeof(void*));
      }
    }
  };
  of_call(std::type_identity<Problem>{});
  of_call(std::type_identity<Gradients>{});
  of_call(std::type_identity<Merge>{});
  of_call(std::type_identity<Append>{});
  of_call(std::type_identity<Quantize>{});
}

// The smallest sizes accepted: inputs need the members without defaults, outputs all members of version 0.1.
template <class T>
constexpr size_t smallest_size() {
  if (std::is_same_v<T, flashcore_plan_options>) return offsetof(flashcore_plan_options, kernel);
  size_t smallest = sizeof(T);
  for_each_operand<T>([&](const Line& line, size_t offset, size_t) {
    if (line.is_optional) smallest = std::min(smallest, offset);
  });
  return smallest;
}

// The name of the parameter.
template <class T>
constexpr std::string_view parameter_name() {
  if (std::is_same_v<T, flashcore_plan_options>) return "options";
  if (std::is_same_v<T, flashcore_gradients>) return "gradients";
  if (std::is_same_v<T, flashcore_context_problem>) return "problem";
  std::string_view name = "info";
  for_each_operand<T>([&](const Line&, size_t, size_t bytes) {
    name = bytes == sizeof(flashcore_tensor) ? "problem" : "arguments";
  });
  return name;
}
template <class T>
constexpr std::string_view kName = parameter_name<T>();

// Members come in units of 8 bytes, except for tensors, which are not cut either.
template <class T>
constexpr bool ends_between_members(size_t size) {
  bool cuts = size % 8 != 0;
  for_each_operand<T>([&](const Line&, size_t offset, size_t bytes) {
    cuts |= size > offset && size < offset + bytes;
  });
  return !cuts;
}

template <class T>
Status check_struct(const T* pointer, size_t size) {
  if (size < smallest_size<T>() || size > kLargestStruct || !ends_between_members<T>(size)) {
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
T default_struct() {
  return {};
}
template <>
flashcore_problem default_struct();
template <>
flashcore_plan_options default_struct();
template <>
flashcore_append_problem default_struct();
template <>
flashcore_context_problem default_struct();

// Writes defaults into the first struct_size bytes.
template <class T>
Status init_sized(T* to, size_t struct_size) {
  FLASHCORE_RETURN_IF_ERROR(check_not_null(to));
  FLASHCORE_RETURN_IF_ERROR(check_struct(to, struct_size));
  std::memcpy(to, &struct_size, sizeof struct_size);
  return write_sized(default_struct<T>(), to);
}

TensorDesc to_cpp(const flashcore_tensor& tensor);

// An optional tensor of rank 0 is absent, and must be all zero.
Status check_absent(std::string_view name, const flashcore_tensor& tensor);

Status read_flag(std::string_view name, int32_t value, bool& out);

// Reads a problem's struct and its tensors.
template <class What>
Status read_tensors(const typename StructsOf<What>::CProblem* from,
                    typename StructsOf<What>::CProblem& c, What& out) {
  c = default_struct<typename StructsOf<What>::CProblem>();
  FLASHCORE_RETURN_IF_ERROR(read_sized(from, c));
  for (const auto& line : kOperands<What>) {
    const flashcore_tensor& tensor = line.of_c(c);
    if (line.is_optional && tensor.rank == 0) {
      FLASHCORE_RETURN_IF_ERROR(check_absent(line.name, tensor));
    } else {
      line.set(out, to_cpp(tensor));
    }
  }
  return {};
}

// Reads the struct of a run and its pointers.
template <class What>
Status read_data(const typename StructsOf<What>::CArguments* from,
                 typename StructsOf<What>::CArguments& c,
                 typename StructsOf<What>::Arguments& out) {
  FLASHCORE_RETURN_IF_ERROR(read_sized(from, c));
  std::apply([&](const auto&... lines) { (lines.copy_data(c, out), ...); }, kOperands<What>);
  return {};
}

}  // namespace flashcore::api
