// The error of quantisation to fp8: the evidence behind docs/accuracy.md.
//
// Inputs are drawn in fp32. The fp64 reference computes attention of these and of the output of
// quantize, so the only errors are the fp8 numbers'. Each number is the largest over the
// seeds. Takes a minute on two cores.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/cases/fp8_cases.hpp"
#include "bench/evidence/evidence.hpp"
#include "bench/gate/quantization_error.hpp"
#include "bench/tensors/random.hpp"
#include "bench/verify/errors.hpp"

namespace flashcore::bench {
namespace {

constexpr int64_t kQueryHeads = 4, kKeyHeads = 2, kQueries = 64, kKeys = 1000, kWidth = 128;
constexpr uint64_t kSeeds = 3;

// Data whose keys have a common part in each channel, as in trained models.
std::vector<Fp8Data> channel_data() {
  return {
      {"offsets",  // each channel has its own offset, 3 times the differences between keys
       [](HostProblem& host) {
         Random random(11);
         std::array<double, kWidth> offsets{};
         for (double& offset : offsets) offset = 3 * random.normal();
         change_rows(host.at("k"), [&](int64_t, int64_t d, double x) {
           return x + offsets[static_cast<size_t>(d)];
         });
       }},
      {"four channels",  // four of them have an offset of 20
       [](HostProblem& host) {
         change_rows(host.at("k"),
                     [](int64_t, int64_t d, double x) { return x + (d % 32 == 9 ? 20 : 0); });
       }},
      {"wide channels",  // four of them are 16 times as large, without an offset
       [](HostProblem& host) {
         change_rows(host.at("k"),
                     [](int64_t, int64_t d, double x) { return x * (d % 32 == 9 ? 16 : 1); });
         change_rows(host.at("q"),
                     [](int64_t, int64_t d, double x) { return x / (d % 32 == 9 ? 8 : 1); });
       }},
      {"heads",  // one head's keys are 2^15 times smaller than the other's, its queries larger by as much
       [](HostProblem& host) {
         HostTensor &k = host.at("k"), &q = host.at("q");
         for (int64_t i = k.elements() / 2; i < k.elements(); ++i) k.set(i, k.get(i) * 0x1p-15);
         for (int64_t i = q.elements() / 2; i < q.elements(); ++i) q.set(i, q.get(i) * 0x1p15);
       }},
  };
}

// Multiplies each row by a randomised Hadamard matrix: the products of Q and K stay the same, and
// the outlier of one channel is spread over all.
void rotate(HostTensor& tensor) {
  Random random(23);
  std::array<double, kWidth> signs{}, row{};
  for (double& sign : signs) sign = random.chance(0.5) ? 1 : -1;
  for (int64_t first = 0; first < tensor.elements(); first += kWidth) {
    for (size_t d = 0; d < kWidth; ++d) {
      row[d] = tensor.get(first + static_cast<int64_t>(d)) * signs[d];
    }
    for (size_t step = 1; step < kWidth; step *= 2) {
      for (size_t d = 0; d < kWidth; ++d) {
        if ((d & step) != 0) continue;
        const double a = row[d], b = row[d + step];
        row[d] = a + b;
        row[d + step] = a - b;
      }
    }
    for (size_t d = 0; d < kWidth; ++d) {
      tensor.set(first + static_cast<int64_t>(d), row[d] / std::sqrt(static_cast<double>(kWidth)));
    }
  }
}

struct Way {
  const char* scales;
  QuantizeChoice choice;
  bool rotated = false;
};

std::vector<Way> all_ways() {
  using Scales = QuantizeChoice::Scales;
  std::vector<Way> ways;
  for (const DType dtype : {DType::f8e4m3, DType::f8e5m2}) {
    for (const auto& [name, scales, block] : {std::tuple{"tensor", Scales::tensor, int64_t{0}},
                                              {"head", Scales::head, int64_t{0}},
                                              {"block", Scales::head, int64_t{64}},
                                              {"token", Scales::head, int64_t{1}}}) {
      for (const auto& [smooth, rotated] :
           {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
        ways.push_back({name,
                        {.dtype = dtype,
                         .scales = scales,
                         .kv_block = block,
                         .keep_q = false,
                         .smooth_k = smooth},
                        rotated});
      }
    }
  }
  return ways;
}

QuantizationError worse(const QuantizationError& a, const QuantizationError& b) {
  return {std::max(a.max_scaled_error, b.max_scaled_error),
          std::max(a.relative_error, b.relative_error), std::max(a.lse_error, b.lse_error)};
}

// The errors of all ways, in order.
Result<std::vector<QuantizationError>> errors_of(const Fp8Data& data, const std::vector<Way>& ways,
                                                 int threads) {
  std::vector<QuantizationError> errors(ways.size());
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    HostProblem host = draw(data, {1, kQueryHeads, kQueries, kWidth}, {1, kKeyHeads, kKeys, kWidth},
                            seed),
                rotated = host;
    for (const char* const name : {"q", "k"}) rotate(rotated.at(name));
    const Result<Reference> right = compute_reference(host, threads, false);
    if (!right.ok()) return right.status();
    for (size_t n = 0; n < ways.size(); ++n) {
      HostProblem& given = ways[n].rotated ? rotated : host;
      Result<QuantizedProblem> narrow = quantized(given, ways[n].choice, cpu_quantizer(threads));
      if (!narrow.ok()) return narrow.status();
      const Result<QuantizationError> error = quantization_error(given, *right, *narrow, threads);
      if (!error.ok()) return error.status();
      errors[n] = worse(errors[n], *error);
    }
  }
  return errors;
}

}  // namespace

Result<nlohmann::ordered_json> quantization_errors(int threads, const Say& say) {
  const std::vector<Way> ways = all_ways();
  nlohmann::ordered_json evidence = new_evidence("quantization");
  evidence["device"] = {{"name", evidence["host"]["processor"]}, {"kind", "cpu"}};
  evidence["shape"] = fmt::format("{} heads of queries over {}, {} queries, {} keys, head_dim {}",
                                  kQueryHeads, kKeyHeads, kQueries, kKeys, kWidth);
  evidence["seeds"] = kSeeds;
  nlohmann::ordered_json& rows = evidence["rows"] = nlohmann::ordered_json::array();
  std::vector<Fp8Data> all = fp8_data();
  for (Fp8Data& data : channel_data()) all.push_back(std::move(data));
  for (const Fp8Data& data : all) {
    const Result<std::vector<QuantizationError>> found = errors_of(data, ways, threads);
    if (!found.ok()) return found.status();
    const std::vector<QuantizationError>& errors = *found;
    for (size_t n = 0; n < ways.size(); ++n) {
      const auto& [scales, choice, rotated] = ways[n];
      say(fmt::format("{:14} {} {:6} {:8} {:7}  relative {:.2e}  scaled {:.2e}  LSE {:.2e}",
                      data.name, to_string(choice.dtype), scales, choice.smooth_k ? "smooth" : "",
                      rotated ? "rotated" : "", errors[n].relative_error,
                      errors[n].max_scaled_error, errors[n].lse_error));
      rows.push_back({{"data", data.name},
                      {"dtype", to_string(choice.dtype)},
                      {"scales", scales},
                      {"smooth", choice.smooth_k},
                      {"rotated", rotated},
                      {"relative_error", errors[n].relative_error},
                      {"max_scaled_error", errors[n].max_scaled_error},
                      {"lse_error", errors[n].lse_error}});
    }
  }
  evidence["complete"] = true;
  return evidence;
}

}  // namespace flashcore::bench
