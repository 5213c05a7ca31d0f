#include <algorithm>
#include <functional>
#include <thread>
#include <utility>

#include "bench/peers/native_peer.hpp"

namespace flashcore::bench {
namespace {

constexpr const char* kByOperator = "openblas_by_operator";  // slower: only by name

}  // namespace

NativePeers native_peers(Device device, int threads, const std::vector<std::string>& wanted) {
  const int all = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int used = threads > 0 ? threads : all;
  std::vector<std::pair<std::string, std::function<PeerResult()>>> makers;
  if (device.kind == DeviceKind::cuda) {
    makers.emplace_back("cudnn_direct", [&] { return make_cudnn_peer(device.index); });
  } else {
    makers.emplace_back("openblas", [&] { return make_openblas_peer(used, false); });
    makers.emplace_back(kByOperator, [&] { return make_openblas_peer(used, true); });
    makers.emplace_back("onednn", [&] { return make_onednn_peer(used); });
  }
  NativePeers peers;
  for (const auto& [name, make] : makers) {
    const bool asked = wanted.empty()
                           ? name != kByOperator
                           : std::find(wanted.begin(), wanted.end(), name) != wanted.end();
    if (!asked) continue;
    PeerResult peer = make();
    if (peer.ok()) {
      peers.found.push_back(std::move(*peer));
    } else {
      peers.missing[name] = peer.status().message();
    }
  }
  return peers;
}

}  // namespace flashcore::bench
