// The tensors of one run, by their public names ("q", "cu_seqlens_kv", ...), on the host.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "bench/tensors/host_tensor.hpp"
#include "bench/tensors/random.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// Calls visit(name, descriptor) for every tensor that the problem has, q first.
void for_each_tensor(const Problem& problem,
                     const std::function<void(std::string_view, const TensorDesc&)>& visit);

// Sets the descriptor of a tensor by name; returns false for an unknown name.
bool set_tensor(Problem& problem, std::string_view name, const TensorDesc& desc);

// Returns whether V is the first 512 columns of a K of 576 (MLA), in the same memory, with K's strides.
bool v_is_in_k(const Problem& problem);
// The first `columns` columns of a tensor's rows.
TensorDesc first_columns(TensorDesc desc, int64_t columns);

bool is_output(std::string_view name);  // "o", "lse" and largest values

// Arguments with the pointers of pointer_of(name): host, device, or file memory; k's for a v in it.
Arguments bind(const Problem& problem, const std::function<void*(std::string_view)>& pointer_of);

using HostTensors = std::map<std::string, HostTensor, std::less<>>;

// Says which tensor was written outside of its elements, and which output has elements that are NaN
// or were not written; empty if none.
std::string overrun(const HostTensors& tensors);
std::string unwritten(std::string_view name, const HostTensor& output);

// A problem with the host memory of its tensors.
struct HostProblem {
  Problem problem;
  HostTensors tensors;
  uint64_t dropout_seed = 0;
  uint64_t dropout_offset = 0;

  HostTensor& at(std::string_view name) { return tensors.find(name)->second; }
  const HostTensor& at(std::string_view name) const { return tensors.find(name)->second; }
  bool has(std::string_view name) const { return tensors.find(name) != tensors.end(); }

  Arguments arguments();
};

// Runs a CPU kernel on the tensors; without a name, the one that is chosen.
Status run_on_cpu(const std::string& kernel, HostProblem& host, int threads);

// Allocates every tensor, with all bytes 0xFF.
HostProblem allocate(const Problem& problem);

// Fills every input: N(0, 1) for q, k, v, bias and sinks, a random mask (true for 3 of 4), random bits,
// ALiBi slopes 2^(-8 (h + 1) / H), scales in [0.5, 2), full lengths, equal packed entries.
void fill_inputs(HostProblem& host, uint64_t seed);

// A page table or a list of pages: all of k's pages in random order, repeated if there are too few.
void fill_pages(Random& random, const Problem& problem, HostTensor& table);

// The seed and offset that a run uses: those in dropout_state, if the problem has it.
struct DropoutDraw {
  uint64_t seed, offset;
};
DropoutDraw dropout_draw(const HostProblem& host);

// Writes a draw into dropout_state; the second version, the problem's seed and offset.
void set_dropout_state(HostTensor& state, const DropoutDraw& draw);
void fill_dropout_state(HostProblem& host);

// Sets every byte of the outputs to 0xFF again.
void poison_outputs(HostProblem& host);

// allocate and fill_inputs.
HostProblem make_host_problem(const Problem& problem, uint64_t seed);

}  // namespace flashcore::bench
