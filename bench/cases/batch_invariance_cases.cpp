#include "bench/cases/batch_invariance_cases.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "bench/tensors/random.hpp"

namespace flashcore::bench {
namespace {

constexpr int64_t kKeysOfFewQueries = 20;  // times the others' number

int64_t largest_of(const std::vector<int64_t>& lengths) {
  return *std::max_element(lengths.begin(), lengths.end());
}

int64_t sum_of(const std::vector<int64_t>& lengths, size_t count) {
  return std::accumulate(lengths.begin(), lengths.begin() + static_cast<std::ptrdiff_t>(count),
                         int64_t{0});
}
int64_t sum_of(const std::vector<int64_t>& lengths) { return sum_of(lengths, lengths.size()); }

// The starts of entries of these lengths, and the end of the last one.
std::vector<int64_t> starts_of(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> starts = {0};
  for (const int64_t length : lengths) starts.push_back(starts.back() + length);
  return starts;
}

}  // namespace

BatchInvarianceCases::BatchInvarianceCases(uint64_t seed, int64_t largest_seqlen,
                                           int64_t largest_head_dim, bool latent)
    : seed_(seed), latent_(latent) {
  Random random(seed);
  random.bits();  // seeds 0, 1, 2, ... are used unchanged: step away from them
  dtype_ = random.pick({DType::f16, DType::bf16, DType::f32});
  heads_kv_ = random.integer(1, 2);
  heads_q_ = heads_kv_ * random.pick<int64_t>({1, 1, 2, 4});
  const auto head_dim = [&] {
    return random.chance(0.6) ? random.pick<int64_t>({64, 128})
                              : 8 * random.integer(1, std::max<int64_t>(1, largest_head_dim / 8));
  };
  head_dim_qk_ = head_dim();
  head_dim_v_ = random.chance(0.8) ? head_dim_qk_ : head_dim();
  options_.causal = random.chance(0.5);
  options_.alignment = random.pick({Alignment::top_left, Alignment::bottom_right});
  if (random.chance(0.2)) options_.window_left = random.integer(0, largest_seqlen);
  if (random.chance(0.2)) options_.softcap = 20;
  sinks_ = random.chance(0.2), alibi_ = random.chance(0.2);
  if (latent) {
    dtype_ = random.pick({DType::f16, DType::bf16});
    heads_kv_ = 1, heads_q_ = random.pick<int64_t>({5, 64, 70});
    head_dim_qk_ = 576, head_dim_v_ = 512;
    alibi_ = false;
  }

  const bool few = latent || random.chance(0.5);
  const int64_t most_keys = few ? kKeysOfFewQueries * largest_seqlen : largest_seqlen;
  const int64_t queries = few ? random.integer(1, 3) : random.integer(1, largest_seqlen);
  const int64_t keys =
      random.chance(0.3) ? std::max<int64_t>(queries, most_keys) : random.integer(1, most_keys);
  const int64_t most_queries = latent ? 9 : 300;
  const auto other_q = [&]() -> int64_t {
    return random.chance(0.2) ? 0 : random.integer(1, few && random.chance(0.7) ? 2 : most_queries);
  };
  const auto other_kv = [&]() -> int64_t {
    return random.chance(0.2) ? 0 : random.integer(1, 2 * most_keys);
  };
  const auto among = [&](size_t place) {
    std::pair<std::vector<int64_t>, std::vector<int64_t>> lengths;
    for (size_t i = 0; i < 3; ++i) {
      lengths.first.push_back(i == place ? queries : other_q());
      lengths.second.push_back(i == place ? keys : other_kv());
    }
    return lengths;
  };
  add(Form::dense, 0, {queries}, {keys});
  add(Form::dense, 1, {queries, queries, queries}, {keys, keys, keys});
  for (const size_t place : {size_t{0}, size_t{2}}) {
    auto [q, kv] = among(place);
    add(Form::padded, place, std::move(q), std::move(kv));
  }
  add(Form::packed, 0, {queries}, {keys});
  for (size_t place = 0; place < 3; ++place) {
    auto [q, kv] = among(place);
    add(Form::packed, place, std::move(q), std::move(kv), place == 1);
  }
}

void BatchInvarianceCases::add(Form form, size_t place, std::vector<int64_t> len_q,
                               std::vector<int64_t> len_kv, bool bounded) {
  batches_.push_back({form, place, std::move(len_q), std::move(len_kv), bounded});
}

Problem BatchInvarianceCases::problem(size_t batch) const {
  const Batch& b = batches_[batch];
  const auto entries = static_cast<int64_t>(b.len_q.size());
  const bool packed = b.form == Form::packed;
  Problem problem = options_;
  const auto tensor = [&](const std::vector<int64_t>& lengths, int64_t heads, int64_t width) {
    return packed ? TensorDesc::contiguous(dtype_, {sum_of(lengths), heads, width})
                  : TensorDesc::contiguous(dtype_, {entries, heads, largest_of(lengths), width});
  };
  problem.q = tensor(b.len_q, heads_q_, head_dim_qk_);
  problem.k = tensor(b.len_kv, heads_kv_, head_dim_qk_);
  problem.v =
      latent_ ? first_columns(problem.k, head_dim_v_) : tensor(b.len_kv, heads_kv_, head_dim_v_);
  problem.o = tensor(b.len_q, heads_q_, head_dim_v_);
  problem.lse = packed
                    ? TensorDesc::contiguous(DType::f32, {sum_of(b.len_q), heads_q_})
                    : TensorDesc::contiguous(DType::f32, {entries, heads_q_, largest_of(b.len_q)});
  if (packed) {
    problem.cu_seqlens_q = problem.cu_seqlens_kv =
        TensorDesc::contiguous(DType::i32, {entries + 1});
  }
  if (packed && b.bounded) {
    problem.max_seqlen_q = largest_of(b.len_q);
    problem.max_seqlen_kv = largest_of(b.len_kv);
  }
  if (b.form == Form::padded) {
    problem.seqlens_q = problem.seqlens_kv = TensorDesc::contiguous(DType::i32, {entries});
  }
  if (sinks_) problem.sinks = TensorDesc::contiguous(DType::f32, {heads_q_});
  if (alibi_) problem.alibi_slopes = TensorDesc::contiguous(DType::f32, {heads_q_});
  return problem;
}

// The entry's rows depend only on the seed, the others' rows also on the batch's number.
void BatchInvarianceCases::fill_rows(HostProblem& host, size_t batch, const char* name) const {
  const Batch& b = batches_[batch];
  HostTensor& tensor = host.at(name);
  const bool packed = b.form == Form::packed, query = name[0] == 'q';
  const std::vector<int64_t>& lengths = query ? b.len_q : b.len_kv;
  const int64_t heads = query ? heads_q_ : heads_kv_;
  const int64_t width = name[0] == 'v' ? head_dim_v_ : head_dim_qk_;
  for (size_t entry = 0; entry < lengths.size(); ++entry) {
    const auto own = static_cast<uint64_t>(entry == b.place ? 0 : 1 + 16 * batch + entry);
    Random random(seed_ ^ (own << 32) ^ (static_cast<uint64_t>(name[0]) << 56));
    for (int64_t row = 0; row < lengths[entry]; ++row) {
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t first =
            packed ? (sum_of(lengths, entry) + row) * heads + head
                   : (static_cast<int64_t>(entry) * heads + head) * largest_of(lengths) + row;
        for (int64_t d = 0; d < width; ++d) tensor.set(first * width + d, random.normal());
      }
    }
  }
}

HostProblem BatchInvarianceCases::fill(size_t batch) const {
  const Batch& b = batches_[batch];
  HostProblem host = allocate(problem(batch));
  Random padding(seed_ + 2 + batch);  // finite: a NaN may select the path for exact rows
  for (const char* const name : {"q", "k", "v"}) {
    host.at(name).fill([&] { return padding.normal(); });
  }
  for (const char* const name : {"q", "k", "v"}) fill_rows(host, batch, name);
  if (b.form == Form::packed) {
    host.at("cu_seqlens_q").assign(starts_of(b.len_q));
    host.at("cu_seqlens_kv").assign(starts_of(b.len_kv));
  }
  if (b.form == Form::padded) {
    host.at("seqlens_q").assign(b.len_q);
    host.at("seqlens_kv").assign(b.len_kv);
  }
  Random random(seed_ + 1);
  if (sinks_) host.at("sinks").fill([&] { return random.normal(); });
  if (alibi_) host.at("alibi_slopes").fill([&] { return 0.5 * random.uniform(); });
  return host;
}

std::vector<double> BatchInvarianceCases::results(const HostProblem& host, size_t batch) const {
  const Batch& b = batches_[batch];
  const HostTensor &o = host.at("o"), &lse = host.at("lse");
  const int64_t first = sum_of(b.len_q, b.place), rows = largest_of(b.len_q);
  std::vector<double> results;
  for (int64_t head = 0; head < heads_q_; ++head) {
    for (int64_t row = 0; row < b.len_q[b.place]; ++row) {
      const int64_t at = b.form == Form::packed
                             ? (first + row) * heads_q_ + head
                             : (static_cast<int64_t>(b.place) * heads_q_ + head) * rows + row;
      for (int64_t d = 0; d < head_dim_v_; ++d) results.push_back(o.get(at * head_dim_v_ + d));
      results.push_back(lse.get(at));
    }
  }
  return results;
}

std::string BatchInvarianceCases::describe(size_t batch) const {
  const Batch& b = batches_[batch];
  constexpr const char* kForms[] = {"dense", "padded", "packed"};
  return fmt::format("{}{}, entry {} of {}, Sq {}, Skv {}", kForms[static_cast<size_t>(b.form)],
                     b.bounded ? " with max_seqlen" : "", b.place, b.len_q.size(),
                     fmt::join(b.len_q, ","), fmt::join(b.len_kv, ","));
}

}  // namespace flashcore::bench
