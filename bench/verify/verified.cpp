#include "bench/verify/verified.hpp"

#include <memory>

#include "bench/evidence/evidence.hpp"
#include "bench/evidence/evidence_file.hpp"
#include "bench/time/meter.hpp"
#include "plan/fingerprints.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {

void Verified::add(const std::string& kernel, const Tally& tally) {
  if (tally.passed + tally.failed == 0) return;
  ran[kernel].insert(tally.launched.begin(), tally.launched.end());
}

void Verified::add(const Findings& found) {
  for (const auto& [kernel, tally] : found.tallies()) add(kernel, tally);
}

Result<nlohmann::ordered_json> verify_evidence(const Verified& found, const PlanOptions& plan) {
  const Result<std::unique_ptr<Meter>> meter = make_meter(plan.device, plan.threads);
  if (!meter.ok()) return meter.status();
  nlohmann::ordered_json evidence = new_evidence("verify");
  evidence["complete"] = true;
  evidence["device"] = (*meter)->environment();
  evidence["fingerprints"] = nlohmann::ordered_json::object();
  for (const auto& [kernel, launched] : found.ran) {
    evidence["fingerprints"][kernel] = fingerprint_of(kernel, plan.device, launched);
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
