// Stands for src/cuda/launch/describe.hpp: the simulator also learns how to call the kernel.
#pragma once

#include <functional>
#include <tuple>
#include <utility>

#include "cuda/launch/instance.hpp"
#include "runtime/launch.hpp"

namespace flashcore::cuda::launch {

template <class... Parameters>
Instance describe(std::string_view name, void (*kernel)(Parameters...), const Shape& shape) {
  const auto* const function = reinterpret_cast<const void*>(kernel);
  sim::learn_kernel(function, [kernel](void** arguments) -> std::function<void()> {
    return [&]<size_t... kPlaces>(std::index_sequence<kPlaces...>)->std::function<void()> {
      return [kernel, copies = std::tuple<Parameters...>(*static_cast<const Parameters*>(
                          arguments[kPlaces])...)] { std::apply(kernel, copies); };
    }
    (std::index_sequence_for<Parameters...>());
  });
  return {name, function, &kSignature<Parameters...>, shape};
}

}  // namespace flashcore::cuda::launch
