// What `flashcore bench` prints of its evidence.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/session.hpp"

namespace flashcore::cli {

// Device, ceilings, a row a case and implementation, failures and notes.
void print_bench(const nlohmann::ordered_json& evidence, const std::string& protocol,
                 Session& session);

// One case: "d128/s512: forward_sm80_throughput 350.1, cudnn 600.0 TFLOP/s".
std::string bench_line(const nlohmann::ordered_json& one, const std::string& protocol);

// The table or, with --json, the evidence; and what to exit with. `out` is the file to name.
ExitCode print_bench_result(const nlohmann::ordered_json& evidence, const std::string& out,
                            Session& session);

}  // namespace flashcore::cli
