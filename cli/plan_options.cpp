#include "cli/plan_options.hpp"

namespace flashcore::cli {

void declare_plan_choice(OptionSet& options, bench::PlanChoice& choice,
                         const std::string& more_devices) {
  options.group("Where it runs");
  options.text("--device", choice.device,
               "auto (the best available), cpu, cuda, cuda:N, sim or sim:N" + more_devices,
               "DEVICE");
  options.text("--kernel", choice.kernel, "Run this kernel (`flashcore explain` lists them)",
               "NAME");
  options.number("--threads", choice.threads, "CPU threads; 0 means all");
  options.flag("--batch-invariant", choice.batch_invariant,
               "A row's bits do not depend on what else is in the batch");
  options.flag("--early-start", choice.early_start,
               "GPU: a call may start before the previous one has ended");
  options.number("--sim-seed", choice.sim_seed,
                 "Simulated GPU: the order of its threads, blocks and copies");
}

}  // namespace flashcore::cli
