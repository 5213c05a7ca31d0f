// Other implementations, in a helper process on the same device, with the same inputs: timed one
// round of a point at a time, and judged by the kernels' reference.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/cases/cases.hpp"
#include "bench/gate/sampled_gate.hpp"
#include "bench/peers/peer_process.hpp"
#include "bench/process/temporary_folder.hpp"
#include "bench/tensors/tiled_inputs.hpp"
#include "bench/time/meter.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

struct PeerVerdict {
  std::string name;     // "flash"
  std::string version;  // "PyTorch 2.11.0"
  std::string error;    // why it refused the case, or failed
  Verdict verdict;
};

// Returns whether the helper is asked for a case: a plain one, or one with features that some of its libraries have:
// bias, mask and ALiBi, and in the backward pass windows, softcap and packed batches. Not fp8, which they do not compute.
bool asks_peers(const Case& one, bool backward);

// Returns whether the peers in this process are asked for a forward pass: a plain one, in fp8 with
// any type of O.
bool asks_native_peers(const Case& one);

// The helper's path: tools/peers_torch.py for "auto".
std::string peers_script(const std::string& option);

// Returns whether a peer computes the same function; it may miss a gate.
bool may_be_timed(const Verdict& verdict);
bool gradients_may_be_timed(const Verdict& verdict);

class Peers {
 public:
  // Starts the helper, which imports its libraries meanwhile and does not use the device before the
  // first request. `backends` is a list with commas, or "auto".
  static Result<std::unique_ptr<Peers>> start(const std::string& script, Device device, int threads,
                                              const std::string& backends);

  // Waits until the helper is ready.
  Status greet();

  // From the greeting: {"python": "3.12.1", "torch": "2.11.0", ..., "missing": {"flash_attn": why}}
  const nlohmann::ordered_json& versions() const { return versions_; }

  bool alive() const { return process_->alive(); }

  // Sends the case, lets every backend compute it once, and judges those rows of their results. The
  // forward pass of a backward case is not timed.
  Result<std::vector<PeerVerdict>> begin(const Case& one, const std::string& suite,
                                         const TiledInputs& inputs, const JudgedRows& reference);

  // Times one round of a point of the case.
  Result<Timing> time(const std::string& backend, const Meter& meter, const Protocol& protocol);
  Result<double> host_seconds(const std::string& backend);

 private:
  Status write_pieces(const TiledInputs& inputs);
  Status add_features(const Case& one, nlohmann::ordered_json& request);
  PeerVerdict verdict_of(const nlohmann::ordered_json& answer, const JudgedRows& reference) const;

  explicit Peers(TemporaryFolder folder) : folder_(std::move(folder)) {}

  TemporaryFolder folder_;  // exchanged files; outlives the helper
  std::unique_ptr<PeerProcess> process_;
  nlohmann::ordered_json versions_;
  std::string written_;  // the type whose pieces are in the folder
};

}  // namespace flashcore::bench
