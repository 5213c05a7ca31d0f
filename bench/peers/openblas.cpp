// The unfused path with OpenBLAS as a peer of the benchmark: head by head, its faster form, or operator by operator.
#include <cmath>
#include <memory>
#include <utility>

#include "bench/peers/native_peer.hpp"
#include "bench/peers/unfused_blas.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

class OpenBlasPeer final : public NativePeer {
 public:
  OpenBlasPeer(UnfusedBlas blas, bool by_operator)
      : blas_(std::move(blas)), by_operator_(by_operator) {}

  std::string name() const override { return by_operator_ ? "openblas_by_operator" : "openblas"; }
  std::string version() const override { return blas_.version(); }

  Result<TimedCall> prepare(const Problem& problem, const Arguments& arguments) override {
    if (problem.q.dtype != DType::f32) return unsupported("openblas: multiplies f32 only");
    const UnfusedBlas::Inputs in{.q = static_cast<const float*>(arguments.q),
                                 .k = static_cast<const float*>(arguments.k),
                                 .v = static_cast<const float*>(arguments.v),
                                 .o = static_cast<float*>(arguments.o),
                                 .heads = problem.q.shape[0] * problem.q.shape[1],
                                 .seqlen_q = problem.q.shape[2],
                                 .seqlen_kv = problem.k.shape[2],
                                 .head_dim = problem.q.shape[3],
                                 .scale = 1 / std::sqrt(static_cast<float>(problem.q.shape[3])),
                                 .group = problem.q.shape[1] / problem.k.shape[1],
                                 .causal = problem.causal};
    constexpr double kMostScores = 2e9;  // bytes
    const double scores = 4.0 * static_cast<double>(in.heads) * static_cast<double>(in.seqlen_q) *
                          static_cast<double>(in.seqlen_kv);
    if (by_operator_ && scores > kMostScores) {
      return unsupported("{}: has {:.2g} bytes of scores, wanted at most {:.2g}", name(), scores,
                         kMostScores);
    }
    return TimedCall([this, in](Stream) {
      by_operator_ ? blas_.run_by_operator(in) : blas_.run_by_head(in);
      return Status();
    });
  }

 private:
  UnfusedBlas blas_;
  bool by_operator_;
};

}  // namespace

PeerResult make_openblas_peer(int threads, bool by_operator) {
  Result<UnfusedBlas> blas = UnfusedBlas::load(threads);
  if (!blas.ok()) return blas.status();
  return std::unique_ptr<NativePeer>(std::make_unique<OpenBlasPeer>(std::move(*blas), by_operator));
}

}  // namespace flashcore::bench
