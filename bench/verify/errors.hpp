// The errors behind the pages about fp8, by kind of data, as evidence. `say` gets a line for each row.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

using Say = std::function<void(const std::string& line)>;

// Of each fp8 kernel, with as many queries as keys.
Result<nlohmann::ordered_json> fp8_errors(const PlanOptions& plan, int64_t seqlen, const Say& say);

// Of quantisation to fp8, also by granularity of the scales and preprocessing of K.
Result<nlohmann::ordered_json> quantization_errors(int threads, const Say& say);

}  // namespace flashcore::bench
