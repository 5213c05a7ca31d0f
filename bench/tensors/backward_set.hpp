// The tensors of one backward run, on the host: the forward pass's, and gradients by their public
// names ("d_o", "dq", ...).
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

// Returns true for all but "d_o" and "d_lse".
bool is_gradient_output(std::string_view name);

// The problem with an LSE, which a backward pass needs; a new one is contiguous.
Problem with_lse(Problem problem);

// Contiguous gradients of everything that the problem has, with their tensors' types. With `d_lse`,
// one flows into LSE.
Gradients gradients_of(const Problem& problem, bool d_lse);

// Copies the gradients with contiguous fp64 outputs, for the reference.
Gradients exact(const Gradients& gradients);

// Arguments with the pointers of pointer_of(name); `forward` are the forward pass's.
BackwardArguments bind(const Gradients& gradients, const Arguments& forward,
                       const std::function<void*(std::string_view)>& pointer_of);

// A backward problem with the host memory of its tensors.
struct HostBackward {
  HostProblem forward;  // its o and lse are a forward pass's results
  Gradients gradients;
  std::map<std::string, HostTensor, std::less<>> tensors;  // the gradients

  HostTensor& at(std::string_view name) { return tensors.find(name)->second; }
  const HostTensor& at(std::string_view name) const { return tensors.find(name)->second; }

  BackwardArguments arguments();
};

// d_o and d_lse are N(0, 1), outputs are poisoned, and o and lse stay as they are.
HostBackward add_gradients(HostProblem forward, const Gradients& gradients, uint64_t seed);

// Like add_gradients, for a problem with filled inputs; o and lse become the fp64 reference's, rounded.
Result<HostBackward> make_host_backward(HostProblem forward, const Gradients& gradients,
                                        uint64_t seed, int threads = 0);

// Sets every byte of the outputs to 0xFF again.
void poison_outputs(HostBackward& host);

}  // namespace flashcore::bench
