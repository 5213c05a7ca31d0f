// Reads the C interface's structs, which may come from another version, or contain nonsense.
#pragma once

#include "flashcore/flashcore.h"
#include "flashcore/flashcore.hpp"
#include "flashcore/quantize.hpp"
#include "flashcore/serving.hpp"

namespace flashcore::api {

// Each checks only what is specific to C (null, sizes, flags); make_plan and run check the rest.
Result<Problem> read_problem(const flashcore_problem* problem);
Result<PlanOptions> read_options(const flashcore_plan_options* options);  // null: defaults
Result<Arguments> read_arguments(const flashcore_arguments* arguments);
Result<Gradients> read_gradients(const flashcore_gradients* gradients);
Result<BackwardArguments> read_arguments(const flashcore_backward_arguments* arguments);
Result<Merge> read_problem(const flashcore_merge_problem* problem);
Result<MergeArguments> read_arguments(const flashcore_merge_arguments* arguments);
Result<Append> read_problem(const flashcore_append_problem* problem);
Result<AppendArguments> read_arguments(const flashcore_append_arguments* arguments);
Result<Quantize> read_problem(const flashcore_quantize_problem* problem);
Result<QuantizeArguments> read_arguments(const flashcore_quantize_arguments* arguments);

// Writes as many bytes as the caller's struct_size says.
Status write_device_info(const DeviceInfo& info, flashcore_device_info* out);
Status write_build_info(const flashcore_build_info& info, flashcore_build_info* out);

flashcore_tensor to_c(const TensorDesc& tensor);

}  // namespace flashcore::api
