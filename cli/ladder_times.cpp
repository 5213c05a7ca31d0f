#include "cli/ladder_times.hpp"

#include <memory>
#include <string_view>

#include "bench/cases/work.hpp"
#include "bench/run/prepared_kernel.hpp"
#include "bench/time/launches.hpp"
#include "cli/ladder_rung.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

using cuda::ladder::Rung;
using Json = nlohmann::ordered_json;

constexpr std::string_view kUnfused = "00_unfused";

Json launches_json(const std::vector<bench::Launch>& launches) {
  Json list = Json::array();
  for (const bench::Launch& launch : launches) {
    list.push_back({{"kernel", launch.kernel},
                    {"blocks", launch.blocks},
                    {"threads", launch.threads},
                    {"registers", launch.registers},
                    {"local_bytes", launch.local_bytes},
                    {"shared_bytes", launch.shared()},
                    {"blocks_a_multiprocessor", launch.blocks_a_multiprocessor}});
  }
  return list;
}

}  // namespace

Status time_rung(bench::CudaTimer& timer, const Rung& rung, const bench::Case& shape, Device device,
                 bool with_host, Json& record) {
  const Result<std::unique_ptr<bench::PreparedKernel>> prepared =
      bench::PreparedKernel::make(rung.name, rung_problem(rung, shape), device);
  if (!prepared.ok()) return prepared.status();
  const bench::TimedCall call = (*prepared)->call();
  const Result<std::vector<bench::Launch>> launches = bench::launches_of(timer.stream(), call);
  if (!launches.ok()) return launches.status();
  const double flop = bench::forward_flop(bench::to_problem(shape));
  Json& time = record["times"][shape.name];
  for (const bench::CudaProtocol& protocol : {bench::kSustainedProtocol, bench::kIdleProtocol}) {
    const Result<bench::Timing> timing = timer.time(call, protocol);
    if (!timing.ok()) return timing.status();
    Json item = bench::timing_evidence(*timing);
    item["tflops"] = flop / timing->p50 * 1e-12;
    time[protocol.name] = item;
  }
  if (with_host) {
    const Result<double> host = timer.host_seconds(call);
    if (!host.ok()) return host.status();
    record["host_us"] = *host * 1e6;
  }
  record["launches"][shape.name] = launches_json(*launches);
  return {};
}

void add_ratios(const std::vector<bench::Case>& shapes, Json& records) {
  for (const bench::Case& shape : shapes) {
    double before = 0, unfused = 0;
    for (Json& record : records) {
      Json& times = record["times"];
      if (!times.contains(shape.name)) continue;
      Json& time = times[shape.name];
      const double p50 = time[bench::kSustainedProtocol.name]["p50_us"];
      if (record["name"] == kUnfused) unfused = p50;
      time["speedup_over_before"] = before > 0 ? Json(before / p50) : Json();
      time["speedup_over_unfused"] = unfused > 0 ? Json(unfused / p50) : Json();
      before = p50;
    }
  }
}

}  // namespace flashcore::cli
