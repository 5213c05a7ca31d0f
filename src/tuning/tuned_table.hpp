// What `flashcore tune` measured on one device model: a JSON file, and how it is read, written and
// merged. src/plan/tuned_choice.hpp looks kernels up in it.
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

// What a table is of. Of a CPU: compute capability 0, and its hardware threads.
struct TunedDevice {
  std::string name;
  int64_t compute_capability = 0, multiprocessors = 0;

  bool operator==(const TunedDevice&) const = default;
};

TunedDevice tuned_device(const DeviceInfo& device);

// Of a table in a folder: "nvidia_h200_sm90_132.json", "amd_epyc_9b14_cpu_64.json".
std::string file_name(const TunedDevice& device);

struct TunedEntry {
  std::string kernel, config;         // the fastest; config: as in Kernel::candidates
  bool is_default = false;            // it is what would run without a table: the choice stays free
  std::string fingerprint, compiler;  // of the kernel's sources, and what compiled it
  double us = 0, default_us = 0;      // medians
  double noise = 0;                   // relative, of the ratio of both
  std::string default_kernel;         // with its config, as PlanOptions::kernel has it
  std::string measured;               // when
  std::vector<std::string> problems;  // that were measured, in words

  bool operator==(const TunedEntry&) const = default;
};

struct TunedTable {
  TunedDevice device;
  std::map<std::string, TunedEntry, std::less<>> entries;  // by key
};

// Problems that share a key share an entry. Lengths and the product of batch and heads are in steps
// of half a power of two, of which powers of two are the middle. The threads of a CPU are not in it:
// bits are the same at any number of them. Empty for a problem that no table
// decides: one without rows, or a choice that must not go by the batch.
std::string tuned_key(const ForwardProblem& problem, const PlanContext& context);
std::string tuned_key(const BackwardProblem& problem, const PlanContext& context);

// The middle of the step that a length is in.
int64_t bucket_of(int64_t length);

// What a table is held to: files are hostile.
inline constexpr size_t kMostTableBytes = size_t{8} << 20;
inline constexpr size_t kMostEntries = 20000;
inline constexpr size_t kMostProblems = 8;  // of an entry
inline constexpr size_t kMostText = 300;

// A status names the place, its value and what is wanted.
Result<TunedTable> parse_table(std::string_view text);
std::string table_text(const TunedTable& table);

// A regular file. Nothing is found where there is none: NotThere is then true.
struct ReadTable {
  TunedTable table;
  bool is_there = false;
};
Result<ReadTable> read_table(const std::string& path);

// The table of a device that the library has itself; empty where it has none.
TunedTable shipped_table(const TunedDevice& device);

// Adds a measurement of one problem. It replaces what was known of this problem alone, or of other
// code (`is_current` is false). Beside other problems of the key it joins them where they have the
// same fastest kernel; where not, the default stays, and `fallback` is its entry.
void merge(TunedTable& table, const std::string& key, const TunedEntry& measured,
           const TunedEntry& fallback, bool is_current);

}  // namespace flashcore::tuning
