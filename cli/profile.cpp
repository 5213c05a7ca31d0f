// flashcore profile: runs one call of a kernel under ncu, and reports what limits it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/cases/cases.hpp"
#include "bench/device/plan_choice.hpp"
#include "bench/device/profiled_call.hpp"
#include "bench/evidence/evidence_file.hpp"
#include "bench/process/child_process.hpp"
#include "bench/report/diagnosis.hpp"
#include "bench/text/numbers.hpp"
#include "cli/command.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

struct ProfileOptions {
  std::string kernel;
  std::string shape = "2,8,2048,64";
  std::string dtype;  // empty: f16, or f8e4m3 if the kernel needs it
  std::string device = "cuda:0";
  std::string out;
  std::string from;  // recorded output of the profiler to read instead of running
  bool causal = false;
  bool inside = false;
};

Result<bench::Case> case_of(const ProfileOptions& options) {
  const Result<std::vector<int64_t>> sizes =
      bench::parse_numbers("--shape", options.shape, 4, "B,H,S,D");
  if (!sizes.ok()) return sizes.status();
  const std::string name = !options.dtype.empty()                            ? options.dtype
                           : options.kernel.find("fp8") != std::string::npos ? "f8e4m3"
                                                                             : "f16";
  const std::optional<DType> dtype = dtype_from_string(name);
  if (!dtype) return invalid("--dtype: is '{}', wanted f16, bf16 or f8e4m3", name);
  bench::Case one = bench::square_case("profile", *dtype, (*sizes)[0], (*sizes)[1], (*sizes)[2],
                                       (*sizes)[3], options.causal);
  one.scales = *dtype == DType::f8e4m3;
  return one;
}

Result<PlanOptions> plan_options(const ProfileOptions& options) {
  Result<PlanOptions> plan = bench::gpu_plan(options.device);
  if (plan.ok()) plan->kernel = options.kernel;
  return plan;
}

// The child that is profiled.
Status run_inside(const ProfileOptions& options) {
  const Result<bench::Case> one = case_of(options);
  if (!one.ok()) return one.status();
  const Result<PlanOptions> plan = plan_options(options);
  if (!plan.ok()) return plan.status();
  bench::HostProblem host = bench::fill(*one, 0);
  return bench::run_profiled(host, *plan);
}

Result<std::string> profiler_output(const ProfileOptions& options) {
  if (!options.from.empty()) {
    const Result<bench::ChildOutput> text =
        bench::run_child({"cat", "--", options.from}, {.errors = true});
    if (!text.ok()) return text.status();
    if (text->exit_status != 0) return invalid("--from: {} cannot be read", options.from);
    return text->text;
  }
  if (!bench::on_path("ncu")) {
    return unsupported("ncu: is not on PATH; the profiler comes with Nsight Compute");
  }
  // Checks here what the child would refuse, to give one message.
  const Result<bench::Case> one = case_of(options);
  if (!one.ok()) return one.status();
  const Result<PlanOptions> choice = plan_options(options);
  if (!choice.ok()) return choice.status();
  const Result<Plan> plan = make_plan(bench::to_problem(*one), *choice);
  if (!plan.ok()) return plan.status();
  const Result<std::string> program = bench::this_program();
  if (!program.ok()) return program.status();
  std::vector<std::string> words = {"ncu",
                                    "--csv",
                                    "--print-units",
                                    "base",
                                    "--clock-control",
                                    "none",
                                    "--profile-from-start",
                                    "off",
                                    "--metrics",
                                    fmt::format("{}", fmt::join(bench::profiler_metrics(), ",")),
                                    *program,
                                    "profile",
                                    options.kernel,
                                    "--inside",
                                    "--shape",
                                    options.shape,
                                    "--device",
                                    options.device};
  if (!options.dtype.empty()) words.insert(words.end(), {"--dtype", options.dtype});
  if (options.causal) words.emplace_back("--causal");
  Result<bench::ChildOutput> output = bench::run_child(words, {.errors = true, .own_group = false});
  if (!output.ok()) return output.status();
  if (output->exit_status != 0) {
    return Status(
        StatusCode::device_error,
        fmt::format("ncu: ended with {}: {}", output->exit_status, output->text.substr(0, 600)));
  }
  return std::move(output->text);
}

Result<ExitCode> execute_profile(const ProfileOptions& options, Session& session) {
  if (options.kernel.empty()) {
    return invalid("VARIANT: is missing, wanted a kernel's name (explain shows them)");
  }
  if (options.inside) {
    FLASHCORE_RETURN_IF_ERROR(run_inside(options));
    return ExitCode::ok;
  }
  const Result<std::string> output = profiler_output(options);
  if (!output.ok()) return output.status();
  const Result<std::vector<bench::KernelCounters>> launches = bench::parse_profiler_csv(*output);
  if (!launches.ok()) return launches.status();
  nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
  session.line(
      fmt::format("{} on [{}]{}", options.kernel, options.shape, options.causal ? ", causal" : ""));
  for (const bench::KernelCounters& launch : *launches) {
    const bench::Diagnosis diagnosis = bench::diagnose(launch);
    session.line();
    for (const std::string& line : bench::diagnosis_lines(diagnosis)) session.line(line);
    nlohmann::ordered_json item = bench::diagnosis_json(diagnosis);
    item["counters"] = launch.values;
    kernels.push_back(std::move(item));
  }
  const nlohmann::ordered_json document = {{"variant", options.kernel},
                                           {"shape", options.shape},
                                           {"causal", options.causal},
                                           {"kernels", kernels}};
  if (!options.out.empty()) {
    FLASHCORE_RETURN_IF_ERROR(bench::write_json(options.out, document));
  }
  session.document(document);
  return ExitCode::ok;
}

}  // namespace

Command profile_command() {
  auto options = std::make_shared<ProfileOptions>();
  return {.name = "profile",
          .summary = "Say what limits a kernel, from profiler counters",
          .examples =
              "  flashcore profile 07_xor_swizzle\n"
              "  flashcore profile 15_wgmma_tma --shape 2,8,2048,128 --causal --out profile.json\n"
              "  flashcore profile 12_mma_sync --from recorded.csv",
          .declare =
              [options](OptionSet& set) {
                set.group("What is profiled");
                set.positional("VARIANT", options->kernel,
                               "Name of a kernel; see flashcore explain");
                set.text("--shape", options->shape, "Shape of a square problem", "B,H,S,D");
                set.flag("--causal", options->causal, "With a causal mask");
                set.text("--dtype", options->dtype,
                         "Type of the inputs; by default what the kernel reads", "TYPE");
                set.text("--device", options->device, "cuda or cuda:N", "DEVICE");
                set.text("--from", options->from, "A recorded ncu --csv output, instead of a run",
                         "FILE");
                set.text("--out", options->out, "Where the diagnosis is written as JSON", "FILE");
                set.flag("--inside", options->inside, "One call and no profiler: what ncu runs");
              },
          .execute = [options](Session& session) { return execute_profile(*options, session); }};
}

}  // namespace flashcore::cli
