// The measurements of `flashcore tune` on one device model: a JSON file, and functions that read,
// write and merge it. src/plan/tuned_choice.hpp looks kernels up in it.
//
//   {"schema": "flashcore-tuning", "version": 1,
//    "device": {"name": "NVIDIA H200", "compute_capability": 90, "multiprocessors": 132},
//    "entries": [{"key": "forward bf16 d128 causal q2048 kv2048 bh64", "kernel": ..., ...}, ...]}
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "flashcore/flashcore.hpp"
#include "kernel/kernel.hpp"

namespace flashcore::tuning {

// The device of a table. For a CPU: compute capability 0, and the number of hardware threads.
struct TunedDevice {
  std::string name;
  int64_t compute_capability = 0, multiprocessors = 0;

  bool operator==(const TunedDevice&) const = default;
};

TunedDevice tuned_device(const DeviceInfo& device);

// The file name of a device's table: "nvidia_h200_sm90_132.json", "amd_epyc_9b14_cpu_64.json".
std::string file_name(const TunedDevice& device);

struct TunedEntry {
  std::string kernel, config;         // the fastest; config: as in Kernel::candidates
  bool is_default = false;            // the default is the fastest: the choice stays free
  std::string fingerprint, compiler;  // hash of the kernel's sources, and their compiler
  double us = 0, default_us = 0;      // medians
  double noise = 0;                   // relative noise of their ratio
  std::string default_kernel;         // with its config, as in PlanOptions::kernel
  std::string measured;               // date
  std::vector<std::string> problems;  // descriptions of the measured problems

  bool operator==(const TunedEntry&) const = default;
};

struct TunedTable {
  TunedDevice device;
  std::map<std::string, TunedEntry, std::less<>> entries;  // key to entry
};

// Problems with the same key share an entry. Lengths, and the product of batch and heads, are in
// steps of half a power of two, centred on powers of two. The threads of a CPU are not part of the
// key, because they do not change the bits. Empty for a problem that no table decides: one without
// rows, or one whose choice must not depend on the batch.
std::string tuned_key(const ForwardProblem& problem, const PlanContext& context);
std::string tuned_key(const BackwardProblem& problem, const PlanContext& context);

// The middle of the step that contains a length.
int64_t bucket_of(int64_t length);

// Limits of a table: files are hostile.
inline constexpr size_t kMostTableBytes = size_t{8} << 20;
inline constexpr size_t kMostEntries = 20000;
inline constexpr size_t kMostProblems = 8;  // per entry
inline constexpr size_t kMostText = 300;

// An error names the place, its value and what is wanted.
Result<TunedTable> parse_table(std::string_view text);
std::string table_text(const TunedTable& table);

// Reads a regular file. is_there is false if there is no file.
struct ReadTable {
  TunedTable table;
  bool is_there = false;
};
Result<ReadTable> read_table(const std::string& path);

// The table for a device that ships with the library; empty if there is none.
TunedTable shipped_table(const TunedDevice& device);

// Adds a measurement of one problem. It replaces an earlier entry that is for this problem only, or
// for other code (`is_current` is false). An entry with other problems of the key takes it in if
// both have the same fastest kernel; otherwise the default stays, and `fallback` is its entry.
void merge(TunedTable& table, const std::string& key, const TunedEntry& measured,
           const TunedEntry& fallback, bool is_current);

}  // namespace flashcore::tuning
