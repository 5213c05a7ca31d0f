// Describes a problem in words for people, and as an object for scripts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

std::string tensor_text(const TensorDesc& desc);   // "f16 [2, 8, 512, 64]"
std::string options_text(const Problem& problem);  // "causal (bottom_right), softcap 30"
std::string problem_text(const Problem& problem);  // tensors and options, one line

nlohmann::ordered_json tensor_json(const TensorDesc& desc);
nlohmann::ordered_json problem_json(const Problem& problem);
nlohmann::ordered_json gradients_json(const Gradients& gradients);  // tensors by name

}  // namespace flashcore::bench
