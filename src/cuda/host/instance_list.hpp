// A family's compiled kernels by what they are, as the lists made by its instances.cmake name them.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>

namespace flashcore::cuda::host {

// The entry of a list of {instance, entry}; of an instance that was not compiled one that fails.
template <class List, class Instance>
const auto& find_listed(const List& list, const Instance& wanted) {
  using Entry = decltype(list.front().entry);
  constexpr auto kFails = [](auto...) { return cudaErrorInvalidDeviceFunction; };
  static const Entry not_compiled = {kFails, kFails};
  const auto found = std::find_if(list.begin(), list.end(),
                                  [&](const auto& one) { return one.instance == wanted; });
  return found == list.end() ? not_compiled : found->entry;
}

}  // namespace flashcore::cuda::host
