// Evidence about fp8: errors by kind of data. `say` gets a line for each row.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

using Say = std::function<void(const std::string& line)>;

// The errors of each fp8 kernel, with as many queries as keys.
Result<nlohmann::ordered_json> fp8_errors(const PlanOptions& plan, int64_t seqlen, const Say& say);

// The errors of quantisation, also by granularity of the scales and preprocessing of K.
Result<nlohmann::ordered_json> quantization_errors(int threads, const Say& say);

}  // namespace flashcore::bench
