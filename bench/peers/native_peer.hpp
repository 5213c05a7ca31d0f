// Another implementation of attention that runs in this process, on the kernels' tensors.
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

  // Returns a call that writes O of contiguous tensors on the peer's device, valid as long as the
  // peer lives; or why the peer does not take the problem.
  virtual Result<TimedCall> prepare(const Problem& problem, const Arguments& arguments) = 0;
};

struct NativePeers {
  std::vector<std::unique_ptr<NativePeer>> found;
  std::map<std::string, std::string> missing;  // reasons by name
};

// The device's peers; only those in `wanted`, unless it is empty.
NativePeers native_peers(Device device, int threads, const std::vector<std::string>& wanted);

// A peer, or why this build or machine does not have it.
using PeerResult = Result<std::unique_ptr<NativePeer>>;
PeerResult make_cudnn_peer(int32_t device_index);
PeerResult make_openblas_peer(int threads, bool by_operator);
PeerResult make_onednn_peer(int threads);

}  // namespace flashcore::bench
