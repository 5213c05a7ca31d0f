// flashcore quantize: makes fp8 tensors and scales of a problem's q, k and v, in the form that `run` reads.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/cases/problem_text.hpp"
#include "bench/device/plan_choice.hpp"
#include "bench/device/quantizer.hpp"
#include "bench/gate/quantization_error.hpp"
#include "bench/io/outputs.hpp"
#include "bench/tensors/quantized.hpp"
#include "bench/text/progress.hpp"
#include "cli/command.hpp"
#include "cli/problem_options.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

using Scales = bench::QuantizeChoice::Scales;

struct QuantizeOptions {
  ProblemOptions problem;
  std::string dtype = "f8e4m3";
  std::string scales = "head";
  bool keep_q = false;
  bool smooth_k = false;
  bool error = false;
  bool check = false;
  bench::PlanChoice where;  // default: the CPU
  std::string out;
};

bench::QuantizeChoice choice_of(const QuantizeOptions& options, const Problem& problem) {
  return {.dtype = options.dtype == "f8e5m2" ? DType::f8e5m2 : DType::f8e4m3,
          .scales = options.scales == "tensor"  ? Scales::tensor
                    : options.scales == "entry" ? Scales::entry
                                                : Scales::head,
          .kv_block = problem.kv_scale_block,
          .keep_q = options.keep_q,
          .smooth_k = options.smooth_k};
}

// Returns the first tensor whose bits differ, or "".
std::string difference(const bench::QuantizedProblem& found, const bench::QuantizedProblem& right) {
  for (const auto& [name, tensor] : right.host.tensors) {
    if (bench::is_output(name)) continue;
    if (!found.host.at(name).same_elements(tensor)) return name + " has other bits than on the CPU";
    if (!found.host.at(name).canaries_intact()) return name + ": memory around it was written";
  }
  if (right.k_mean && !found.k_mean->same_elements(*right.k_mean)) {
    return "k_mean has other bits than on the CPU";
  }
  return {};
}

void print(Session& session, const Problem& before, const Problem& after, bool checked,
           const std::optional<bench::QuantizationError>& error,
           const std::vector<std::string>& written) {
  session.line("problem  " + bench::problem_text(before));
  session.line("becomes  " + bench::problem_text(after));
  if (checked) session.line("check    passed: the bits of the CPU");
  if (error) {
    session.line(fmt::format("error    relative {:.2e}, largest scaled {:.2e}{}",
                             error->relative_error, error->max_scaled_error,
                             before.lse ? fmt::format(", LSE {:.2e}", error->lse_error) : ""));
  }
  for (const std::string& line : written) session.line("wrote    " + line);
  if (!written.empty() && after.kv_scale_block > 0) {
    session.line(fmt::format("         run it with --kv-scale-block {}", after.kv_scale_block));
  }
}

nlohmann::ordered_json json(const Problem& before, const Problem& after,
                            const std::optional<bench::QuantizationError>& error,
                            const std::vector<std::string>& written) {
  nlohmann::ordered_json out = {{"status", "ok"},
                                {"problem", bench::problem_json(before)},
                                {"becomes", bench::problem_json(after)},
                                {"error", nullptr},
                                {"written", written}};
  if (error) {
    out["error"] = {{"relative_error", error->relative_error},
                    {"max_scaled_error", error->max_scaled_error},
                    {"lse_error", before.lse ? nlohmann::ordered_json(error->lse_error) : nullptr}};
  }
  return out;
}

Result<ExitCode> execute_quantize(const QuantizeOptions& options, Session& session) {
  if (options.out.empty() && !options.error && !options.check) {
    return invalid("--out: is missing, wanted a .safetensors file to write (or --error, --check)");
  }
  const Result<std::vector<PlanOptions>> devices = bench::allowed_devices(options.where);
  if (!devices.ok()) return devices.status();
  const PlanOptions& device = devices->front();
  const Result<bench::ProblemInputs> inputs = options.problem.read();
  if (!inputs.ok()) return inputs.status();
  const Problem& problem = inputs->problem;
  if (!options.out.empty()) {
    FLASHCORE_RETURN_IF_ERROR(
        bench::check_input_file("--out", options.out, bench::paths_of(inputs->sources)));
  }
  const bench::QuantizeChoice choice = choice_of(options, problem);
  const int threads = device.threads;
  const Result<Plan> plan = make_plan(problem);  // checks the problem
  if (!plan.ok()) return plan.status();
  const Result<Problem> after = bench::quantized_problem(problem, choice);
  if (!after.ok()) return after.status();
  std::optional<bench::QuantizationError> error;
  std::vector<std::string> written;
  {
    bench::Progress progress(bench::Progress::usual(), "quantize");
    progress.step("reading");
    Result<bench::HostProblem> host = inputs->load();
    if (!host.ok()) return host.status();
    progress.step("quantising");
    Result<bench::QuantizedProblem> narrow =
        bench::quantized(*host, choice, bench::quantizer_on(device));
    if (!narrow.ok()) return narrow.status();
    if (options.check) {
      progress.step("the CPU");
      const Result<bench::QuantizedProblem> same =
          bench::quantized(*host, choice, bench::cpu_quantizer(threads));
      if (!same.ok()) return same.status();
      if (const std::string failure = difference(*narrow, *same); !failure.empty()) {
        session.line("check    " + session.styled("FAILED", bench::Tone::bad) + ": " + failure);
        session.document({{"status", "check_failed"}, {"failure", failure}});
        return ExitCode::check_failed;
      }
    }
    if (options.error) {
      progress.step("the fp64 reference of the inputs");
      const Result<bench::Reference> right = bench::compute_reference(*host, threads, false);
      if (!right.ok()) return right.status();
      progress.step("the fp64 reference of the fp8 inputs");
      const Result<bench::QuantizationError> found =
          bench::quantization_error(*host, *right, *narrow, threads);
      if (!found.ok()) return found.status();
      error = *found;
    }
    if (!options.out.empty()) {
      FLASHCORE_RETURN_IF_ERROR(bench::write_inputs(options.out, narrow->host,
                                                    narrow->k_mean ? &*narrow->k_mean : nullptr,
                                                    options.problem.layout(), written));
    }
  }
  print(session, problem, *after, options.check, error, written);
  session.document(json(problem, *after, error, written));
  return ExitCode::ok;
}

}  // namespace

Command quantize_command() {
  auto options = std::make_shared<QuantizeOptions>();
  options->where.device = "cpu";
  return {
      .name = "quantize",
      .summary = "Make fp8 tensors and their scales of q, k and v, as run reads them",
      .examples =
          "  flashcore quantize attention.safetensors --out fp8.safetensors\n"
          "  flashcore quantize attention.safetensors --kv-scale-block 64 --smooth-k --out "
          "fp8.safetensors\n"
          "  flashcore run fp8.safetensors --kv-scale-block 64\n"
          "  flashcore quantize --q q.npy --k k.npy --v v.npy --keep-q --out cache.safetensors\n"
          "  flashcore quantize attention.safetensors --causal --scales tensor --error",
      .declare =
          [options](OptionSet& set) {
            options->problem.declare(set);
            set.group("Quantisation");
            set.choice("--to", options->dtype, {"f8e4m3", "f8e5m2"}, "Type of the results");
            set.choice(
                "--scales", options->scales, {"tensor", "entry", "head"},
                "What has a scale of its own; of k and v also each --kv-scale-block rows of it "
                "(1: each token)");
            set.flag("--keep-q", options->keep_q, "Leave q as it is: k and v are an fp8 cache");
            set.flag("--smooth-k", options->smooth_k,
                     "Subtract the mean of k over its tokens, which attention does not see; it is "
                     "written as k_mean");
            set.group("Where it runs");
            set.text("--device", options->where.device, "cpu, cuda, cuda:N, sim or sim:N",
                     "DEVICE");
            set.number("--threads", options->where.threads, "CPU threads; 0 means all");
            set.number("--sim-seed", options->where.sim_seed,
                       "Simulated GPU: the order of its threads and blocks");
            set.group("Results");
            set.flag(
                "--check", options->check,
                "Compare with the CPU, bit for bit; on a failure nothing is written, exit code 1");
            set.flag("--error", options->error,
                     "Compute attention of both in fp64, and print how far apart they are");
            set.text(
                "--out,-o", options->out,
                "Write all inputs, q, k and v in fp8: .safetensors; an existing file is replaced",
                "FILE");
          },
      .execute = [options](Session& session) { return execute_quantize(*options, session); }};
}

}  // namespace flashcore::cli
