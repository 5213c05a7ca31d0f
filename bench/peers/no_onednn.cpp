// A stub for builds without oneDNN headers.
#include "bench/peers/native_peer.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {

PeerResult make_onednn_peer(int) {
  return unsupported("onednn: its headers were not there when this was built");
}

}  // namespace flashcore::bench
