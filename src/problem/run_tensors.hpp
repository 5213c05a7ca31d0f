// The tensors of a plan's runs, and the checks of their pointers.
#pragma once

#include <vector>

#include "flashcore/flashcore.hpp"
#include "problem/memory.hpp"
#include "problem/status.hpp"

namespace flashcore {

// Everything about the tensors of a run except their addresses. The problem and the gradients have been resolved.
class RunTensors {
 public:
  RunTensors() = default;
  explicit RunTensors(const Problem& problem);
  RunTensors(const Problem& problem, const Gradients& gradients);

  // Checks that pointers are there and aligned, and that no output shares memory with another tensor.
  Status check(const Arguments& args) const;
  Status check(const BackwardArguments& args) const;

 private:
  template <class AnyArguments>
  struct Tensor {
    const void* (*data)(const AnyArguments&);
    NamedMemory at_zero;  // as if the data were at address 0
  };
  template <class AnyArguments>
  using Tensors = std::vector<Tensor<AnyArguments>>;

  template <class What, class AnyArguments>
  static Tensors<AnyArguments> tensors_of(const What& what);
  template <class AnyArguments>
  static NamedMemory* place(const Tensors<AnyArguments>& tensors, const AnyArguments& args,
                            NamedMemory* to);

  Tensors<Arguments> forward_;
  Tensors<BackwardArguments> gradients_;
};

}  // namespace flashcore
