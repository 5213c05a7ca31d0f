#include "plan/tuned_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "plan/forward_choice.hpp"
#include "plan/kernel_choice.hpp"
#include "plan/kernel_names.hpp"
#include "plan/source_fingerprints.hpp"
#include "plan/table.hpp"
#include "problem/environment.hpp"

namespace flashcore {
namespace {

using tuning::TunedDevice, tuning::TunedEntry, tuning::TunedTable;

constexpr const char* kVariable = "FLASHCORE_TUNING";
constexpr std::string_view kNone = "none";

constexpr std::string_view kShipped = "of the library";

// A device's entries, as they were found.
struct Found {
  struct Entry {
    const TunedEntry* entry;
    std::string_view place;
  };
  TunedTable table, shipped;
  std::unordered_map<std::string, Entry> by_key;
  TuningSource source;
};

std::string environment(const char* name) {
  const char* const value = read_variable(name);
  return value == nullptr ? "" : value;
}

std::string cache_folder() {
  // The XDG specification: a relative path is not to be used.
  const std::string cache = environment("XDG_CACHE_HOME");
  if (cache.starts_with('/')) return cache + "/flashcore";
  const std::string home = environment("HOME");
  return home.starts_with('/') ? home + "/.cache/flashcore" : "";
}

std::string path_for(const TunedDevice& device, const std::string& asked) {
  std::error_code ignored;
  if (asked == kNone) return {};
  if (asked.empty()) {
    const std::string folder = cache_folder();
    return folder.empty() ? folder : folder + "/" + file_name(device);
  }
  return std::filesystem::is_directory(asked, ignored) ? asked + "/" + file_name(device) : asked;
}

const Variant* variant_of(const TunedEntry& entry) {
  return find_variant(present_name(entry.kernel));
}

bool has_current_source(const TunedEntry& entry) {
  const Variant* const kernel = variant_of(entry);
  return kernel != nullptr && entry.fingerprint == source_fingerprint(*kernel);
}

// What was measured here goes before what the library has, unless only that is of these sources.
void index(Found& found) {
  for (const auto& [key, entry] : found.shipped.entries) {
    found.by_key.emplace(key, Found::Entry{&entry, kShipped});
  }
  for (const auto& [key, entry] : found.table.entries) {
    const auto known = found.by_key.find(key);
    const bool is_better = known == found.by_key.end() || has_current_source(entry) ||
                           !has_current_source(*known->second.entry);
    if (is_better) found.by_key.insert_or_assign(key, Found::Entry{&entry, found.source.place});
  }
  found.source.entries = found.by_key.size();
}

std::shared_ptr<const Found> load(const TunedDevice& device, const std::string& asked) {
  auto found = std::make_shared<Found>();
  if (asked.empty()) found->shipped = tuning::shipped_table(device);
  if (!found->shipped.entries.empty()) found->source.place = kShipped;
  const std::string path = path_for(device, asked);
  if (path.empty()) {
    index(*found);
    return found;
  }
  Result<tuning::ReadTable> read = tuning::read_table(path);
  if (!read.ok()) {
    found->source.problem = read.status().message();
  } else if (!read->is_there) {
    if (!asked.empty() && path == asked) {
      found->source.problem =
          fmt::format("{}: is not there, wanted a table of `flashcore tune`", path);
    }
  } else if (!(read->table.device == device)) {
    found->source.problem = fmt::format(
        "{}: is for {} with {} SMs, wanted a table for {} with {}", path, read->table.device.name,
        read->table.device.multiprocessors, device.name, device.multiprocessors);
  } else {
    found->table = std::move(read->table);
    found->source.place = path;
  }
  index(*found);
  return found;
}

// Every device's table, each looked for once.
class Tables {
 public:
  std::shared_ptr<const Found> of(const DeviceInfo& device) {
    const TunedDevice wanted = tuning::tuned_device(device);
    const char* const asked = read_variable(kVariable);
    const std::lock_guard lock(mutex_);
    for (const Known& one : known_) {
      if (one.device == wanted && one.asked == (asked == nullptr ? "" : asked)) return one.found;
    }
    Known& added = known_.emplace_back(
        Known{.device = wanted, .asked = asked == nullptr ? "" : asked, .found = nullptr});
    added.found = load(added.device, added.asked);
    return added.found;
  }

  void forget() {
    const std::lock_guard lock(mutex_);
    known_.clear();
  }

 private:
  struct Known {
    TunedDevice device;
    std::string asked;
    std::shared_ptr<const Found> found;
  };
  std::mutex mutex_;
  std::vector<Known> known_;
};

Tables& tables() {
  static Tables* const all = new Tables;  // threads may plan while the process ends
  return *all;
}

// Why an entry is not used for the problem, or empty.
template <class AnyProblem>
std::string objection(const TunedEntry& entry, const AnyProblem& problem,
                      const PlanContext& context, const Variant& standing) {
  const Variant* const kernel = variant_of(entry);
  if (kernel == nullptr || !runs_on(*kernel, context.device.device.kind))
    return "this build has no such kernel";
  if (!kernel->automatic && !kernel->tunable) return "it runs only when asked for by name";
  if (entry.fingerprint != source_fingerprint(*kernel)) return "its source has changed since";
  if (std::string refusal = refusal_of(*kernel, problem, context); !refusal.empty()) {
    return "it does not compute this problem: " + refusal;
  }
  if (std::string why = only_by_name(*kernel, problem, context); !why.empty()) return why;
  const std::string before = asked_name(entry.default_kernel).name;
  if (!entry.is_default && standing.name != before && &standing != kernel) {
    return fmt::format("that was ahead of {}, and the default is {} now", before, standing.name);
  }
  if (entry.config.empty()) return {};
  return refuse_config(*kernel, problem, context, entry.config);
}

template <class AnyProblem>
TunedChoice choice_of(const AnyProblem& problem, const PlanContext& context,
                      const Variant& standing) {
  TunedChoice choice;
  // A simulated GPU has the name of one that is not.
  if (context.device.device.kind == DeviceKind::sim || context.device.name.empty()) return choice;
  const std::shared_ptr<const Found> found = tables().of(context.device);
  if (found->by_key.empty()) return choice;
  const std::string key = tuning::tuned_key(problem, context);
  const auto at = key.empty() ? found->by_key.end() : found->by_key.find(key);
  if (at == found->by_key.end()) return choice;
  const TunedEntry& entry = *at->second.entry;
  const std::string_view place = at->second.place;
  choice.named = present_name(entry.kernel);
  const std::string name = with_config(choice.named, entry.config);
  if (const std::string why = objection(entry, problem, context, standing); !why.empty()) {
    choice.reason = fmt::format("the tuning table {} names {}, but {}: not used",
                                found->source.place, name, why);
    return choice;
  }
  const Variant& kernel = *variant_of(entry);
  const std::string when = entry.measured.empty() ? "" : " on " + entry.measured;
  std::string said;
  if (!entry.is_default) {
    choice.kernel = &kernel;
    choice.config = entry.config;
    const double gain = entry.us > 0 ? 100 * (entry.default_us / entry.us - 1) : 0;
    said = fmt::format("{} was {:.0f}% ahead of {}, measured{}", name, gain,
                       present_name(entry.default_kernel), when);
  } else if (&kernel == &standing) {
    said = fmt::format("none was ahead of {} by more than 2% and noise, measured{}", name, when);
  } else {
    return TunedChoice{};  // the default is another one by now, and it says nothing about that
  }
  if (const std::string_view now = compiler_of(kernel); entry.compiler != now) {
    said += fmt::format(", tuned with another compiler ({}, now {})", entry.compiler, now);
  }
  choice.reason = fmt::format("{} (tuning table {})", said, place);
  return choice;
}

}  // namespace

TunedChoice tuned_choice(const ForwardProblem& problem, const PlanContext& context,
                         const Variant& standing) {
  return choice_of(problem, context, standing);
}

TunedChoice tuned_choice(const BackwardProblem& problem, const PlanContext& context,
                         const Variant& standing) {
  return choice_of(problem, context, standing);
}

TuningSource tuning_source(const DeviceInfo& device) { return tables().of(device)->source; }

TunedTable tuned_table(const DeviceInfo& device) {
  const std::shared_ptr<const Found> found = tables().of(device);
  TunedTable table{.device = tuning::tuned_device(device), .entries = {}};
  for (const auto& [key, one] : found->by_key) table.entries.emplace(key, *one.entry);
  return table;
}

std::string tuning_path(const DeviceInfo& device) {
  return path_for(tuning::tuned_device(device), environment(kVariable));
}

bool is_current(const TunedEntry& entry) {
  return has_current_source(entry) && entry.compiler == compiler_of(*variant_of(entry));
}

void reload_tuning() { tables().forget(); }

}  // namespace flashcore
