// The tensors of one backward run, on the host: those of the forward pass, and gradients by their
// public names ("d_o", "dq", ...).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "bench/tensors/tensor_set.hpp"

namespace flashcore::bench {

// Calls visit(name, descriptor) for every tensor of the gradients, inputs first.
void for_each_gradient(const Gradients& gradients,
                       const std::function<void(std::string_view, const TensorDesc&)>& visit);

// All but "d_o" and "d_lse".
bool is_gradient_output(std::string_view name);

// The problem with an LSE, which a backward pass needs: contiguous where it had none.
Problem with_lse(Problem problem);

// Contiguous gradients of the types of what they belong to, of everything that the problem has.
// With `d_lse`, one flows into LSE.
Gradients gradients_of(const Problem& problem, bool d_lse);

// The same gradients with contiguous fp64 outputs, for the reference.
Gradients exact(const Gradients& gradients);

// Arguments whose pointers come from pointer_of(name); `forward` are those of the forward pass.
BackwardArguments bind(const Gradients& gradients, const Arguments& forward,
                       const std::function<void*(std::string_view)>& pointer_of);

// A backward problem with the host memory of its tensors.
struct HostBackward {
  HostProblem forward;  // its o and lse are those of a forward pass
  Gradients gradients;
  std::map<std::string, HostTensor, std::less<>> tensors;  // the gradients

  HostTensor& at(std::string_view name) { return tensors.find(name)->second; }
  const HostTensor& at(std::string_view name) const { return tensors.find(name)->second; }

  BackwardArguments arguments();
};

// d_o and d_lse are N(0, 1), outputs are poisoned, and o and lse stay as they are.
HostBackward add_gradients(HostProblem forward, const Gradients& gradients, uint64_t seed);

// The same of a problem whose inputs are filled; o and lse become the fp64 reference's, rounded.
Result<HostBackward> make_host_backward(HostProblem forward, const Gradients& gradients,
                                        uint64_t seed, int threads = 0);

// Every byte of the outputs becomes 0xFF again.
void poison_outputs(HostBackward& host);

}  // namespace flashcore::bench
