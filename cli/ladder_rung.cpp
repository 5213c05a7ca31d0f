#include "cli/ladder_rung.hpp"

#include <cstdint>
#include <cstdio>
#include <memory>

#include "bench/cases/fp8_problem.hpp"
#include "bench/process/sanitizer.hpp"
#include "bench/run/prepared_kernel.hpp"
#include "bench/text/terminal.hpp"
#include "cli/session.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

using cuda::ladder::Rung;
using cuda::ladder::RungInput;

Status run_small(const Rung& rung, Device device) {
  for (const int64_t head_dim : {64, 128}) {
    for (const bool causal : {false, true}) {
      bench::Case shape{.name = "small", .batch = 1};
      shape.heads_q = shape.heads_kv = 2;
      shape.seqlen_q = 80;
      shape.seqlen_kv = 112;
      shape.head_dim = head_dim;
      shape.causal = causal;
      const Result<std::unique_ptr<bench::PreparedKernel>> prepared =
          bench::PreparedKernel::make(rung.name, rung_problem(rung, shape), device);
      if (!prepared.ok()) return prepared.status();
      FLASHCORE_RETURN_IF_ERROR((*prepared)->call()(Stream{}));
      FLASHCORE_RETURN_IF_ERROR((*prepared)->finish());
    }
  }
  return {};
}

}  // namespace

DType input_of(const Rung& rung) {
  return rung.input == RungInput::fp16 ? DType::f16 : DType::f8e4m3;
}

Problem rung_problem(const Rung& rung, const bench::Case& shape) {
  const Problem problem = bench::to_problem(shape);
  return rung.input == RungInput::fp8_e4m3 ? bench::with_fp8_inputs(problem) : problem;
}

Result<ExitCode> run_rungs_once(const std::vector<Rung>& rungs, Device device) {
  bool failed = false;
  for (const Rung& rung : rungs) {
    bench::write_text(stdout, bench::sanitizer_mark(rung.name, true) + "\n");
    std::fflush(stdout);
    const Status status = run_small(rung, device);
    if (!status.ok()) bench::write_text(stdout, "========= flashcore: " + status.message() + "\n");
    if (status.ok()) bench::write_text(stdout, bench::sanitizer_mark(rung.name, false) + "\n");
    std::fflush(stdout);
    failed = failed || !status.ok();
  }
  return failed ? ExitCode::check_failed : ExitCode::ok;
}

}  // namespace flashcore::cli
