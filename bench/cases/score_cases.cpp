#include "bench/cases/score_cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "bench/cases/fp8_cases.hpp"
#include "bench/tensors/random.hpp"

namespace flashcore::bench {
namespace {

using Bend = std::function<void(HostProblem&)>;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kLargest = std::numeric_limits<float>::max();
constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32};

struct Shape {
  int64_t batch, heads_q, heads_kv, seqlen_q, seqlen_kv, head_dim;
};
constexpr Shape kTall = {1, 2, 1, 70, 300, 64};  // several tiles of queries and of keys
constexpr Shape kWide = {2, 2, 1, 33, 200, 128};
constexpr Shape kOneKey = {1, 2, 1, 70, 1, 64};
constexpr Shape kOneKeyWide = {1, 2, 2, 5, 1, 128};
constexpr Shape kOneQuery = {1, 4, 1, 1, 5000, 64};  // enough keys to be split

Problem problem_of(const Shape& s, DType dtype) {
  Problem problem;
  problem.q = TensorDesc::contiguous(dtype, {s.batch, s.heads_q, s.seqlen_q, s.head_dim});
  problem.k = TensorDesc::contiguous(dtype, {s.batch, s.heads_kv, s.seqlen_kv, s.head_dim});
  problem.v = problem.k;
  problem.o = problem.q;
  problem.lse = TensorDesc::contiguous(DType::f32, {s.batch, s.heads_q, s.seqlen_q});
  return problem;
}

// Sets row r (a query or key) of a [B, H, S, D] tensor to value(r, d) in all batches and heads.
void set_rows(HostTensor& tensor, const std::function<double(int64_t, int64_t)>& value) {
  const int64_t rows = tensor.desc().shape[2];
  const int64_t width = tensor.desc().shape[3];
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    tensor.set(i, value(i / width % rows, i % width));
  }
}

void set_rows(HostTensor& tensor, const std::function<double(int64_t)>& value) {
  set_rows(tensor, [&](int64_t row, int64_t) { return value(row); });
}

void multiply(HostTensor& tensor, double factor) {
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, tensor.get(i) * factor);
}

// Makes q.k the same integer for all keys of a query.
void make_keys_equal(HostProblem& host) {
  set_rows(host.at("q"), [](int64_t row, int64_t d) { return static_cast<double>((row + d) % 3); });
  set_rows(host.at("k"), [](int64_t, int64_t d) { return static_cast<double>(d % 3 - 1); });
}

class Cases {
 public:
  void add(std::string name, const Problem& problem, Bend bend, bool past_fp32 = false) {
    cases_.push_back({std::move(name), problem, std::move(bend), past_fp32, {}});
  }
  std::vector<ScoreCase> all() && { return std::move(cases_); }

 private:
  std::vector<ScoreCase> cases_;
};

// ---------------------------------------------------------------------------- large products

// A query's elements are all x, or -x in every other row; key j's all have magnitude level(j).
Bend levels(double q, double k, const std::function<double(int64_t)>& level) {
  return [=](HostProblem& host) {
    set_rows(host.at("q"), [=](int64_t row) { return row % 2 == 0 ? q : -q; });
    set_rows(host.at("k"), [=](int64_t row) { return k * level(row); });
  };
}

// Steps of 1/256, each 32 keys long.
double step_of(int64_t key) {
  const int64_t step = key / 32;
  return static_cast<double>(step) / 256;
}

// Every order of keys that an online softmax may process.
struct Order {
  const char* name;
  double (*level)(int64_t key);
};
constexpr Order kOrders[] = {
    {"equal", [](int64_t) { return 1.0; }},
    {"four-levels", [](int64_t key) { return std::exp2(-static_cast<double>(key % 4)); }},
    {"rising", [](int64_t key) { return step_of(key + 32); }},
    {"falling", [](int64_t key) { return 1 - step_of(key); }},
    {"both-signs", [](int64_t key) { return key % 2 == 0 ? 1.0 : -1.0; }}};

void add_large(Cases& cases, DType dtype) {
  const std::string type(to_string(dtype));
  const bool narrow = dtype == DType::f16;
  const auto add = [&](const std::string& name, const Shape& shape, const Bend& bend,
                       std::optional<float> scale = std::nullopt, bool causal = false) {
    Problem problem = problem_of(shape, dtype);
    problem.softmax_scale = scale;
    problem.causal = causal;
    cases.add("large/" + type + "/" + name, problem, bend);
  };
  // q = k, from scores without rounding to fp32's largest: with one key any score is decided.
  for (const double x : narrow ? std::vector<double>{100, 3000, 30000}
                               : std::vector<double>{100, 30000, 1e7, 1e12, 1.2e18}) {
    for (const double sign : {1.0, -1.0}) {
      for (const Shape& shape : {kOneKey, kOneKeyWide}) {
        add(fmt::format("one-key/d{}/{}", shape.head_dim, sign * x), shape, [=](HostProblem& host) {
          set_rows(host.at("q"), [=](int64_t) { return sign * x; });
          set_rows(host.at("k"), [=](int64_t) { return x; });
        });
      }
    }
  }
  // Powers of two: products and sums are exact.
  for (const auto& [name, x] : narrow
                                   ? std::vector<std::pair<std::string, double>>{{"2^14", 0x1p14}}
                                   : std::vector<std::pair<std::string, double>>{
                                         {"2^14", 0x1p14}, {"2^40", 0x1p40}, {"2^60", 0x1p60}}) {
    for (const Order& order : kOrders) {
      add(fmt::format("{}/{}", order.name, name), kTall, levels(x, x, order.level));
    }
    add(fmt::format("rising/d128/{}", name), kWide, levels(x, x, kOrders[2].level));
    add(fmt::format("four-levels/causal/{}", name), kTall, levels(x, x, kOrders[1].level), {},
        true);
    for (const Order& order : {kOrders[0], kOrders[2], kOrders[3]}) {
      add(fmt::format("{}/one-query/{}", order.name, name), kOneQuery, levels(x, x, order.level));
    }
  }
  // N(0, 1) scaled so that the largest score dominates its row.
  const double spread = narrow ? 4000 : 1e15;
  for (const Shape& shape : {kTall, kWide, kOneQuery}) {
    add(fmt::format("normal/{}x{}x{}", shape.seqlen_q, shape.seqlen_kv, shape.head_dim), shape,
        [=](HostProblem& host) {
          multiply(host.at("q"), spread);
          multiply(host.at("k"), spread);
        });
  }
  for (const float scale : {0.0f, 1e7f, 1e30f, -1e7f, -1e30f}) {
    add(
        fmt::format("scale/{}", scale), kTall, [](HostProblem&) {}, scale);
  }
  if (narrow) return;
  // Up to 0.94 times fp32's largest: log2(e) times the score then exceeds it.
  for (const Order& order : kOrders) {
    add(fmt::format("{}/largest", order.name), kTall, levels(1.875 * 0x1p61, 0x1p60, order.level),
        1.0f);
  }
  Problem past = problem_of(kOneKey, dtype);
  past.softmax_scale = 1.0f;
  cases.add(
      "large/" + type + "/one-key/past-largest", past,
      [](HostProblem& host) {
        for (const char* const name : {"q", "k"}) {
          set_rows(host.at(name), [](int64_t) { return 0x1p65; });
        }
      },
      true);
}

// -------------------------------------------------------------------------------------- bias

struct BiasValue {
  const char* name;
  double value;
};

std::vector<BiasValue> bias_values(DType bias) {
  if (bias == DType::f16) return {{"-6e4", -6e4}, {"finfo.min", -65504}};
  const double lowest = bias == DType::f32 ? -kLargest : -0x1.FEp127;
  return {{"-1e9", -1e9},
          {"-1e11", -1e11},
          {"-1e13", -1e13},
          {"-1e30", -1e30},
          {"-0.7max", -0.7 * kLargest},
          {"finfo.min", lowest}};
}

// The pairs with a large bias, among `queries` and `keys`.
struct Place {
  const char* name;
  bool (*has)(int64_t query, int64_t key, int64_t keys);
};
constexpr Place kPlaces[] = {
    {"whole", [](int64_t, int64_t, int64_t) { return true; }},
    {"some-rows", [](int64_t query, int64_t key,
                     int64_t) { return query % 3 == 0 || (query % 3 == 1 && key % 2 == 0); }},
    {"left", [](int64_t, int64_t key, int64_t keys) { return key < keys * 2 / 3; }},
    {"right", [](int64_t, int64_t key, int64_t keys) { return key >= keys / 3; }}};

void set_bias(HostProblem& host, const Place& place, double value) {
  HostTensor& bias = host.at("bias");
  const int64_t queries = bias.desc().shape[2];
  const int64_t keys = bias.desc().shape[3];
  for (int64_t i = 0; i < bias.elements(); ++i) {
    bias.set(i, place.has(i / keys % queries, i % keys, keys) ? value : 0.0);
  }
}

void add_bias(Cases& cases, DType dtype, DType bias_dtype) {
  for (const auto& one : bias_values(bias_dtype)) {
    const std::string prefix =
        fmt::format("bias/{}/{}/{}/", to_string(dtype), to_string(bias_dtype), one.name);
    const double value = one.value;
    // Past this, no score of moderate size changes the sum, not even in fp64.
    const bool absorbs = value < -1e25;
    const auto add = [&](const std::string& what, const Shape& shape, const Place& place,
                         const std::function<void(Problem&)>& change, const Bend& bend) {
      Problem problem = problem_of(shape, dtype);
      problem.bias =
          TensorDesc::contiguous(bias_dtype, {1, shape.heads_q, shape.seqlen_q, shape.seqlen_kv});
      if (change) change(problem);
      cases.add(prefix + what, problem, [=](HostProblem& host) {
        if (!absorbs) make_keys_equal(host);
        set_bias(host, place, value);
        if (bend) bend(host);
      });
    };
    for (const Place& place : kPlaces) add(place.name, kTall, place, {}, {});
    add("whole/d128", kWide, kPlaces[0], {}, {});
    add("some-rows/causal", kTall, kPlaces[1], [](Problem& p) { p.causal = true; }, {});
    add("whole/one-query", kOneQuery, kPlaces[0], {}, {});
    add("left/one-query", kOneQuery, kPlaces[2], {}, {});
    add("whole/softcap", kTall, kPlaces[0], [](Problem& p) { p.softcap = 20; }, {});
    // Next to pairs that a mask, or a bias of -inf, removes, including whole rows.
    add("some-rows/mask", kTall, kPlaces[1],
        [](Problem& p) {
          p.mask = p.bias;
          p.mask->dtype = DType::boolean;
        },
        {});
    add("whole/-inf", kTall, kPlaces[0], {}, [](HostProblem& host) {
      HostTensor& bias = host.at("bias");
      const int64_t keys = bias.desc().shape[3];
      for (int64_t i = 0; i < bias.elements(); ++i) {
        if (i % 5 < 2 || i / keys % 7 == 0) bias.set(i, -kInf);
      }
    });
    // A sink dominates the row, contributes to it, or is negligible.
    for (const auto& [sink_name, sink] :
         {std::pair<const char*, double>{"0", 0.0}, {"equal", value}, {"lowest", -kLargest}}) {
      if (bias_dtype != DType::f32 || (sink == value && !absorbs)) continue;
      add(
          fmt::format("some-rows/sink-{}", sink_name), kTall, kPlaces[1],
          [](Problem& p) { p.sinks = TensorDesc::contiguous(DType::f32, {p.q.shape[1]}); },
          [sink = sink](HostProblem& host) { host.at("sinks").fill([=] { return sink; }); });
    }
  }
}

// Slopes so steep that the key nearest to the diagonal dominates its row, for any diagonal.
void add_alibi(Cases& cases, DType dtype) {
  for (const double slope : {1e2, 1e4, 1e8, 1e15, 1e30, 1e36, 1e38, -1e4, -1e30}) {
    const auto add = [&](const char* what, const Shape& shape,
                         const std::function<void(Problem&)>& change) {
      Problem problem = problem_of(shape, dtype);
      problem.alibi_slopes = TensorDesc::contiguous(DType::f32, {shape.heads_q});
      problem.causal = slope < 0;  // only the first key is the furthest
      if (change) change(problem);
      cases.add(fmt::format("alibi/{}/{}/{}", to_string(dtype), slope, what), problem,
                [=](HostProblem& host) { host.at("alibi_slopes").fill([=] { return slope; }); });
    };
    const auto far = [](int64_t offset) {
      return [=](Problem& p) {
        p.alignment = Alignment::given;
        p.causal_offset = offset;
      };
    };
    add("plain", kTall, {});
    add("causal", kWide, [](Problem& p) { p.causal = true; });
    add("one-query", kOneQuery, [](Problem& p) { p.window_left = 60; });
    if (std::abs(slope) < 1e33) add("far-right", kTall, far(1000));
    if (slope > 0 && slope < 1e33) add("far-left", kTall, far(-1000));
    // No key is on a diagonal, so a sink dominates every row, however far below it the scores are.
    // A slope of 100 leaves a weight of exp(-200), which fp32 does not have.
    const auto sinks_and_offset = [](int64_t offset) {
      return [=](Problem& p) {
        p.sinks = TensorDesc::contiguous(DType::f32, {p.q.shape[1]});
        p.alignment = Alignment::given;
        p.causal_offset = offset;
      };
    };
    if (slope > 1e3) add("one-key/sink", kOneKey, sinks_and_offset(2));
    if (slope > 0) add("far-left/sink", kTall, sinks_and_offset(-1000));
  }
}

// Sinks that are far from the scores, above or below all; and NaN or infinite ones, where the first
// rows see no key.
void add_sinks(Cases& cases, DType dtype) {
  for (const double sink : {-kLargest, -1e30, -1e11, 1e11, 1e30, kLargest}) {
    Problem problem = problem_of(kTall, dtype);
    problem.sinks = TensorDesc::contiguous(DType::f32, {problem.q.shape[1]});
    problem.causal = true;
    cases.add(fmt::format("sink/{}/{:.2g}", to_string(dtype), sink), problem,
              [=](HostProblem& host) { host.at("sinks").fill([=] { return sink; }); });
  }
  for (const double sink : {-kInf, kInf, std::numeric_limits<double>::quiet_NaN()}) {
    for (const Shape& shape : {kTall, kWide}) {
      Problem problem = problem_of(shape, dtype);
      problem.sinks = TensorDesc::contiguous(DType::f32, {problem.q.shape[1]});
      problem.causal = true;
      problem.alignment = Alignment::given;
      problem.causal_offset = -20;
      cases.add(fmt::format("sink/{}/{}/d{}", to_string(dtype), sink, shape.head_dim), problem,
                [=](HostProblem& host) { host.at("sinks").set(0, sink); });
    }
  }
}

// ----------------------------------------------------------------------------------- softcap

void add_softcap(Cases& cases, DType dtype) {
  for (const double cap : {1e-30, 1.0, 30.0, 1e3, 1e5, 1e6, 1e8, 1e30, kLargest}) {
    const auto add = [&](const std::string& what, const Shape& shape, const Bend& bend) {
      Problem problem = problem_of(shape, dtype);
      problem.softcap = static_cast<float>(cap);
      problem.softmax_scale = 0.125f;
      cases.add(fmt::format("softcap/{}/{:.2g}/{}", to_string(dtype), cap, what), problem, bend);
    };
    for (const Shape& shape : {kTall, kWide, kOneQuery}) {
      add(fmt::format("normal/{}x{}x{}", shape.seqlen_q, shape.seqlen_kv, shape.head_dim), shape,
          [](HostProblem&) {});
    }
    // Scores of at most `top`, of both signs, up to the largest value of fp32 or the type.
    const auto at_most = [&](const char* what, double top, double (*level)(int64_t)) {
      const double width = static_cast<double>(kTall.head_dim);
      const double x = std::exp2(std::floor(std::log2(std::sqrt(top / 0.125 / width))));
      if (x > (dtype == DType::f16 ? 0x1p15 : 0x1p60) || x < 0x1p-10) return;
      add(what, kTall, levels(x, x, level));
    };
    // All scores saturate, or are 0. With a small cap its levels are distinguishable.
    at_most("saturated", 1024 * cap, [](int64_t key) { return static_cast<double>(key % 3 - 1); });
    // Scores where tanh bends, in steps that are large compared with 1.
    if (cap >= 1e3) at_most("bends", cap, kOrders[1].level);
    // Far below the cap.
    if (cap >= 1e6) at_most("identity", cap / 4096, kOrders[4].level);
  }
}

}  // namespace

std::vector<ScoreCase> score_cases() {
  Cases cases;
  for (const DType dtype : kTypes) {
    add_large(cases, dtype);
    add_bias(cases, dtype, DType::f32);
    if (dtype != DType::f32) add_bias(cases, dtype, dtype);
    add_alibi(cases, dtype);
    add_sinks(cases, dtype);
    add_softcap(cases, dtype);
  }
  std::vector<ScoreCase> all = std::move(cases).all();
  for (ScoreCase& one : fp8_cases()) all.push_back(std::move(one));
  return all;
}

HostProblem fill(const ScoreCase& one) {
  HostProblem host = make_host_problem(one.problem, 1);
  Random random(2);
  host.at("v").fill([&] { return 1 + 2 * random.uniform(); });
  one.bend(host);
  return host;
}

Result<Reference> score_reference(const ScoreCase& one, HostProblem& host, int threads) {
  Result<Reference> reference = compute_reference(host, threads, false);
  if (!reference.ok()) return reference;
  const auto terms = static_cast<double>(one.problem.q.shape[3] + 8);
  reference->lse_rounding = std::max(reference->lse_rounding, terms * 0x1p-24);
  reference->past_fp32 = one.past_fp32;
  reference->limits = one.limits;
  return reference;
}

}  // namespace flashcore::bench
