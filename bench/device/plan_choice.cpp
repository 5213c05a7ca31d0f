#include "bench/device/plan_choice.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "plan/device.hpp"
#include "plan/kernel_names.hpp"
#include "plan/table.hpp"
#include "problem/environment.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

std::string& forced_kernel() {
  static std::string name;
  return name;
}

// "cuda" means cuda:0; nothing for an invalid name.
std::optional<Device> parse_device(std::string_view name) {
  if (name == "cpu") return Device{DeviceKind::cpu, 0};
  const DeviceKind kind = name.starts_with("sim") ? DeviceKind::sim : DeviceKind::cuda;
  const std::string_view prefix = kind == DeviceKind::sim ? "sim" : "cuda";
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  if (name.empty()) return Device{kind, 0};
  if (!name.starts_with(':')) return std::nullopt;
  name.remove_prefix(1);
  int32_t index = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return Device{kind, index};
}

}  // namespace

void take_forced_kernel() {
  if (const char* const name = read_variable("FLASHCORE_KERNEL")) forced_kernel() = name;
  ::unsetenv("FLASHCORE_KERNEL");
}

DeviceInfo info_of(Device device) {
  for (const DeviceInfo& info : devices()) {
    if (info.device.kind == device.kind && info.device.index == device.index) return info;
  }
  return {};
}

std::string to_text(Device device) {
  if (device.kind == DeviceKind::cpu) return "cpu";
  return fmt::format("{}:{}", device.kind == DeviceKind::sim ? "sim" : "cuda", device.index);
}

Result<std::vector<PlanOptions>> allowed_devices(const PlanChoice& choice) {
  if (choice.threads < 0 || choice.threads > std::numeric_limits<int32_t>::max()) {
    return invalid("--threads: is {}, wanted 0 (all) or more", choice.threads);
  }
  if (choice.sim_seed < 0) {
    return invalid("--sim-seed: is {}, wanted 0 or more", choice.sim_seed);
  }
  if (choice.sim_seed > 0 && !simulator_seed()) {
    return unsupported("--sim-seed: is given, wanted a build with -DFLASHCORE_SIMULATOR=ON for it");
  }
  if (choice.sim_seed > 0) seed_simulator(static_cast<uint64_t>(choice.sim_seed));
  std::vector<Device> allowed;
  if (choice.device == "auto") {
    for (const DeviceInfo& info : devices()) {
      if (info.device.kind == DeviceKind::cuda && allowed.empty()) allowed.push_back(info.device);
    }
    allowed.push_back(Device{});
  } else if (const std::optional<Device> device = parse_device(choice.device)) {
    allowed.push_back(*device);
  } else {
    return invalid("--device: is '{}', wanted auto, cpu, cuda, cuda:N, sim or sim:N",
                   choice.device);
  }
  std::vector<PlanOptions> out;
  for (const Device& device : allowed) {
    PlanOptions options;
    options.device = device;
    options.kernel = forced_kernel().empty() ? choice.kernel : forced_kernel();
    options.threads = static_cast<int32_t>(choice.threads);
    options.batch_invariant = choice.batch_invariant;
    options.early_start = choice.early_start;
    options.deterministic = !choice.any_order;
    out.push_back(std::move(options));
  }
  return out;
}

Result<PlanOptions> gpu_plan(const std::string& device) {
  PlanChoice choice;
  choice.device = device;
  const Result<std::vector<PlanOptions>> allowed = allowed_devices(choice);
  if (!allowed.ok()) return allowed.status();
  PlanOptions plan = allowed->front();
  if (plan.device.kind == DeviceKind::cpu) {
    return invalid("--device: is {}, wanted cuda, cuda:N, sim or sim:N", device);
  }
  plan.kernel.clear();
  return plan;
}

Result<Plan> Pass::plan(const PlanOptions& options) const {
  return gradients ? make_backward_plan(problem, *gradients, options) : make_plan(problem, options);
}

Result<std::vector<KernelVerdict>> Pass::explain(const PlanOptions& options) const {
  return gradients ? explain_backward(problem, *gradients, options)
                   : flashcore::explain(problem, options);
}

Result<ChosenPlan> choose_plan(const Pass& pass, const PlanChoice& choice) {
  const Result<std::vector<PlanOptions>> allowed = allowed_devices(choice);
  if (!allowed.ok()) return allowed.status();
  std::string note;
  for (size_t i = 0; i < allowed->size(); ++i) {
    const PlanOptions& options = (*allowed)[i];
    Result<Plan> plan = pass.plan(options);
    if (plan.ok()) {
      return ChosenPlan{info_of(options.device), options, std::move(*plan), std::move(note)};
    }
    if (i + 1 == allowed->size()) return plan.status();
    note += fmt::format("{}{}: {}", note.empty() ? "" : "; ", to_text(options.device),
                        plan.status().message());
  }
  return unsupported("device: there is none, wanted one");
}

namespace {

bool has_backward(const std::string& name) {
  const Variant* const variant = find_variant(name);
  return variant != nullptr && variant->backward.plan;
}

// What a kernel that was asked for by name says: as explain has it, but of a config, or of a kernel
// without a plain variant, as planning has it.
Result<KernelVerdict> verdict_on(const std::string& asked,
                                 const std::vector<KernelVerdict>& verdicts, const Pass& pass,
                                 PlanOptions options) {
  const std::string name = present_name(asked);
  for (const KernelVerdict& one : verdicts) {
    if (one.kernel == name) return one;
  }
  options.kernel = name;
  const Result<Plan> plan = pass.plan(options);
  KernelVerdict verdict{.kernel = name, .refusal = {}, .automatic = false};
  if (plan.ok()) return verdict;
  const bool is_known = std::any_of(variants().begin(), variants().end(), [&](const Variant& one) {
    return runs_on(one, options.device.kind) && kernel_part(one.name) == kernel_part(name);
  });
  if (!is_known) return plan.status();
  verdict.refusal = plan.status().message();
  return verdict;
}

}  // namespace

Result<std::vector<KernelVerdict>> kernels_under_test(const Pass& pass, const PlanOptions& options,
                                                      bool all, std::vector<std::string> names) {
  Result<std::vector<KernelVerdict>> verdicts = pass.explain(options);
  if (!verdicts.ok()) return verdicts.status();
  if (pass.gradients) {
    std::erase_if(*verdicts, [](const KernelVerdict& one) { return !has_backward(one.kernel); });
  }
  std::vector<KernelVerdict> tested;
  if (names.empty() && !options.kernel.empty()) names.push_back(options.kernel);
  for (const std::string& name : names) {
    Result<KernelVerdict> verdict = verdict_on(name, *verdicts, pass, options);
    if (!verdict.ok()) return verdict.status();
    tested.push_back(std::move(*verdict));
  }
  if (!tested.empty()) return tested;
  const auto select = [&](const auto& wanted) {
    std::copy_if(verdicts->begin(), verdicts->end(), std::back_inserter(tested), wanted);
  };
  select([all](const KernelVerdict& one) {
    return one.kernel != "reference" && one.kernel != "naive" && (all || one.automatic);
  });
  if (tested.empty()) {
    select([](const KernelVerdict& one) { return one.kernel == "reference"; });
  }
  return tested;
}

}  // namespace flashcore::bench
