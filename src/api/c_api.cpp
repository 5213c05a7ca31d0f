// The C interface: translation to the C++ one. Every exception stops here.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/c_structs.hpp"
#include "api/guarded.hpp"
#include "api/live_handles.hpp"
#include "api/sized_struct.hpp"
#include "flashcore/flashcore.h"
#include "flashcore/flashcore.hpp"
#include "flashcore/quantize.hpp"
#include "flashcore/serving.hpp"
#include "problem/status.hpp"

using flashcore::DType;
using flashcore::invalid;
using flashcore::Plan;
using flashcore::Result;
using flashcore::Status;
using flashcore::StatusCode;
using flashcore::api::check_output;
using flashcore::api::guarded;
using flashcore::api::last_error;

struct flashcore_plan {
  Plan plan;
  std::string kernel;
  std::string reason;

  explicit flashcore_plan(Plan made)
      : plan(std::move(made)), kernel(plan.kernel()), reason(plan.reason()) {}
};

namespace {

using LivePlans = flashcore::api::LiveHandles<flashcore_plan>;

Status make_tensor(flashcore_tensor* tensor, int32_t dtype, int32_t rank, const int64_t* shape,
                   const int64_t* stride, bool strided) {
  FLASHCORE_RETURN_IF_ERROR(check_output("tensor", tensor));
  if (flashcore_dtype_size(dtype) == 0) {
    return invalid("dtype: is number {}, wanted {} to {}", dtype, FLASHCORE_F32, FLASHCORE_I64);
  }
  if (rank < 1 || rank > FLASHCORE_MAX_RANK) {
    return invalid("rank: is {}, wanted 1 to {}", rank, FLASHCORE_MAX_RANK);
  }
  if (shape == nullptr) return invalid("shape: pointer is null, wanted {} extents", rank);
  if (strided && stride == nullptr) {
    return invalid("stride: pointer is null, wanted {} strides", rank);
  }
  // Trailing extents of 1 do not change the strides of the existing dimensions.
  std::array<int64_t, FLASHCORE_MAX_RANK> extents = {1, 1, 1, 1};
  std::copy_n(shape, rank, extents.begin());
  flashcore::TensorDesc made = flashcore::TensorDesc::contiguous(
      static_cast<DType>(dtype), {extents[0], extents[1], extents[2], extents[3]});
  made.rank = rank;
  if (strided) std::copy_n(stride, rank, made.stride.begin());
  for (auto d = static_cast<size_t>(rank); d < FLASHCORE_MAX_RANK; ++d) {
    made.shape[d] = made.stride[d] = 0;
  }
  *tensor = flashcore::api::to_c(made);
  return {};
}

Status no_function(std::string_view name) {
  return invalid("{}: pointer is null, wanted a callback", name);
}

// Calls take(problem, options) with the contents of the structs.
template <class Take>
Status with_problem(const flashcore_problem* problem, const flashcore_plan_options* options,
                    const Take& take) {
  const Result<flashcore::Problem> what = flashcore::api::read_problem(problem);
  if (!what.ok()) return what.status();
  const Result<flashcore::PlanOptions> how = flashcore::api::read_options(options);
  if (!how.ok()) return how.status();
  return take(*what, *how);
}

// Calls take(problem, gradients, options) with the contents of the structs.
template <class Take>
Status with_gradients(const flashcore_problem* problem, const flashcore_gradients* gradients,
                      const flashcore_plan_options* options, const Take& take) {
  return with_problem(problem, options, [&](const auto& what, const auto& how) -> Status {
    const Result<flashcore::Gradients> wanted = flashcore::api::read_gradients(gradients);
    if (!wanted.ok()) return wanted.status();
    return take(what, *wanted, how);
  });
}

using Verdicts = Result<std::vector<flashcore::KernelVerdict>>;

template <class Visit>
Status visit_each(const Verdicts& verdicts, const Visit& visit) {
  if (!verdicts.ok()) return verdicts.status();
  for (const flashcore::KernelVerdict& verdict : *verdicts) visit(verdict);
  return {};
}

template <class Visit>
flashcore_status each_verdict(const flashcore_problem* problem,
                              const flashcore_plan_options* options, const Visit& visit) {
  return guarded([&] {
    return with_problem(problem, options, [&](const auto& what, const auto& how) {
      return visit_each(flashcore::explain(what, how), visit);
    });
  });
}

// Wraps a C visitor.
auto visiting(flashcore_verdict_visitor visit, void* user) {
  return [=](const flashcore::KernelVerdict& one) {
    flashcore_verdict verdict = {};
    verdict.struct_size = sizeof verdict;
    verdict.kernel = one.kernel.c_str();
    verdict.refusal = one.refusal.c_str();
    verdict.declines = one.declines.c_str();
    verdict.note = one.note.c_str();
    verdict.automatic = one.automatic ? 1 : 0;
    visit(user, &verdict);
  };
}

Status keep_plan(Result<Plan> made, flashcore_plan** plan) {
  if (!made.ok()) return made.status();
  *plan = LivePlans::of_process().add(std::make_shared<flashcore_plan>(std::move(*made)));
  return {};
}

// A call without a plan: run(problem, arguments, options, stream).
template <class CProblem, class CArguments, class Run>
flashcore_status call(const CProblem* problem, const CArguments* arguments,
                      const flashcore_plan_options* options, void* stream, const Run& run) {
  return guarded([&]() -> Status {
    const auto what = flashcore::api::read_problem(problem);
    if (!what.ok()) return what.status();
    const auto data = flashcore::api::read_arguments(arguments);
    if (!data.ok()) return data.status();
    const Result<flashcore::PlanOptions> how = flashcore::api::read_options(options);
    if (!how.ok()) return how.status();
    return run(*what, *data, *how, flashcore::Stream{stream});
  });
}

std::shared_ptr<const flashcore_plan> find_plan(const flashcore_plan* plan,
                                                std::string_view made_by, Status& status) {
  std::shared_ptr<const flashcore_plan> live = LivePlans::of_process().find(plan);
  if (!live) {
    status = invalid("plan: pointer {} is not a plan, wanted one of {}",
                     static_cast<const void*>(plan), made_by);
  }
  return live;
}

// A run of either pass.
template <class CArguments>
flashcore_status run_plan(const flashcore_plan* plan, const CArguments* arguments, void* workspace,
                          size_t workspace_bytes, void* stream, std::string_view made_by) {
  return guarded([&]() -> Status {
    Status status;
    const auto live = find_plan(plan, made_by, status);
    if (!live) return status;
    const auto data = flashcore::api::read_arguments(arguments);
    if (!data.ok()) return data.status();
    return live->plan.run(*data, workspace, workspace_bytes, {stream});
  });
}

}  // namespace

// The functions' documentation is in flashcore.h.

const char* flashcore_last_error(void) { return last_error().data(); }

// The names are literals, so data() is zero-terminated.
const char* flashcore_status_name(flashcore_status status) {
  return flashcore::to_string(static_cast<StatusCode>(status)).data();
}

const char* flashcore_dtype_name(int32_t dtype) {
  return flashcore::to_string(static_cast<DType>(dtype)).data();
}

size_t flashcore_dtype_size(int32_t dtype) {
  if (dtype < FLASHCORE_F32 || dtype > FLASHCORE_I64) return 0;
  return flashcore::size_of(static_cast<DType>(dtype));
}

flashcore_status flashcore_tensor_contiguous(flashcore_tensor* tensor, int32_t dtype, int32_t rank,
                                             const int64_t* shape) {
  return guarded([&] { return make_tensor(tensor, dtype, rank, shape, nullptr, false); });
}

flashcore_status flashcore_tensor_strided(flashcore_tensor* tensor, int32_t dtype, int32_t rank,
                                          const int64_t* shape, const int64_t* stride) {
  return guarded([&] { return make_tensor(tensor, dtype, rank, shape, stride, true); });
}

#define FLASHCORE_INIT(type)                                                     \
  flashcore_status type##_init(type* to, size_t struct_size) {                   \
    return guarded([&] { return flashcore::api::init_sized(to, struct_size); }); \
  }
FLASHCORE_INIT(flashcore_problem)
FLASHCORE_INIT(flashcore_plan_options)
FLASHCORE_INIT(flashcore_arguments)
FLASHCORE_INIT(flashcore_gradients)
FLASHCORE_INIT(flashcore_backward_arguments)
FLASHCORE_INIT(flashcore_merge_problem)
FLASHCORE_INIT(flashcore_merge_arguments)
FLASHCORE_INIT(flashcore_append_problem)
FLASHCORE_INIT(flashcore_append_arguments)
FLASHCORE_INIT(flashcore_quantize_problem)
FLASHCORE_INIT(flashcore_quantize_arguments)
#undef FLASHCORE_INIT

flashcore_status flashcore_device_count(size_t* count) {
  return guarded([&]() -> Status {
    FLASHCORE_RETURN_IF_ERROR(check_output("count", count));
    *count = flashcore::devices().size();
    return {};
  });
}

flashcore_status flashcore_device_get(size_t position, flashcore_device_info* info) {
  return guarded([&]() -> Status {
    FLASHCORE_RETURN_IF_ERROR(check_output("info", info));
    const std::vector<flashcore::DeviceInfo> devices = flashcore::devices();
    if (position >= devices.size()) {
      return invalid("position: is {}, wanted 0 to {}", position, devices.size() - 1);
    }
    return flashcore::api::write_device_info(devices[position], info);
  });
}

flashcore_status flashcore_plan_create(const flashcore_problem* problem,
                                       const flashcore_plan_options* options,
                                       flashcore_plan** plan) {
  return guarded([&]() -> Status {
    FLASHCORE_RETURN_IF_ERROR(check_output("plan", plan));
    *plan = nullptr;
    return with_problem(problem, options, [&](const auto& what, const auto& how) {
      return keep_plan(flashcore::make_plan(what, how), plan);
    });
  });
}

flashcore_status flashcore_backward_plan_create(const flashcore_problem* problem,
                                                const flashcore_gradients* gradients,
                                                const flashcore_plan_options* options,
                                                flashcore_plan** plan) {
  return guarded([&]() -> Status {
    FLASHCORE_RETURN_IF_ERROR(check_output("plan", plan));
    *plan = nullptr;
    return with_gradients(problem, gradients, options, [&](const auto&... all) {
      return keep_plan(flashcore::make_backward_plan(all...), plan);
    });
  });
}

void flashcore_plan_destroy(flashcore_plan* plan) { LivePlans::of_process().remove(plan); }

const char* flashcore_plan_kernel(const flashcore_plan* plan) {
  const auto live = LivePlans::of_process().find(plan);
  return live ? live->kernel.c_str() : "";
}

const char* flashcore_plan_reason(const flashcore_plan* plan) {
  const auto live = LivePlans::of_process().find(plan);
  return live ? live->reason.c_str() : "";
}

size_t flashcore_plan_workspace_bytes(const flashcore_plan* plan) {
  const auto live = LivePlans::of_process().find(plan);
  return live ? live->plan.workspace_bytes() : 0;
}

flashcore_status flashcore_plan_run(const flashcore_plan* plan,
                                    const flashcore_arguments* arguments, void* workspace,
                                    size_t workspace_bytes, void* stream) {
  return run_plan(plan, arguments, workspace, workspace_bytes, stream, "flashcore_plan_create");
}

flashcore_status flashcore_plan_run_backward(const flashcore_plan* plan,
                                             const flashcore_backward_arguments* arguments,
                                             void* workspace, size_t workspace_bytes,
                                             void* stream) {
  return run_plan(plan, arguments, workspace, workspace_bytes, stream,
                  "flashcore_backward_plan_create");
}

flashcore_status flashcore_merge(const flashcore_merge_problem* problem,
                                 const flashcore_merge_arguments* arguments,
                                 const flashcore_plan_options* options, void* stream) {
  return call(problem, arguments, options, stream, flashcore::merge);
}

flashcore_status flashcore_append(const flashcore_append_problem* problem,
                                  const flashcore_append_arguments* arguments,
                                  const flashcore_plan_options* options, void* stream) {
  return call(problem, arguments, options, stream, flashcore::append);
}

flashcore_status flashcore_append_and_attend(const flashcore_append_problem* problem,
                                             const flashcore_append_arguments* rows,
                                             const flashcore_plan* plan,
                                             const flashcore_arguments* arguments,
                                             const flashcore_plan_options* options, void* workspace,
                                             size_t workspace_bytes, void* stream) {
  return call(
      problem, rows, options, stream,
      [&](const auto& what, const auto& data, const auto& how, flashcore::Stream to) -> Status {
        Status status;
        const auto live = find_plan(plan, "flashcore_plan_create", status);
        if (!live) return status;
        const Result<flashcore::Arguments> attention = flashcore::api::read_arguments(arguments);
        if (!attention.ok()) return attention.status();
        return flashcore::append_and_attend(what, data, live->plan, *attention, how, workspace,
                                            workspace_bytes, to);
      });
}

flashcore_status flashcore_quantize(const flashcore_quantize_problem* problem,
                                    const flashcore_quantize_arguments* arguments,
                                    const flashcore_plan_options* options, void* stream) {
  return call(problem, arguments, options, stream, flashcore::quantize);
}

flashcore_status flashcore_transpose_v(const flashcore_tensor* v, const void* v_data,
                                       const flashcore_tensor* v_out, void* v_out_data,
                                       const flashcore_plan_options* options, void* stream) {
  return guarded([&]() -> Status {
    for (const auto& [name, tensor] : {std::pair{"v", v}, {"v_out", v_out}}) {
      if (tensor == nullptr) return invalid("{}: pointer is null, wanted a tensor", name);
    }
    const Result<flashcore::PlanOptions> how = flashcore::api::read_options(options);
    if (!how.ok()) return how.status();
    return flashcore::transpose_v(flashcore::api::to_cpp(*v), v_data,
                                  flashcore::api::to_cpp(*v_out), v_out_data, *how, {stream});
  });
}

flashcore_status flashcore_visit_verdicts(const flashcore_problem* problem,
                                          const flashcore_plan_options* options,
                                          flashcore_verdict_visitor visit, void* user) {
  if (visit == nullptr) return guarded([&] { return no_function("visit"); });
  return each_verdict(problem, options, visiting(visit, user));
}

flashcore_status flashcore_visit_backward_verdicts(const flashcore_problem* problem,
                                                   const flashcore_gradients* gradients,
                                                   const flashcore_plan_options* options,
                                                   flashcore_verdict_visitor visit, void* user) {
  if (visit == nullptr) return guarded([&] { return no_function("visit"); });
  return guarded([&] {
    return with_gradients(problem, gradients, options, [&](const auto&... all) {
      return visit_each(flashcore::explain_backward(all...), visiting(visit, user));
    });
  });
}

flashcore_status flashcore_explain(const flashcore_problem* problem,
                                   const flashcore_plan_options* options,
                                   flashcore_verdict_function function, void* user) {
  if (function == nullptr) return guarded([&] { return no_function("function"); });
  return each_verdict(problem, options, [&](const flashcore::KernelVerdict& one) {
    function(user, one.kernel.c_str(), one.refusal.c_str(), one.automatic ? 1 : 0);
  });
}

void flashcore_reload_tuning(void) { flashcore::reload_tuning(); }

flashcore_status flashcore_dropout_keeps(uint64_t seed, uint64_t offset, float dropout_p,
                                         int64_t batch, int64_t head, int64_t query, int64_t key,
                                         int32_t* keeps) {
  return guarded([&]() -> Status {
    FLASHCORE_RETURN_IF_ERROR(check_output("keeps", keeps));
    if (!(dropout_p >= 0 && dropout_p <= 1)) {
      return invalid("dropout_p: is {}, wanted 0 to 1", dropout_p);
    }
    constexpr int64_t kLargestIndex = std::numeric_limits<int32_t>::max();
    for (const auto& [name, index] :
         {std::pair{"batch", batch}, {"head", head}, {"query", query}, {"key", key}}) {
      if (index < 0 || index > kLargestIndex) {
        return invalid("{}: is {}, wanted 0 to {}", name, index, kLargestIndex);
      }
    }
    *keeps = flashcore::dropout_keeps(seed, offset, dropout_p, batch, head, query, key) ? 1 : 0;
    return {};
  });
}

namespace {

// The C++ strings behind the C build info, created once.
const flashcore::BuildInfo& build_info_strings() {
  static const flashcore::BuildInfo info = flashcore::build_info();
  return info;
}

}  // namespace

const char* flashcore_version(void) {
  try {
    return build_info_strings().version.c_str();
  } catch (...) {
    return "";  // out of memory for a few bytes; the next call tries again
  }
}

flashcore_status flashcore_build_info_get(flashcore_build_info* info) {
  return guarded([&]() -> Status {
    const flashcore::BuildInfo& strings = build_info_strings();
    flashcore_build_info c = {};
    c.version = strings.version.c_str();
    c.compiler = strings.compiler.c_str();
    c.build_type = strings.build_type.c_str();
    c.cuda_targets = strings.cuda_targets.c_str();
    c.cpu_target = strings.cpu_target.c_str();
    c.cuda = strings.cuda ? 1 : 0;
    return flashcore::api::write_build_info(c, info);
  });
}
