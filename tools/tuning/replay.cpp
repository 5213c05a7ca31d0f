#include "tools/tuning/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "bench/evidence/compact.hpp"
#include "bench/evidence/evidence_file.hpp"
#include "cuda/forward_sm80/latency/work.hpp"
#include "cuda/forward_sm80/throughput/work.hpp"
#include "cuda/forward_sm90/latency/work.hpp"
#include "cuda/forward_sm90/latency_wide/work.hpp"
#include "cuda/forward_sm90/throughput/tiles.hpp"
#include "plan/forward_choice.hpp"
#include "problem/status.hpp"

namespace flashcore::replay {
namespace {

using nlohmann::ordered_json;
namespace sm80 = cuda::forward_sm80;
namespace sm90 = cuda::forward_sm90;

constexpr const char* kSm90Latency = "forward_sm90_latency";
constexpr const char* kSm90Wide = "forward_sm90_latency:wide";
constexpr const char* kSm90Throughput = "forward_sm90_throughput";
constexpr const char* kSm80Latency = "forward_sm80_latency";
constexpr const char* kSm80Throughput = "forward_sm80_throughput";

ForwardProblem problem_of(const ordered_json& row, DType dtype, int64_t head_dim) {
  const bool is_square = row.contains("seqlen");
  ForwardProblem p;
  p.dtype = dtype;
  p.batch = 1;
  p.heads_q = p.heads_kv = row["heads"];
  p.seqlen_q = row[is_square ? "seqlen" : "queries"];
  p.seqlen_kv = row[is_square ? "seqlen" : "keys"];
  p.head_dim_qk = p.head_dim_v = head_dim;
  p.softmax_scale = 1 / std::sqrt(static_cast<float>(head_dim));
  if (row["causal"]) p.band.right = 0;
  return p;
}

DType dtype_of(const ordered_json& name) { return name == "f16" ? DType::f16 : DType::bf16; }

void read_grid(const ordered_json& document, size_t recording, std::vector<Row>& rows) {
  for (const ordered_json& row : document["rows"]) {
    Row& one = rows.emplace_back(
        Row{problem_of(row, dtype_of(row["dtype"]), row["head_dim"]), {}, recording});
    for (const ordered_json& cell : row["kernels"]) {
      if (cell.contains("us")) one.us[cell["kernel"].get<std::string>()] = cell["us"];
    }
  }
}

void read_tiles(const ordered_json& document, size_t recording, std::vector<Row>& rows) {
  for (const ordered_json& row : document["rows"]) {
    Row& one = rows.emplace_back(
        Row{problem_of(row, dtype_of(document["dtype"]), document["head_dim"]), {}, recording});
    for (const auto& [tile, us] : row["us"].items()) one.us["forward_sm90_throughput:" + tile] = us;
  }
}

// A case of a `flashcore bench` evidence file.
Row row_of(const ordered_json& one, size_t recording) {
  ForwardProblem p;
  p.dtype = dtype_of(one["dtype"]);
  p.batch = one["batch"];
  p.heads_q = one["heads_q"];
  p.heads_kv = one["heads_kv"];
  p.seqlen_q = one["seqlen_q"];
  p.seqlen_kv = one["seqlen_kv"];
  p.head_dim_qk = p.head_dim_v = one["head_dim"];
  p.k.batch = p.v.batch = p.heads_kv * p.seqlen_kv * p.head_dim_qk;
  if (one["causal"]) p.band.right = 0;
  Row row{p, {}, recording};
  for (const ordered_json& timed : one["rows"]) {
    if (timed["source"] != "flashcore" || !timed.contains("times")) continue;
    if (!timed["times"].contains("sustained")) continue;
    row.us[timed["implementation"].get<std::string>()] = timed["times"]["sustained"]["p50_us"];
  }
  return row;
}

int64_t head_dim_of(const ForwardProblem& p) { return std::max(p.head_dim_qk, p.head_dim_v); }

std::string text_of(const ForwardProblem& p) {
  return fmt::format("{} heads, {} queries, {} keys, head dimension {}{}", p.heads_q, p.seqlen_q,
                     p.seqlen_kv, head_dim_of(p), p.band.right >= 0 ? ", causal" : "");
}

void add(std::vector<Option>& options, const Row& row, const std::string& kernel,
         const WorkUnit& unit) {
  const auto found = row.us.find(kernel);
  if (found != row.us.end()) options.push_back({kernel, unit, found->second});
}

// The options that are known to have run: forward_sm90_throughput's tile, if it has only one.
std::vector<Option> sm90_throughput_options(const Row& row) {
  std::vector<Option> options;
  for (const int i : sm90::throughput::tile_candidates(row.problem)) {
    const auto& config = sm90::throughput::kConfigs[static_cast<size_t>(i)];
    add(options, row, kSm90Throughput, sm90::throughput::work_unit(config));
  }
  return options;
}

std::vector<Option> tile_options(const Row& row) {
  std::vector<Option> options;
  for (const int i : sm90::throughput::tile_candidates(row.problem)) {
    const auto& config = sm90::throughput::kConfigs[static_cast<size_t>(i)];
    add(options, row, std::string(sm90::throughput::tile_name(config)),
        sm90::throughput::work_unit(config));
  }
  return options;
}

void add_sm80(std::vector<Option>& options, const Row& row, const DeviceInfo& device) {
  add(options, row, kSm80Throughput,
      sm80::throughput::work_unit(row.problem, device.shared_memory_per_block));
}

void add_sm80_latency(std::vector<Option>& options, const Row& row, const DeviceInfo& device) {
  add(options, row, kSm80Latency,
      sm80::latency::work_unit(row.problem, device.multiprocessors,
                               device.shared_memory_per_block));
}

void add_sm90_latency(std::vector<Option>& options, const Row& row, const DeviceInfo& device) {
  const ForwardProblem& p = row.problem;
  add(options, row, kSm90Latency, sm90::latency::work_unit(p, device.multiprocessors));
  if (head_dim_of(p) > 64) add(options, row, kSm90Wide, sm90::latency_wide::kWorkUnit);
}

}  // namespace

Result<ordered_json> read_json(const std::filesystem::path& path) {
  Result<ordered_json> document = bench::read_json(path.string());
  if (!document.ok()) return document.status();
  return bench::whole(std::move(*document));
}

Result<Recordings> read_recordings(const std::filesystem::path& root,
                                   const ordered_json& constants) {
  Recordings all;
  for (const ordered_json& measurement : constants["measurements"]) {
    const std::string name = measurement["file"];
    const Result<ordered_json> document = read_json(root / name);
    if (!document.ok()) return document.status();
    const size_t recording = all.commits.size();
    if (!document->contains("kind")) {  // of the tiles, before `flashcore bench` had these cases
      read_tiles(*document, recording, all.rows);
      all.commits.push_back((*document)["commit"]);
      continue;
    }
    const ordered_json& device = (*document)["device"];
    all.device.device = {DeviceKind::cuda, 0};
    all.device.name = device["name"];
    all.device.compute_capability = device["compute_capability"];
    all.device.multiprocessors = device["multiprocessors"];
    all.device.shared_memory_per_block = device["shared_memory_per_block"];
    all.sm_clock_mhz = device["sm_clock_max_mhz"];
    all.commits.push_back((*document)["library"]["commit"]);
    if ((*document)["kind"] == "small_grid") {  // likewise
      read_grid(*document, recording, all.rows);
      continue;
    }
    for (const ordered_json& one : (*document)["cases"]) all.rows.push_back(row_of(one, recording));
  }
  if (all.device.name.empty()) {
    return Status(StatusCode::invalid_argument, "measurements: none is evidence of a GPU");
  }
  return all;
}

std::vector<Row> report_rows(const ordered_json& evidence) {
  std::vector<Row> rows;
  for (const ordered_json& one : evidence["cases"]) {
    const std::string suite = one["suite"];
    if (suite != "five" && suite != "sweep" && suite != "small") continue;
    rows.push_back(row_of(one, 0));
  }
  return rows;
}

Table::Table(const ordered_json& constants) : constants_(constants) {
  const ordered_json &gpu = constants_["gpu"], &measured = constants_["measured"];
  for (const ordered_json& one : constants_["tiles"]) {
    tiles_.push_back(
        {one["tile"].get_ref<const std::string&>(),
         one["head_dim"],
         {one["begin_and_end_us"], one["step_us"], one["mask_us"], one["alone"], one["tail"]}});
  }
  table_ = {.gpu = gpu["name"].get_ref<const std::string&>(),
            .compute_capability = gpu["compute_capability"],
            .multiprocessors = gpu["multiprocessors"],
            .speed = {gpu["sm_clock_mhz"], gpu["memory_gb_s"]},
            .rules = {},
            .launch = constants_["launch_us"],
            .error = constants_["fit"]["error"],
            .most_waves = measured["most_waves"],
            .most_steps = measured["most_steps"],
            .tiles = tiles_};
}

tuning::Tuning Table::tuning() const {
  return {.table = &table_,
          .is_own = true,
          .bytes_per_us = 1e3 * table_.speed.memory_gb_s,
          .multiprocessors = table_.multiprocessors};
}

const char* name_of(Choice choice) {
  switch (choice) {
    case Choice::hopper:
      return "latency kernels of sm_90, forward_sm90_throughput";
    case Choice::hopper_others:
      return "latency kernels of sm_90, forward_sm80_throughput";
    case Choice::ampere:
      return "forward_sm80_latency, forward_sm80_throughput";
    case Choice::sm90_tiles:
      return "tiles of forward_sm90_throughput";
  }
  return "";
}

std::vector<Option> options_of(Choice choice, const Row& row, const DeviceInfo& device) {
  if (choice == Choice::sm90_tiles) return tile_options(row);
  std::vector<Option> options;
  if (choice == Choice::hopper) {
    options = sm90_throughput_options(row);
  } else {
    add_sm80(options, row, device);
  }
  const size_t before = options.size();
  (choice == Choice::ampere ? add_sm80_latency : add_sm90_latency)(options, row, device);
  if (before == 0 || options.size() == before) options.clear();
  return options;
}

std::string chosen(Choice choice, const Row& row, const tuning::Tuning& tuning,
                   const DeviceInfo& device) {
  const ForwardProblem& p = row.problem;
  const int64_t shared_memory = device.shared_memory_per_block;
  if (choice == Choice::sm90_tiles) {
    const int i = sm90_tile_choice(p, tuning);
    return std::string(
        sm90::throughput::tile_name(sm90::throughput::kConfigs[static_cast<size_t>(i)]));
  }
  if (choice == Choice::ampere) {
    return sm80_latency_choice(p, tuning, shared_memory).is_latency() ? kSm80Latency
                                                                      : kSm80Throughput;
  }
  const bool is_hopper = choice == Choice::hopper;
  const LatencyChoice latency = sm90_latency_choice(
      p, tuning, shared_memory, is_hopper ? Throughput::sm90 : Throughput::sm80);
  if (latency.is_latency()) return kSm90Latency;
  if (latency.is_latency_wide()) return kSm90Wide;
  return is_hopper ? kSm90Throughput : kSm80Throughput;
}

uint64_t fold_of(const ForwardProblem& p, uint64_t seed, uint64_t folds) {
  uint64_t mixed = seed;
  const auto mix = [&](int64_t value) {  // splitmix64's steps
    mixed += static_cast<uint64_t>(value) + 0x9E3779B97F4A7C15U;
    mixed = (mixed ^ (mixed >> 30U)) * 0xBF58476D1CE4E5B9U;
    mixed = (mixed ^ (mixed >> 27U)) * 0x94D049BB133111EBU;
    mixed ^= mixed >> 31U;
  };
  for (const int64_t value : {p.heads_q, p.seqlen_q, p.seqlen_kv, head_dim_of(p), p.band.right}) {
    mix(value);
  }
  return mixed % folds;
}

void add_regret(Regret& regret, Choice choice, const Row& row, const tuning::Tuning& tuning,
                const DeviceInfo& device) {
  const std::vector<Option> options = options_of(choice, row, device);
  if (options.empty()) return;
  const Option& best = *std::min_element(
      options.begin(), options.end(), [](const Option& a, const Option& b) { return a.us < b.us; });
  const double loss = row.us.at(chosen(choice, row, tuning, device)) / best.us - 1;
  ++regret.problems;
  ++regret.fastest[best.kernel];
  regret.sum += loss;
  if (loss <= regret.worst) return;
  regret.worst = loss;
  regret.worst_problem = text_of(row.problem);
}

double PredictionError::mean() const {
  return times == 0 ? 0 : std::expm1(sum / static_cast<double>(times));
}

void add_error(PredictionError& error, const Row& row, const tuning::Tuning& tuning,
               const DeviceInfo& device) {
  for (const Option& one : timed(row, device)) {
    error.sum += std::abs(std::log(tuning::predicted_us(tuning, row.problem, one.unit) / one.us));
    ++error.times;
  }
}

std::vector<Option> timed(const Row& row, const DeviceInfo& device) {
  std::vector<Option> options = tile_options(row);
  const std::vector<Option> throughput = sm90_throughput_options(row);
  if (throughput.size() == 1) options.push_back(throughput[0]);
  add_sm90_latency(options, row, device);
  add_sm80(options, row, device);
  add_sm80_latency(options, row, device);
  return options;
}

}  // namespace flashcore::replay
