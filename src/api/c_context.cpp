// The C interface of context parallelism.
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "api/guarded.hpp"
#include "api/live_handles.hpp"
#include "api/sized_struct.hpp"
#include "flashcore/context_parallel.hpp"
#include "flashcore/flashcore.h"
#include "problem/status.hpp"

using flashcore::ContextBlock;
using flashcore::ContextCall;
using flashcore::ContextPiece;
using flashcore::ContextPlan;
using flashcore::ContextProblem;
using flashcore::ContextStep;
using flashcore::invalid;
using flashcore::Result;
using flashcore::Status;
using flashcore::api::check_output;
using flashcore::api::guarded;

struct flashcore_context_plan {
  ContextPlan plan;
};

namespace {

// The interface hands these out as arrays of numbers.
static_assert(sizeof(ContextPiece) == 4 * sizeof(int64_t));
static_assert(sizeof(ContextBlock) == 5 * sizeof(int64_t));

using Live = flashcore::api::LiveHandles<flashcore_context_plan>;

Status read_lengths(std::string_view name, const int64_t* lengths, int64_t count,
                    std::vector<int64_t>& out) {
  constexpr int64_t kMost = int64_t{1} << 28;
  if (count < 0 || count > kMost) return invalid("documents: is {}, wanted 1 to 2^28", count);
  if (lengths == nullptr) return invalid("{}: pointer is null, wanted {} lengths", name, count);
  out.assign(lengths, lengths + count);
  return {};
}

Result<ContextProblem> read_problem(const flashcore_context_problem* from) {
  auto c = flashcore::api::default_struct<flashcore_context_problem>();
  FLASHCORE_RETURN_IF_ERROR(flashcore::api::read_sized(from, c));
  ContextProblem problem;
  FLASHCORE_RETURN_IF_ERROR(read_lengths("seqlens_q", c.seqlens_q, c.documents, problem.seqlens_q));
  FLASHCORE_RETURN_IF_ERROR(
      read_lengths("seqlens_kv", c.seqlens_kv, c.documents, problem.seqlens_kv));
  FLASHCORE_RETURN_IF_ERROR(flashcore::api::read_flag("causal", c.causal, problem.causal));
  problem.world = c.world;
  problem.rank = c.rank;
  problem.layout = static_cast<flashcore::ContextLayout>(c.layout);
  problem.algorithm = static_cast<flashcore::ContextAlgorithm>(c.algorithm);
  problem.alignment = static_cast<flashcore::Alignment>(c.alignment);
  problem.window_left = c.window_left;
  problem.window_right = c.window_right;
  problem.batch = c.batch;
  problem.heads_q = c.heads_q;
  problem.heads_kv = c.heads_kv;
  problem.head_dim_qk = c.head_dim_qk;
  problem.head_dim_v = c.head_dim_v;
  problem.element_bytes = c.element_bytes;
  problem.link_bytes_per_second = c.link_bytes_per_second;
  problem.flops_per_second = c.flops_per_second;
  return problem;
}

// Calls body(plan) if there is such a plan.
template <class Body>
flashcore_status with_plan(const flashcore_context_plan* plan, const Body& body) {
  return guarded([&]() -> Status {
    const auto live = Live::of_process().find(plan);
    if (live == nullptr) {
      return invalid("plan: {} is no plan, wanted one of flashcore_context_plan_create",
                     static_cast<const void*>(plan));
    }
    return body(live->plan);
  });
}

template <class T>
Status check_index(std::string_view name, int64_t index, const std::vector<T>& of) {
  if (index >= 0 && static_cast<uint64_t>(index) < of.size()) return {};
  return invalid("{}: is {}, wanted 0 to {}", name, index, static_cast<int64_t>(of.size()) - 1);
}

template <class T>
const int64_t* numbers(const std::vector<T>& of) {
  return reinterpret_cast<const int64_t*>(of.data());
}

template <class T>
int64_t count(const std::vector<T>& of) {
  return static_cast<int64_t>(of.size());
}

}  // namespace

template <>
flashcore_context_problem flashcore::api::default_struct() {
  const ContextProblem defaults;
  flashcore_context_problem c = {};
  c.world = defaults.world;
  c.layout = static_cast<int32_t>(defaults.layout);
  c.alignment = static_cast<int32_t>(defaults.alignment);
  c.window_left = defaults.window_left;
  c.window_right = defaults.window_right;
  c.batch = defaults.batch;
  c.heads_q = defaults.heads_q;
  c.heads_kv = defaults.heads_kv;
  c.head_dim_qk = defaults.head_dim_qk;
  c.head_dim_v = defaults.head_dim_v;
  c.element_bytes = defaults.element_bytes;
  c.link_bytes_per_second = defaults.link_bytes_per_second;
  c.flops_per_second = defaults.flops_per_second;
  return c;
}

flashcore_status flashcore_context_problem_init(flashcore_context_problem* problem,
                                                size_t struct_size) {
  return guarded([&] { return flashcore::api::init_sized(problem, struct_size); });
}

flashcore_status flashcore_context_plan_create(const flashcore_context_problem* problem,
                                               flashcore_context_plan** plan) {
  return guarded([&]() -> Status {
    FLASHCORE_RETURN_IF_ERROR(check_output("plan", plan));
    *plan = nullptr;
    const Result<ContextProblem> what = read_problem(problem);
    if (!what.ok()) return what.status();
    Result<ContextPlan> made = flashcore::make_context_plan(*what);
    if (!made.ok()) return made.status();
    auto kept = std::make_shared<flashcore_context_plan>();
    kept->plan = std::move(*made);
    *plan = Live::of_process().add(std::move(kept));
    return {};
  });
}

void flashcore_context_plan_destroy(flashcore_context_plan* plan) {
  Live::of_process().remove(plan);
}

flashcore_status flashcore_context_plan_info(const flashcore_context_plan* plan,
                                             flashcore_context_info* info) {
  return with_plan(plan, [&](const ContextPlan& of) {
    flashcore_context_info c = {};
    c.algorithm = static_cast<int32_t>(of.algorithm);
    c.initialise = of.initialise ? 1 : 0;
    c.rows_q = of.rows_q;
    c.rows_kv = of.rows_kv;
    c.steps = count(of.steps);
    c.num_pieces_q = count(of.pieces_q);
    c.num_pieces_kv = count(of.pieces_kv);
    c.pieces_q = numbers(of.pieces_q);
    c.pieces_kv = numbers(of.pieces_kv);
    c.ring_seconds = of.seconds[0];
    c.all_gather_seconds = of.seconds[1];
    c.ulysses_seconds = of.seconds[2];
    return flashcore::api::write_sized(c, info);
  });
}

flashcore_status flashcore_context_plan_step(const flashcore_context_plan* plan, int64_t step,
                                             flashcore_context_step* info) {
  return with_plan(plan, [&](const ContextPlan& of) -> Status {
    FLASHCORE_RETURN_IF_ERROR(check_index("step", step, of.steps));
    const ContextStep& one = of.steps[static_cast<size_t>(step)];
    flashcore_context_step c = {};
    c.owner = one.owner;
    c.send_to = one.send_to;
    c.send_own_to = one.send_own_to;
    c.receive_from = one.receive_from;
    c.gradient_to = one.gradient_to;
    c.gradient_from = one.gradient_from;
    c.gradient_home_from = one.gradient_home_from;
    c.calls = count(one.calls);
    return flashcore::api::write_sized(c, info);
  });
}

flashcore_status flashcore_context_plan_call(const flashcore_context_plan* plan, int64_t step,
                                             int64_t call, flashcore_context_call* info) {
  return with_plan(plan, [&](const ContextPlan& of) -> Status {
    FLASHCORE_RETURN_IF_ERROR(check_index("step", step, of.steps));
    const std::vector<ContextCall>& calls = of.steps[static_cast<size_t>(step)].calls;
    FLASHCORE_RETURN_IF_ERROR(check_index("call", call, calls));
    const ContextCall& one = calls[static_cast<size_t>(call)];
    flashcore_context_call c = {};
    c.window_left = one.window_left;
    c.window_right = one.window_right;
    c.num_blocks = count(one.blocks);
    c.blocks = numbers(one.blocks);
    return flashcore::api::write_sized(c, info);
  });
}
