// PyTorch's own attention on the ladder's shapes.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/cases/cases.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

// Into `found`: the versions, and a row a shape and backend. `choice` is that of --peers; `step` is
// told what is being done. What there is when something fails is kept.
Status time_ladder_peers(const std::string& choice, const std::vector<bench::Case>& shapes,
                         Device device, const std::function<void(const std::string&)>& step,
                         nlohmann::ordered_json& found);

}  // namespace flashcore::cli
