// Files that a run writes: checked before it begins, replaced as a whole at its end.
#pragma once

#include <string>
#include <vector>

#include "bench/tensors/backward_set.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

struct OutputFiles {
  std::string out;          // .safetensors (o and lse, or gradients) or .npy (o, or one gradient)
  std::string lse;          // .npy
  std::string save_inputs;  // .safetensors
  std::vector<std::string> gradients = {};  // that `out` gets in a backward run
};

// Refuses what cannot be written, or would destroy an input, before anything is computed.
Status check_outputs(const OutputFiles& files, const Problem& problem,
                     const std::vector<std::string>& inputs);
Status check_outputs(const OutputFiles& files, const Gradients& gradients,
                     const std::vector<std::string>& inputs);

// Writes O (and LSE); memory in the order of `layout`. One line per file in `written`.
Status write_outputs(const OutputFiles& files, const HostProblem& host, const std::string& layout,
                     std::vector<std::string>& written);
Status write_outputs(const OutputFiles& files, const HostBackward& host, const std::string& layout,
                     std::vector<std::string>& written);

// Writes every input of the problem, so that it can be computed again elsewhere.
Status save_inputs(const OutputFiles& files, const HostProblem& host, const std::string& layout,
                   std::vector<std::string>& written);
Status save_inputs(const OutputFiles& files, const HostBackward& host, const std::string& layout,
                   std::vector<std::string>& written);

// Refuses a file of inputs that cannot be written or would destroy one of `inputs`.
Status check_input_file(const std::string& option, const std::string& path,
                        const std::vector<std::string>& inputs);
// The same as save_inputs, and what was subtracted from k, if anything.
Status write_inputs(const std::string& path, const HostProblem& host, const HostTensor* k_mean,
                    const std::string& layout, std::vector<std::string>& written);

}  // namespace flashcore::bench
