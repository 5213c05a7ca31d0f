// Files that a run writes: checked before it begins, replaced atomically at its end.
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
  std::vector<std::string> gradients = {};  // gradients that a backward run writes to `out`
};

// Refuses outputs that cannot be written or would destroy an input, before the computation.
Status check_outputs(const OutputFiles& files, const Problem& problem,
                     const std::vector<std::string>& inputs);
Status check_outputs(const OutputFiles& files, const Gradients& gradients,
                     const std::vector<std::string>& inputs);

// Writes O (and LSE), in the memory order of `layout`. `written` gets one line per file.
Status write_outputs(const OutputFiles& files, const HostProblem& host, const std::string& layout,
                     std::vector<std::string>& written);
Status write_outputs(const OutputFiles& files, const HostBackward& host, const std::string& layout,
                     std::vector<std::string>& written);

// Writes every input of the problem, so that the result can be recomputed elsewhere.
Status save_inputs(const OutputFiles& files, const HostProblem& host, const std::string& layout,
                   std::vector<std::string>& written);
Status save_inputs(const OutputFiles& files, const HostBackward& host, const std::string& layout,
                   std::vector<std::string>& written);

// Refuses a file of inputs that cannot be written or would destroy one of `inputs`.
Status check_input_file(const std::string& option, const std::string& path,
                        const std::vector<std::string>& inputs);
// save_inputs, and the tensor that was subtracted from k, if any.
Status write_inputs(const std::string& path, const HostProblem& host, const HostTensor* k_mean,
                    const std::string& layout, std::vector<std::string>& written);

}  // namespace flashcore::bench
