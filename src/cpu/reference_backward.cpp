// The fp64 reference of gradients. One task is a batch entry and KV head, and owns the rows of dQ,
// dK and dV that belong to it. It goes query by query, with P from scores as in the forward pass:
//
//   delta = dO . O - dLSE           dS_j = P_j * (m_j * dO . v_j - delta)      m: dropout's weight
//   dV_j += P_j * m_j * dO          dQ  += scale * slope_j * dS_j * k_j        slope: the softcap's
//   dSink -= P_sink * delta         dK_j += scale * slope_j * dS_j * q
//   dBias_j += dS_j                 dSlope -= dS_j * |i + offset - j|
#include "cpu/reference_backward.hpp"

#include <cmath>
#include <vector>

#include "cpu/parallel.hpp"
#include "cpu/reference_rows.hpp"
#include "problem/dtype.hpp"

namespace flashcore::cpu {
namespace {

// The dot product of two rows, in fp32 if that is the type of the computation, otherwise in fp64.
double product(DType intermediate, const double* a, const double* b, int64_t n) {
  if (intermediate != DType::f32) return dot(a, b, n);
  float sum = 0;
  for (int64_t d = 0; d < n; ++d) sum += static_cast<float>(a[d]) * static_cast<float>(b[d]);
  return sum;
}

// to += weight * from.
void add(DType intermediate, double weight, const double* from, int64_t n, double* to) {
  for (int64_t d = 0; d < n; ++d) to[d] += weight * from[d];
  if (intermediate != DType::f32) return;
  for (int64_t d = 0; d < n; ++d) to[d] = static_cast<float>(to[d]);
}

// The weights of one query: probabilities before dropout, and the softcap's derivatives.
struct Weights {
  std::vector<double> p, softcap_slope;  // indexed by key
  std::vector<bool> attends;
  double p_sink = 0;
  bool any = false;
};

// Sums over rows that several tasks share.
struct HeadSums {
  std::vector<double> d_bias, d_sinks, d_slopes;
};

class Task {
 public:
  Task(const BackwardProblem& problem, const BackwardArguments& args, const DropoutWeights& dropout,
       DType intermediate, int64_t b, int64_t kv_head, HeadSums& sums)
      : problem_(problem),
        p_(problem.forward),
        args_(args),
        dropout_(dropout),
        intermediate_(intermediate),
        batch_(b),
        kv_head_(kv_head),
        s_(sequence_of(p_, args.forward, b)),
        kv_(load_kv_head(p_, args.forward, s_, b, kv_head)),
        sums_(sums),
        dk_(kv_.k.size(), 0.0),
        dv_(kv_.v.size(), 0.0) {}

  SquaredTerms run() {
    const int64_t group = p_.heads_q / p_.heads_kv;
    for (int64_t h = kv_head_ * group; h < (kv_head_ + 1) * group; ++h) {
      for (int64_t i = 0; i < s_.len_q; ++i) row(load_query(p_, args_.forward, s_, batch_, h, i));
    }
    for (int64_t j = 0; j < s_.len_kv; ++j) {
      const int64_t at = s_.kv_begin + j;
      store(problem_.dk_dtype, args_.dk, problem_.dk.at(batch_, kv_head_, at),
            dk_.data() + j * p_.head_dim_qk, p_.head_dim_qk);
      store(problem_.dv_dtype, args_.dv, problem_.dv.at(batch_, kv_head_, at),
            dv_.data() + j * p_.head_dim_v, p_.head_dim_v);
    }
    return squares_;
  }

 private:
  static void store(DType dtype, void* data, int64_t at, const double* from, int64_t n) {
    for (int64_t d = 0; d < n; ++d) store_element(dtype, data, at + d, from[d]);
  }

  void find_weights(const QueryRow& query, const KeyRange& range) {
    const auto keys = static_cast<size_t>(s_.len_kv);
    weights_.p.assign(keys, 0.0);
    weights_.softcap_slope.assign(keys, 1.0);
    weights_.attends.assign(keys, false);
    weights_.any = false;
    const double sink =
        p_.sinks.present ? args_.forward.sinks[p_.sinks.at(0, query.head)] : kRemovedPair;
    double largest = sink;
    for (int64_t j = range.begin; j < range.end; ++j) {
      const auto at = static_cast<size_t>(j);
      const double qk =
          product(intermediate_, query.q.data(), kv_.k.data() + j * p_.head_dim_qk, p_.head_dim_qk);
      const double value = round_to(intermediate_, score(p_, args_.forward, s_, kv_, query, j, qk,
                                                         &weights_.softcap_slope[at]));
      weights_.p[at] = value;
      weights_.attends[at] = value != kRemovedPair;
      weights_.any = weights_.any || weights_.attends[at];
      if (value > largest || std::isnan(value)) largest = value;  // NaN stays
    }
    double sum = largest == kRemovedPair ? 0 : std::exp(sink - largest);
    for (int64_t j = range.begin; j < range.end; ++j) {
      double& weight = weights_.p[static_cast<size_t>(j)];
      if (!weights_.attends[static_cast<size_t>(j)]) continue;
      weight = in_fp32(intermediate_, std::exp(in_fp32(intermediate_, weight - largest)));
      sum = in_fp32(intermediate_, sum + weight);
    }
    for (int64_t j = range.begin; j < range.end; ++j) {
      double& weight = weights_.p[static_cast<size_t>(j)];
      weight = weights_.attends[static_cast<size_t>(j)] ? round_to(intermediate_, weight / sum) : 0;
    }
    weights_.p_sink = p_.sinks.present ? std::exp(sink - largest) / sum : 0;
  }

  // O of a row: recomputed for the judge itself, otherwise read from the forward pass' output.
  std::vector<double> output_of(const QueryRow& query, const KeyRange& range) const {
    if (intermediate_ != DType::f64) {
      return load_rows(p_.o_dtype, args_.forward.o,
                       p_.o.at(batch_, query.head, s_.q_begin + query.query), 1, 0, p_.head_dim_v);
    }
    std::vector<double> o(static_cast<size_t>(p_.head_dim_v), 0.0);
    for (int64_t j = range.begin; j < range.end; ++j) {
      if (!weights_.attends[static_cast<size_t>(j)]) continue;
      add(intermediate_, weights_.p[static_cast<size_t>(j)] * dropout_.of(query, j),
          kv_.v.data() + j * p_.head_dim_v, p_.head_dim_v, o.data());
    }
    return o;
  }

  void row(const QueryRow& query) {
    const auto& [b, h, i, q, q_scale] = query;
    const int64_t at = s_.q_begin + i;
    const KeyRange range = visible_keys(s_, p_.band, i);
    find_weights(query, range);
    const double d_lse = problem_.has_d_lse ? load_element(problem_.d_lse_dtype, args_.d_lse,
                                                           problem_.d_lse.at(b, h, at))
                                            : 0.0;
    // Without a visible key, O is 0 and the LSE is the sink, so only the sink has a gradient.
    if (!weights_.any) {
      if (p_.sinks.present) add_to_sink(h, d_lse, d_lse * d_lse);
      return;
    }
    const std::vector<double> d_o =
        load_rows(p_.o_dtype, args_.d_o, problem_.d_o.at(b, h, at), 1, 0, p_.head_dim_v);
    const std::vector<double> o = output_of(query, range);
    const double delta = unfused_dot(intermediate_, d_o.data(), o.data(), p_.head_dim_v) - d_lse;
    std::vector<double> dq(static_cast<size_t>(p_.head_dim_qk), 0.0);
    const double squares =  // squared terms of delta
        squares_of_dot(d_o.data(), o.data(), p_.head_dim_v) + d_lse * d_lse;
    for (int64_t j = range.begin; j < range.end; ++j) {
      if (weights_.attends[static_cast<size_t>(j)]) pair(query, j, d_o, delta, squares, dq);
    }
    if (p_.sinks.present) {
      add_to_sink(h, -weights_.p_sink * delta, weights_.p_sink * weights_.p_sink * squares);
    }
    store(problem_.dq_dtype, args_.dq, problem_.dq.at(b, h, at), dq.data(), p_.head_dim_qk);
  }

  void pair(const QueryRow& query, int64_t j, const std::vector<double>& d_o, double delta,
            double delta_squares, std::vector<double>& dq) {
    const auto& [b, h, i, q, q_scale] = query;
    const double weight = weights_.p[static_cast<size_t>(j)];
    const double kept = dropout_.of(query, j);
    const double dp = round_to(
        intermediate_,
        product(intermediate_, d_o.data(), kv_.v.data() + j * p_.head_dim_v, p_.head_dim_v));
    const double ds = round_to(intermediate_, weight * (kept * dp - delta));
    add(intermediate_, round_to(intermediate_, weight * kept), d_o.data(), p_.head_dim_v,
        dv_.data() + j * p_.head_dim_v);
    const double d_product =
        round_to(intermediate_, ds * weights_.softcap_slope[static_cast<size_t>(j)]) *
        static_cast<double>(p_.softmax_scale);
    add(intermediate_, d_product, kv_.k.data() + j * p_.head_dim_qk, p_.head_dim_qk, dq.data());
    add(intermediate_, d_product, q.data(), p_.head_dim_qk, dk_.data() + j * p_.head_dim_qk);
    const double* const v = kv_.v.data() + j * p_.head_dim_v;
    const double given = weight * kept;
    if (intermediate_ == DType::f64) {
      count_terms(query, j, d_o, given,
                  given * given * squares_of_dot(d_o.data(), v, p_.head_dim_v) +
                      weight * weight * delta_squares);
    }
    if (problem_.d_bias.present) {
      sums_.d_bias[bias_element(h, i, j)] += ds;
    }
    if (problem_.d_alibi_slopes.present) {
      const auto distance = static_cast<double>(std::abs(i + s_.offset - j));
      const int64_t entry = problem_.d_alibi_slopes_elements > p_.heads_q ? b : 0;
      sums_.d_slopes[static_cast<size_t>(entry * p_.heads_q + h)] -= ds * distance;
    }
  }

  // `of_ds`: the squares of the terms that ds is the sum of.
  void count_terms(const QueryRow& query, int64_t j, const std::vector<double>& d_o, double given,
                   double of_ds) {
    const double scale =
        static_cast<double>(p_.softmax_scale) * weights_.softcap_slope[static_cast<size_t>(j)];
    const double* const k = kv_.k.data() + j * p_.head_dim_qk;
    const auto distance = static_cast<double>(std::abs(query.query + s_.offset - j));
    const auto count = [](double square, double& sum) {
      if (std::isfinite(square)) sum += square;
    };
    count(of_ds * scale * scale * dot(k, k, p_.head_dim_qk), squares_.dq);
    count(of_ds * scale * scale * dot(query.q.data(), query.q.data(), p_.head_dim_qk), squares_.dk);
    count(given * given * dot(d_o.data(), d_o.data(), p_.head_dim_v), squares_.dv);
    count(of_ds, squares_.d_bias);
    count(of_ds * distance * distance, squares_.d_alibi_slopes);
  }

  void add_to_sink(int64_t h, double value, double squares) {
    if (!problem_.d_sinks.present) return;
    sums_.d_sinks[static_cast<size_t>(h)] += value;
    if (std::isfinite(squares)) squares_.d_sinks += squares;
  }

  size_t bias_element(int64_t h, int64_t i, int64_t j) const {
    const auto& extents = problem_.d_bias_extents;
    const int64_t index[4] = {batch_, h, i, j};
    int64_t element = 0;
    for (int d = 0; d < 4; ++d) element = element * extents[d] + (extents[d] == 1 ? 0 : index[d]);
    return static_cast<size_t>(element);
  }

  const BackwardProblem& problem_;
  const ForwardProblem& p_;
  const BackwardArguments& args_;
  const DropoutWeights& dropout_;
  DType intermediate_;
  int64_t batch_, kv_head_;
  Sequence s_;
  KvHead kv_;
  HeadSums& sums_;
  std::vector<double> dk_, dv_;
  Weights weights_;
  SquaredTerms squares_;
};

void zero_rows(const ForwardProblem& p, const RowStrides& strides, DType dtype, void* data,
               bool of_queries, int64_t width) {
  const int64_t packed_rows = of_queries ? p.total_q : p.total_kv;
  const int64_t rows = p.packed ? packed_rows : of_queries ? p.seqlen_q : p.seqlen_kv;
  const int64_t heads = of_queries ? p.heads_q : p.heads_kv;
  if (rows == 0) return;  // for any number of heads
  for (int64_t b = 0; b < (p.packed ? 1 : p.batch); ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t d = 0; d < width; ++d) store_element(dtype, data, strides.at(b, h, r) + d, 0);
      }
    }
  }
}

void store_sums(const BackwardProblem& problem, const BackwardArguments& args,
                const HeadSums& sums) {
  const ForwardProblem& p = problem.forward;
  const auto& extents = problem.d_bias_extents;
  for (size_t n = 0; n < sums.d_bias.size(); ++n) {
    auto rest = static_cast<int64_t>(n);
    int64_t index[4];
    for (int d = 4; d-- > 0; rest /= extents[d]) index[d] = rest % extents[d];
    store_element(problem.d_bias.dtype, args.d_bias,
                  problem.d_bias.at(index[0], index[1], index[2], index[3]), sums.d_bias[n]);
  }
  for (size_t n = 0; n < sums.d_sinks.size(); ++n) {
    store_element(problem.d_sinks_dtype, args.d_sinks,
                  problem.d_sinks.at(0, static_cast<int64_t>(n)), sums.d_sinks[n]);
  }
  for (size_t n = 0; n < sums.d_slopes.size(); ++n) {
    const auto element = static_cast<int64_t>(n);
    store_element(problem.d_alibi_slopes_dtype, args.d_alibi_slopes,
                  problem.d_alibi_slopes.at(element / p.heads_q, element % p.heads_q),
                  sums.d_slopes[n]);
  }
}

}  // namespace

void reference_backward(const BackwardProblem& problem, const BackwardArguments& args, int threads,
                        DType intermediate, SquaredTerms* squares) {
  const ForwardProblem& p = problem.forward;
  zero_rows(p, problem.dq, problem.dq_dtype, args.dq, true, p.head_dim_qk);
  zero_rows(p, problem.dk, problem.dk_dtype, args.dk, false, p.head_dim_qk);
  zero_rows(p, problem.dv, problem.dv_dtype, args.dv, false, p.head_dim_v);
  HeadSums sums;
  if (problem.d_bias.present) sums.d_bias.resize(static_cast<size_t>(problem.d_bias_elements));
  if (problem.d_sinks.present) sums.d_sinks.resize(static_cast<size_t>(p.heads_q));
  if (problem.d_alibi_slopes.present) {
    sums.d_slopes.resize(static_cast<size_t>(problem.d_alibi_slopes_elements));
  }
  // Tasks that add to the same sums run one after another: the order of additions
  // determines the bits.
  const bool shares_sums =
      problem.d_bias.present || problem.d_sinks.present || problem.d_alibi_slopes.present;
  const DropoutWeights dropout(p, args.forward);
  if (p.heads_q > 0 && p.seqlen_q > 0) {
    std::vector<SquaredTerms> terms(static_cast<size_t>(p.batch * p.heads_kv));
    parallel_for(p.batch * p.heads_kv, shares_sums ? 1 : threads, [&](int64_t n) {
      terms[static_cast<size_t>(n)] =
          Task(problem, args, dropout, intermediate, n / p.heads_kv, n % p.heads_kv, sums).run();
    });
    for (const SquaredTerms& one : terms) {
      if (squares == nullptr) break;
      squares->dq += one.dq, squares->dk += one.dk, squares->dv += one.dv;
      squares->d_bias += one.d_bias, squares->d_sinks += one.d_sinks;
      squares->d_alibi_slopes += one.d_alibi_slopes;
    }
  }
  store_sums(problem, args, sums);
}

}  // namespace flashcore::cpu
