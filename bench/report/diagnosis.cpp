#include "bench/report/diagnosis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

constexpr double kBusyPercent = 60;       // a unit this busy limits the kernel
constexpr double kShortMicroseconds = 5;  // below it, the launch itself matters
constexpr double kFewWaves = 0.5;
constexpr double kConflictsPercent = 5;
constexpr double kLowOccupancyPercent = 25;

constexpr std::string_view kStallPrefix = "smsp__average_warps_issue_stalled_";
constexpr std::string_view kStallSuffix = "_per_issue_active.ratio";

struct Stall {
  std::string_view name;
  std::string_view advice;
};
// Stall reasons of attention kernels, and remedies.
constexpr Stall kStalls[] = {
    {"long_scoreboard",
     "warps wait for global memory: load further ahead (more stages), or have a producer load"},
    {"short_scoreboard",
     "warps wait for shared memory: fewer or wider accesses (ldmatrix.x4), more work per load"},
    {"barrier",
     "warps wait for one another at barriers: let warps own rows, or use mbarriers by stage"},
    {"membar", "warps wait at memory fences: fence once per tile, not once per access"},
    {"math_pipe_throttle",
     "the arithmetic pipe is full: only fewer instructions help (exp2 folded scale, lazy rescale)"},
    {"mio_throttle",
     "the shared-memory queue is full: fewer instructions to it, keep operands in registers"},
    {"lg_throttle", "the load/store queue is full: wider global accesses, or TMA"},
    {"wait", "fixed latencies show: more independent work per warp, or more warps"},
    {"dispatch_stall", "instructions cannot be dispatched: register-bank or pipe conflicts"},
    {"no_instruction",
     "instructions are not there yet: the loop is larger than the cache, unroll less"},
    {"branch_resolving", "branches are resolved late: keep masked tiles out of the main loop"},
    {"sleeping", "warps sleep in a spin loop: another warp or block is late"},
    {"gmma", "warps wait for wgmma: overlap the softmax of one tile with the product of the next"},
    {"not_selected", "other warps were ready too: there is work enough, nothing to do here"},
};

struct Unit {
  std::string_view name;
  std::string_view metric;
};
constexpr std::string_view kTensor =
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active";
constexpr Unit kPipes[] = {
    {"issue slots", "smsp__issue_active.avg.pct_of_peak_sustained_active"},
    {"exponentials (XU)", "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active"},
    {"FMA", "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active"},
    {"ALU", "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active"},
};
constexpr Unit kMemory[] = {
    {"DRAM", "dram__throughput.avg.pct_of_peak_sustained_elapsed"},
    {"L2", "lts__throughput.avg.pct_of_peak_sustained_elapsed"},
    {"L1 and shared memory", "l1tex__throughput.avg.pct_of_peak_sustained_active"},
};
constexpr Unit kOccupancyLimits[] = {
    {"registers", "launch__occupancy_limit_registers"},
    {"shared memory", "launch__occupancy_limit_shared_mem"},
    {"warps", "launch__occupancy_limit_warps"},
    {"blocks", "launch__occupancy_limit_blocks"},
};
constexpr std::string_view kDuration = "gpu__time_duration.sum";  // ns
constexpr std::string_view kConflictsLoad =
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum";
constexpr std::string_view kConflictsStore =
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum";
constexpr std::string_view kWavefronts = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum";
constexpr std::string_view kL2Hits = "lts__t_sector_hit_rate.pct";
constexpr std::string_view kWarps = "sm__warps_active.avg.pct_of_peak_sustained_active";
constexpr std::string_view kMostWarps = "sm__maximum_warps_per_active_cycle_pct";
constexpr std::string_view kRegisters = "launch__registers_per_thread";
constexpr std::string_view kShared = "launch__shared_mem_per_block";  // bytes
constexpr std::string_view kWaves = "launch__waves_per_multiprocessor";

// One line of RFC 4180 CSV.
std::vector<std::string> csv_fields(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += '"';
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else if (c != '\r') {
      fields.back() += c;
    }
  }
  return fields;
}

void erase_all(std::string& text, std::string_view part) {
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at)) {
    text.erase(at, part.size());
  }
}

// Returns "a_kernel<64>" for "void unnamed>::a_kernel<64>(Params)", as in the profiler's CSV.
std::string short_name(std::string name) {
  erase_all(name, "(anonymous namespace)::");
  erase_all(name, "unnamed>::");
  name.resize(std::min(name.find('('), name.size()));
  if (name.starts_with("void ")) name.erase(0, 5);
  return name;
}

// Parses "1,234.5" with digit groups; false for "n/a".
bool parse_value(std::string text, double& value) {
  std::erase(text, ',');
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

std::vector<Share> busiest(const KernelCounters& counters, std::span<const Unit> units) {
  std::vector<Share> shares;
  for (const Unit& unit : units) {
    shares.push_back({std::string(unit.name), counters.get(unit.metric)});
  }
  std::stable_sort(shares.begin(), shares.end(),
                   [](const Share& a, const Share& b) { return a.value > b.value; });
  return shares;
}

std::vector<Share> stalls_of(const KernelCounters& counters) {
  std::vector<Share> stalls;
  for (const Stall& stall : kStalls) {
    const double value =
        counters.get(fmt::format("{}{}{}", kStallPrefix, stall.name, kStallSuffix));
    if (value > 0) stalls.push_back({std::string(stall.name), value});
  }
  std::stable_sort(stalls.begin(), stalls.end(),
                   [](const Share& a, const Share& b) { return a.value > b.value; });
  return stalls;
}

// The resource that allows the fewest blocks per SM.
std::string occupancy_limiter(const KernelCounters& counters) {
  std::string limiter;
  double fewest = 0;
  for (const Unit& unit : kOccupancyLimits) {
    const double blocks = counters.get(unit.metric);
    if (blocks > 0 && (limiter.empty() || blocks < fewest)) {
      fewest = blocks;
      limiter = fmt::format("{} ({:.0f} blocks per SM)", unit.name, blocks);
    }
  }
  return limiter;
}

void judge(Diagnosis& d) {
  const Share& pipe = d.pipes.front();
  const Share& memory = d.memory.front();
  const bool tensor_leads = d.tensor_percent >= pipe.value;
  const double compute = std::max(d.tensor_percent, pipe.value);
  if (compute >= kBusyPercent && compute >= memory.value) {
    d.bound = Bound::compute;
    d.verdict = tensor_leads
                    ? fmt::format("compute-bound: the Tensor Cores are busy {:.0f}% of the time",
                                  d.tensor_percent)
                    : fmt::format("compute-bound: {} at {:.0f}%, the Tensor Cores at {:.0f}%",
                                  pipe.name, pipe.value, d.tensor_percent);
  } else if (memory.value >= kBusyPercent) {
    d.bound = Bound::memory;
    d.verdict = fmt::format("memory-bound: {} at {:.0f}% of its peak", memory.name, memory.value);
  } else if (d.microseconds < kShortMicroseconds) {
    d.bound = Bound::launch;
    d.verdict =
        fmt::format("launch-bound: starting and ending are most of {:.1f} us, and nothing is busy",
                    d.microseconds);
  } else {
    d.bound = Bound::latency;
    d.verdict = fmt::format(
        "latency-bound: nothing is busy (Tensor Cores {:.0f}%, {} {:.0f}%, {} {:.0f}%){}",
        d.tensor_percent, pipe.name, pipe.value, memory.name, memory.value,
        d.waves < kFewWaves ? ", and most of the GPU has no block" : "");
  }
}

void advise(Diagnosis& d) {
  if (d.waves < kFewWaves && (d.bound == Bound::launch || d.bound == Bound::latency)) {
    d.advice.emplace_back(
        "more blocks: smaller query tiles, or split the keys over blocks and merge");
  }
  if (d.conflicts_percent >= kConflictsPercent) {
    d.advice.push_back(fmt::format(
        "bank conflicts are {:.0f}% of shared-memory wavefronts: swizzle or pad the layout",
        d.conflicts_percent));
  }
  if (d.bound == Bound::memory && d.memory.front().name == "DRAM") {
    d.advice.emplace_back("larger query tiles, so that K and V are read fewer times");
  } else if (d.bound == Bound::memory && d.memory.front().name == "L2") {
    d.advice.emplace_back("larger query tiles or clusters with multicast: K and V come from L2");
  } else if (d.bound == Bound::memory) {
    d.advice.emplace_back("more products per shared-memory load: larger warp tiles, ldmatrix.x4");
  }
  for (size_t i = 0; i < d.stalls.size() && i < 2; ++i) {
    for (const Stall& stall : kStalls) {
      if (stall.name != d.stalls[i].name) continue;
      d.advice.push_back(fmt::format("{}: {}", stall.name, stall.advice));
    }
  }
  const bool few_warps = d.occupancy_limit_percent > 0 &&
                         d.occupancy_limit_percent <= kLowOccupancyPercent &&
                         d.bound == Bound::latency;
  if (few_warps) {
    d.advice.push_back(fmt::format(
        "few warps fit one SM, limited by {}: spend less of it, or overlap work inside a warp",
        d.occupancy_limiter));
  }
}

std::string shares_text(const std::vector<Share>& shares, size_t most, std::string_view unit) {
  std::string text;
  for (size_t i = 0; i < shares.size() && i < most; ++i) {
    text += fmt::format("{}{} {:.1f}{}", i == 0 ? "" : ", ", shares[i].name, shares[i].value, unit);
  }
  return text.empty() ? "-" : text;
}

nlohmann::ordered_json shares_json(const std::vector<Share>& shares) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const Share& share : shares) out[share.name] = share.value;
  return out;
}

}  // namespace

const std::vector<std::string>& profiler_metrics() {
  static const std::vector<std::string> metrics = [] {
    std::vector<std::string> all;
    for (const std::string_view metric :
         {kDuration, kTensor, kConflictsLoad, kConflictsStore, kWavefronts, kL2Hits, kWarps,
          kMostWarps, kRegisters, kShared, kWaves}) {
      all.emplace_back(metric);
    }
    for (const Unit& unit : kPipes) all.emplace_back(unit.metric);
    for (const Unit& unit : kMemory) all.emplace_back(unit.metric);
    for (const Unit& unit : kOccupancyLimits) all.emplace_back(unit.metric);
    for (const Stall& stall : kStalls) {
      all.push_back(fmt::format("{}{}{}", kStallPrefix, stall.name, kStallSuffix));
    }
    return all;
  }();
  return metrics;
}

double KernelCounters::get(std::string_view metric) const {
  const auto found = values.find(metric);
  return found == values.end() ? 0 : found->second;
}

std::string_view to_string(Bound bound) {
  switch (bound) {
    case Bound::compute:
      return "compute";
    case Bound::memory:
      return "memory";
    case Bound::latency:
      return "latency";
    case Bound::launch:
      break;
  }
  return "launch";
}

Result<std::vector<KernelCounters>> parse_profiler_csv(std::string_view output) {
  std::vector<KernelCounters> kernels;
  std::map<std::string, size_t> launches;  // keyed by the profiler's launch number
  std::vector<std::string> header;
  size_t id = 0, kernel = 0, name = 0, value = 0;
  while (!output.empty()) {
    const size_t end = output.find('\n');
    const std::string_view line = output.substr(0, end);
    output.remove_prefix(end == std::string_view::npos ? output.size() : end + 1);
    if (!line.starts_with('"')) continue;  // output of the program, and remarks of the profiler
    std::vector<std::string> fields = csv_fields(line);
    if (header.empty()) {
      const auto column = [&](std::string_view title) {
        return static_cast<size_t>(std::find(fields.begin(), fields.end(), title) - fields.begin());
      };
      id = column("ID");
      kernel = column("Kernel Name");
      name = column("Metric Name");
      value = column("Metric Value");
      if (std::max({id, kernel, name, value}) >= fields.size()) continue;
      header = std::move(fields);
      continue;
    }
    if (fields.size() != header.size()) continue;
    const auto [launch, added] = launches.try_emplace(fields[id], kernels.size());
    if (added) kernels.push_back({.kernel = short_name(fields[kernel]), .values = {}});
    double number = 0;
    if (parse_value(fields[value], number)) {
      kernels[launch->second].values[fields[name]] = number;
    }
  }
  if (header.empty()) {
    return Status(StatusCode::device_error,
                  "profiler: its output has no table, wanted columns ID, Kernel Name, Metric "
                  "Name, Metric Value");
  }
  if (kernels.empty()) {
    return Status(StatusCode::device_error, "profiler: it saw no kernel");
  }
  return kernels;
}

Diagnosis diagnose(const KernelCounters& counters) {
  Diagnosis d;
  d.kernel = counters.kernel;
  d.microseconds = counters.get(kDuration) * 1e-3;
  d.tensor_percent = counters.get(kTensor);
  d.pipes = busiest(counters, kPipes);
  d.memory = busiest(counters, kMemory);
  d.l2_hit_percent = counters.get(kL2Hits);
  d.bank_conflicts = counters.get(kConflictsLoad) + counters.get(kConflictsStore);
  const double wavefronts = counters.get(kWavefronts);
  d.conflicts_percent = wavefronts > 0 ? 100 * d.bank_conflicts / wavefronts : 0;
  d.stalls = stalls_of(counters);
  d.occupancy_percent = counters.get(kWarps);
  d.occupancy_limit_percent = counters.get(kMostWarps);
  d.occupancy_limiter = occupancy_limiter(counters);
  d.waves = counters.get(kWaves);
  d.registers = static_cast<int>(counters.get(kRegisters));
  d.shared_kilobytes = counters.get(kShared) / 1024;
  judge(d);
  advise(d);
  return d;
}

std::vector<std::string> diagnosis_lines(const Diagnosis& d) {
  std::vector<std::string> lines = {
      fmt::format("kernel        {}", d.kernel),
      fmt::format("time          {:.2f} us, {:.2f} waves of blocks", d.microseconds, d.waves),
      fmt::format("tensor pipe   {:.1f}%", d.tensor_percent),
      fmt::format("other pipes   {}", shares_text(d.pipes, 4, "%")),
      fmt::format("memory        {}; L2 hits {:.1f}%", shares_text(d.memory, 3, "%"),
                  d.l2_hit_percent),
      fmt::format("bank conflicts {:.0f}, {:.1f}% of shared-memory wavefronts", d.bank_conflicts,
                  d.conflicts_percent),
      fmt::format("stalls        {} (warps per issued instruction)", shares_text(d.stalls, 4, "")),
      fmt::format("occupancy     {:.1f}% of {:.1f}%, limited by {}; {} registers, {:.1f} KB",
                  d.occupancy_percent, d.occupancy_limit_percent, d.occupancy_limiter, d.registers,
                  d.shared_kilobytes),
      fmt::format("verdict       {}", d.verdict)};
  for (const std::string& advice : d.advice) lines.push_back("try           " + advice);
  return lines;
}

nlohmann::ordered_json diagnosis_json(const Diagnosis& d) {
  return {{"kernel", d.kernel},
          {"time_us", d.microseconds},
          {"tensor_percent", d.tensor_percent},
          {"pipes_percent", shares_json(d.pipes)},
          {"memory_percent", shares_json(d.memory)},
          {"l2_hit_percent", d.l2_hit_percent},
          {"bank_conflicts", d.bank_conflicts},
          {"bank_conflicts_percent", d.conflicts_percent},
          {"stalls", shares_json(d.stalls)},
          {"occupancy_percent", d.occupancy_percent},
          {"occupancy_limit_percent", d.occupancy_limit_percent},
          {"occupancy_limiter", d.occupancy_limiter},
          {"waves", d.waves},
          {"registers", d.registers},
          {"shared_kilobytes", d.shared_kilobytes},
          {"bound", to_string(d.bound)},
          {"verdict", d.verdict},
          {"advice", d.advice}};
}

}  // namespace flashcore::bench
