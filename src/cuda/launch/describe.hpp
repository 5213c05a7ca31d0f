// What the generated files of compiled kernels call.
#pragma once

#include "cuda/launch/instance.hpp"

namespace flashcore::cuda::launch {

template <class... Parameters>
Instance describe(std::string_view name, void (*kernel)(Parameters...), const Shape& shape) {
  return {name, reinterpret_cast<const void*>(kernel), &kSignature<Parameters...>, shape};
}

}  // namespace flashcore::cuda::launch
