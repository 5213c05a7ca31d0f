// A stub for builds without cuDNN headers.
#include "bench/peers/native_peer.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {

PeerResult make_cudnn_peer(int32_t) {
  return unsupported("cudnn: its headers were not there when this was built");
}

}  // namespace flashcore::bench
