#include "tests/cpu/relayout.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace flashcore {
namespace {

// Strides in random order, with the last dimension innermost if it must be contiguous.
TensorDesc other_strides(const TensorDesc& desc, bool contiguous_rows, bool may_broadcast,
                         bench::Random& random) {
  TensorDesc out = desc;
  std::vector<size_t> order;
  for (size_t d = 0; d < static_cast<size_t>(desc.rank); ++d) order.push_back(d);
  const size_t fixed = contiguous_rows ? order.size() - 1 : order.size();
  for (size_t d = fixed; d > 1; --d) {
    std::swap(order[d - 1],
              order[static_cast<size_t>(random.integer(0, static_cast<int64_t>(d) - 1))]);
  }
  int64_t step = 1;
  for (size_t n = order.size(); n-- > 0;) {
    const size_t d = order[n];
    const bool innermost_row = contiguous_rows && n == fixed;
    if (!innermost_row && random.chance(0.3)) step += random.integer(1, 3);
    out.stride[d] = step;
    if (!innermost_row && may_broadcast && random.chance(0.1)) {
      out.stride[d] = 0;
      continue;
    }
    if (!innermost_row && random.chance(0.2)) out.stride[d] = -step;
    step *= std::max<int64_t>(desc.shape[d], 1);
  }
  return out;
}

}  // namespace

bench::HostProblem relayout(const bench::HostProblem& host, bench::Random& random) {
  bench::HostProblem out;
  out.problem = host.problem;
  out.dropout_seed = host.dropout_seed;
  out.dropout_offset = host.dropout_offset;
  for (const auto& [name, tensor] : host.tensors) {
    const bool rows = name == "q" || name == "k" || name == "v" || name == "o";
    const bool may_broadcast =
        name == "q" || name == "k" || name == "v" || name == "bias" || name == "mask";
    const TensorDesc desc = other_strides(tensor.desc(), rows, may_broadcast, random);
    bench::set_tensor(out.problem, name, desc);
    bench::HostTensor& copy = out.tensors.emplace(name, bench::HostTensor(desc)).first->second;
    if (bench::is_output(name)) continue;
    if (name == "dropout_state") {
      bench::set_dropout_state(copy, bench::dropout_draw(host));
      continue;
    }
    for (int64_t i = 0; i < tensor.elements(); ++i) copy.set(i, tensor.get(i));
  }
  return out;
}

}  // namespace flashcore
