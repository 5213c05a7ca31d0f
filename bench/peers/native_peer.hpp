// Another implementation of attention that runs in this process, on the tensors of the kernels.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/time/timing.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

class NativePeer {
 public:
  virtual ~NativePeer() = default;
  virtual std::string name() const = 0;     // "openblas"
  virtual std::string version() const = 0;  // "OpenBLAS 0.3.21"

  // A call that writes O of contiguous tensors on the peer's device, usable as long as the peer
  // lives; or a sentence that says why it does not take the problem.
  virtual Result<TimedCall> prepare(const Problem& problem, const Arguments& arguments) = 0;
};

struct NativePeers {
  std::vector<std::unique_ptr<NativePeer>> found;
  std::map<std::string, std::string> missing;  // why, by name
};

// Those of the device, of which only `wanted` unless that is empty.
NativePeers native_peers(Device device, int threads, const std::vector<std::string>& wanted);

// What a build and a machine have; the sentence says why not.
using PeerResult = Result<std::unique_ptr<NativePeer>>;
PeerResult make_cudnn_peer(int32_t device_index);
PeerResult make_openblas_peer(int threads);
PeerResult make_onednn_peer(int threads);

}  // namespace flashcore::bench
