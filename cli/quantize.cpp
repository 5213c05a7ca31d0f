// flashcore quantize: fp8 tensors and scales of a problem's q, k and v, in the form that `run` reads.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/cases/problem_text.hpp"
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

struct Options {
  ProblemOptions problem;
  std::string dtype = "f8e4m3";
  std::string scales = "head";
  bool keep_q = false;
  bool smooth_k = false;
  bool error = false;
  int64_t threads = 0;
  std::string out;
};

bench::QuantizeChoice choice_of(const Options& options, const Problem& problem) {
  return {.dtype = options.dtype == "f8e5m2" ? DType::f8e5m2 : DType::f8e4m3,
          .scales = options.scales == "tensor"  ? Scales::tensor
                    : options.scales == "entry" ? Scales::entry
                                                : Scales::head,
          .kv_block = problem.kv_scale_block,
          .keep_q = options.keep_q,
          .smooth_k = options.smooth_k};
}

void print(Session& session, const Problem& before, const Problem& after,
           const std::optional<bench::QuantizationError>& error,
           const std::vector<std::string>& written) {
  session.line("problem  " + bench::problem_text(before));
  session.line("becomes  " + bench::problem_text(after));
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

Result<ExitCode> execute(const Options& options, Session& session) {
  if (options.out.empty() && !options.error) {
    return invalid("--out: is missing, wanted a .safetensors file to write (or --error)");
  }
  if (options.threads < 0 || options.threads > 4096) {
    return invalid("--threads: is {}, wanted 0 (all) to 4096", options.threads);
  }
  const Result<bench::ProblemInputs> inputs = options.problem.read();
  if (!inputs.ok()) return inputs.status();
  const Problem& problem = inputs->problem;
  if (!options.out.empty()) {
    FLASHCORE_RETURN_IF_ERROR(
        bench::check_input_file("--out", options.out, bench::paths_of(inputs->sources)));
  }
  const bench::QuantizeChoice choice = choice_of(options, problem);
  const auto threads = static_cast<int>(options.threads);
  const Result<Plan> plan = make_plan(problem);  // that the problem makes sense
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
    Result<bench::QuantizedProblem> narrow = bench::quantized(*host, choice, threads);
    if (!narrow.ok()) return narrow.status();
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
  print(session, problem, *after, error, written);
  session.document(json(problem, *after, error, written));
  return ExitCode::ok;
}

}  // namespace

Command quantize_command() {
  auto options = std::make_shared<Options>();
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
            set.number("--threads", options->threads, "CPU threads; 0: all");
            set.group("Results");
            set.flag("--error", options->error,
                     "Compute attention of both in fp64, and print how far apart they are");
            set.text(
                "--out,-o", options->out,
                "Write all inputs, q, k and v in fp8: .safetensors; an existing file is replaced",
                "FILE");
          },
      .execute = [options](Session& session) { return execute(*options, session); }};
}

}  // namespace flashcore::cli
