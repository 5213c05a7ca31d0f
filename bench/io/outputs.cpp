#include "bench/io/outputs.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <span>
#include <utility>

#include "bench/io/atomic_file.hpp"
#include "bench/io/npy.hpp"
#include "bench/io/safetensors.hpp"
#include "bench/io/tensor.hpp"
#include "problem/problem.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

bool is_npy(const std::string& path) { return path.ends_with(".npy"); }

Status check_path(const std::string& option, const std::string& path, bool npy, bool safetensors,
                  const std::vector<std::string>& inputs) {
  const bool named = (npy && is_npy(path)) || (safetensors && path.ends_with(".safetensors"));
  if (!named) {
    return invalid("{}: is '{}', wanted a file named .{}{}{}", option, path,
                   safetensors ? "safetensors" : "", npy && safetensors ? " or ." : "",
                   npy ? "npy" : "");
  }
  for (const std::string& input : inputs) {
    if (io::same_file(path, input)) {
      return invalid("{}: '{}' is an input, wanted another file", option, path);
    }
  }
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string directory = parent.empty() ? "." : parent.string();
  if (::access(directory.c_str(), W_OK | X_OK) != 0) {
    return invalid("{}: '{}' cannot be written to ({}), wanted a writable directory", option,
                   directory, std::strerror(errno));
  }
  return {};
}

// Two outputs of one run may not share a file.
bool same_path(const std::string& a, const std::string& b) {
  return !a.empty() && !b.empty() &&
         (std::filesystem::path(a).lexically_normal() ==
              std::filesystem::path(b).lexically_normal() ||
          io::same_file(a, b));
}

// The tensor in its memory order: bshd swaps dimensions of the problem's bhsd.
io::OutputTensor stored(const std::string& name, const HostTensor& tensor,
                        const std::string& layout) {
  const TensorDesc& desc = tensor.desc();
  std::vector<int64_t> shape(desc.shape.begin(), desc.shape.begin() + desc.rank);
  static const std::set<std::string, std::less<>> kMoved = {"q",   "k",  "v",  "o",
                                                            "d_o", "dq", "dk", "dv"};
  if (layout == "bshd" && kMoved.contains(name) && shape.size() == 4) std::swap(shape[1], shape[2]);
  return {name, desc.dtype, std::move(shape), tensor.bytes()};
}

std::string summary(const std::string& path, std::span<const io::OutputTensor> tensors) {
  std::string text = path + ":";
  for (const io::OutputTensor& tensor : tensors) {
    text += fmt::format("{} {} {} {}", text.ends_with(':') ? "" : ",", tensor.name,
                        to_string(tensor.dtype), io::to_text(tensor.shape));
  }
  return text;
}

Status write(const std::string& path, const std::vector<io::OutputTensor>& tensors,
             std::vector<std::string>& written) {
  FLASHCORE_RETURN_IF_ERROR(is_npy(path) ? io::write_npy(path, tensors.front())
                                         : io::write_safetensors(path, tensors));
  written.push_back(summary(path, tensors));
  return {};
}

// Checks the inputs' file, and that the result has a file of its own.
Status check_others(const OutputFiles& files, const std::vector<std::string>& inputs) {
  if (!files.save_inputs.empty()) {
    FLASHCORE_RETURN_IF_ERROR(check_input_file("--save-inputs", files.save_inputs, inputs));
  }
  if (same_path(files.out, files.lse) || same_path(files.out, files.save_inputs)) {
    return invalid("--out: '{}' is another output too, wanted a file of its own", files.out);
  }
  return {};
}

std::vector<io::OutputTensor> inputs_of(const HostProblem& host, const std::string& layout) {
  std::vector<io::OutputTensor> tensors;
  for_each_tensor(host.problem, [&](std::string_view name, const TensorDesc&) {
    if (!is_output(name)) tensors.push_back(stored(std::string(name), host.at(name), layout));
  });
  return tensors;
}

}  // namespace

Status check_outputs(const OutputFiles& files, const Problem& problem,
                     const std::vector<std::string>& inputs) {
  if (!files.out.empty()) {
    FLASHCORE_RETURN_IF_ERROR(check_path("--out", files.out, true, true, inputs));
    if (is_npy(files.out)) FLASHCORE_RETURN_IF_ERROR(io::check_npy(files.out, problem.o.dtype));
  }
  if (!files.lse.empty()) {
    FLASHCORE_RETURN_IF_ERROR(check_path("--lse-out", files.lse, true, false, inputs));
    if (!problem.lse) return invalid("--lse-out: is given with --no-lse, wanted one of them");
  }
  return check_others(files, inputs);
}

Status check_outputs(const OutputFiles& files, const Gradients& gradients,
                     const std::vector<std::string>& inputs) {
  if (!files.lse.empty()) {
    return invalid("--lse-out: is '{}' with --backward, wanted one of them", files.lse);
  }
  if (!files.out.empty()) {
    FLASHCORE_RETURN_IF_ERROR(check_path("--out", files.out, true, true, inputs));
    if (is_npy(files.out) && files.gradients.size() != 1) {
      return invalid("--out: '{}' holds one array, wanted .safetensors for {} gradients", files.out,
                     files.gradients.size());
    }
    Status status;
    for_each_gradient(gradients, [&](std::string_view name, const TensorDesc& desc) {
      if (is_npy(files.out) && name == files.gradients.front()) {
        status = io::check_npy(files.out, desc.dtype, "--gradient-dtype");
      }
    });
    FLASHCORE_RETURN_IF_ERROR(status);
  }
  return check_others(files, inputs);
}

Status write_outputs(const OutputFiles& files, const HostProblem& host, const std::string& layout,
                     std::vector<std::string>& written) {
  std::vector<io::OutputTensor> tensors = {stored("o", host.at("o"), layout)};
  if (host.has("lse")) tensors.push_back(stored("lse", host.at("lse"), layout));
  if (!files.lse.empty()) FLASHCORE_RETURN_IF_ERROR(write(files.lse, {tensors.back()}, written));
  if (is_npy(files.out)) tensors.resize(1);
  for (const LargestValue& one : kLargestOutputs) {
    if (host.has(one.name) && !is_npy(files.out))
      tensors.push_back(stored(one.name, host.at(one.name), layout));
  }
  if (!files.out.empty()) FLASHCORE_RETURN_IF_ERROR(write(files.out, tensors, written));
  return {};
}

Status write_outputs(const OutputFiles& files, const HostBackward& host, const std::string& layout,
                     std::vector<std::string>& written) {
  if (files.out.empty()) return {};
  std::vector<io::OutputTensor> tensors;
  for (const std::string& name : files.gradients) {
    tensors.push_back(stored(name, host.at(name), layout));
  }
  return write(files.out, tensors, written);
}

Status save_inputs(const OutputFiles& files, const HostProblem& host, const std::string& layout,
                   std::vector<std::string>& written) {
  if (files.save_inputs.empty()) return {};
  return write_inputs(files.save_inputs, host, nullptr, layout, written);
}

Status check_input_file(const std::string& option, const std::string& path,
                        const std::vector<std::string>& inputs) {
  return check_path(option, path, false, true, inputs);
}

Status write_inputs(const std::string& path, const HostProblem& host, const HostTensor* k_mean,
                    const std::string& layout, std::vector<std::string>& written) {
  std::vector<io::OutputTensor> tensors = inputs_of(host, layout);
  if (k_mean != nullptr) tensors.push_back(stored("k_mean", *k_mean, layout));
  return write(path, tensors, written);
}

Status save_inputs(const OutputFiles& files, const HostBackward& host, const std::string& layout,
                   std::vector<std::string>& written) {
  if (files.save_inputs.empty()) return {};
  std::vector<io::OutputTensor> tensors = inputs_of(host.forward, layout);
  for_each_gradient(host.gradients, [&](std::string_view name, const TensorDesc&) {
    if (is_gradient_output(name)) return;
    tensors.push_back(stored(std::string(name), host.at(name), layout));
  });
  return write(files.save_inputs, tensors, written);
}

}  // namespace flashcore::bench
