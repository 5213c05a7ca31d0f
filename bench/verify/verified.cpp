#include "bench/verify/verified.hpp"

#include <cstdint>
#include <memory>

#include "bench/evidence/evidence.hpp"
#include "bench/evidence/evidence_file.hpp"
#include "bench/time/meter.hpp"
#include "plan/fingerprints.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {

using Json = nlohmann::ordered_json;

std::set<std::string> kernels_that_ran(const Verified& found) {
  std::set<std::string> kernels;
  for (const Json& row : found.table) {
    if (row["refusal"].get<std::string>().empty()) kernels.insert(row["kernel"]);
  }
  for (const Json* const part : {&found.scores, &found.random}) {
    if (!part->is_object()) continue;
    for (const Json& one : (*part)["kernels"]) {
      if (one["passed"].get<int64_t>() + one["failed"].get<int64_t>() > 0) {
        kernels.insert(one["kernel"]);
      }
    }
  }
  return kernels;
}

Result<Json> verify_evidence(const Verified& found, const PlanOptions& plan) {
  const Result<std::unique_ptr<Meter>> meter = make_meter(plan.device, plan.threads);
  if (!meter.ok()) return meter.status();
  Json evidence = new_evidence("verify");
  evidence["complete"] = true;
  evidence["device"] = (*meter)->environment();
  evidence["fingerprints"] = Json::object();
  for (const std::string& kernel : kernels_that_ran(found)) {
    evidence["fingerprints"][kernel] = kernel_fingerprint(kernel, plan.device);
  }
  if (found.backward) evidence["pass"] = "backward";
  evidence["table"] = found.table;
  evidence["scores"] = found.scores;
  evidence["random"] = found.random;
  evidence["sanitizers"] = found.sanitizers;
  FLASHCORE_RETURN_IF_ERROR(check_evidence(evidence));
  return evidence;
}

}  // namespace flashcore::bench
