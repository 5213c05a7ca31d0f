// Other implementations, in a helper process on the same device, with the same inputs: asked for
// one round of a point at a time, and judged by the reference of the kernels.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/cases.hpp"
#include "bench/meter.hpp"
#include "bench/sampled_gate.hpp"
#include "bench/tiled_inputs.hpp"
#include "cli/peer_process.hpp"
#include "cli/temporary_folder.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

struct PeerVerdict {
  std::string name;     // "flash"
  std::string version;  // "PyTorch 2.11.0"
  std::string error;    // it refused the case, or failed
  bench::Verdict verdict;
};

// The helper's path: tools/peers_torch.py for "auto".
std::string peers_script(const std::string& option);

// Whether a peer computes the same thing; one that only misses a gate does.
bool may_be_timed(const bench::Verdict& verdict);

class Peers {
 public:
  // Starts the helper, which imports its libraries meanwhile and leaves the device alone until it
  // is first asked. `backends` is a list with commas, or "auto".
  static Result<std::unique_ptr<Peers>> start(const std::string& script, Device device, int threads,
                                              const std::string& backends);

  // Waits until the helper is ready.
  Status greet();

  // Of the greeting: {"python": "3.12.1", "torch": "2.11.0", ..., "missing": {"flash_attn": why}}
  const nlohmann::ordered_json& versions() const { return versions_; }

  bool alive() const { return process_->alive(); }

  // Hands the case over, lets every backend compute it once, and judges those rows of what they
  // computed.
  Result<std::vector<PeerVerdict>> begin(const bench::Case& one, const std::string& suite,
                                         const bench::TiledInputs& inputs,
                                         const bench::SampledReference& reference);

  // One round of a point of the case.
  Result<bench::Timing> time(const std::string& backend, const bench::Meter& meter,
                             const bench::Protocol& protocol);
  Result<double> host_seconds(const std::string& backend);

 private:
  Status write_pieces(const bench::TiledInputs& inputs);
  PeerVerdict judge(const nlohmann::ordered_json& answer,
                    const bench::SampledReference& reference) const;

  explicit Peers(TemporaryFolder folder) : folder_(std::move(folder)) {}

  TemporaryFolder folder_;  // of what passes between the processes; outlives the helper
  std::unique_ptr<PeerProcess> process_;
  nlohmann::ordered_json versions_;
  std::string written_;  // the type whose pieces are in the folder
};

}  // namespace flashcore::cli
