#include "standard_cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/cases/cases.hpp"
#include "bench/cases/fp8_problem.hpp"
#include "plan/table.hpp"
#include "problem/status.hpp"
#include "runs.hpp"
#include "stale_memory.hpp"

namespace flashcore {
namespace {

// An address that nothing follows: of tensor `number`.
template <class T = void>
T* address(uint64_t number) {
  return reinterpret_cast<T*>(fake::kAddressMark << 48 | number << 40);
}

Arguments arguments() {
  Arguments args;
  args.q = address(1);
  args.k = address(2);
  args.v = address(3);
  args.o = address(4);
  args.lse = address(5);
  args.q_scale = address<const float>(6);
  args.k_scale = address<const float>(7);
  args.v_scale = address<const float>(8);
  args.bias = address(9);
  args.mask = address(10);
  args.alibi_slopes = address<const float>(11);
  return args;
}

// As long as it is asked to be.
std::span<std::byte> workspace(size_t bytes) { return {address<std::byte>(12), bytes}; }

std::vector<Problem> standard_problems() {
  std::vector<Problem> all;
  for (const char* const suite : {"gates", "five", "sweep", "small", "decode", "features"}) {
    const std::vector<bench::Case> cases = *bench::suite_cases(suite);
    for (const bench::Case& one : cases) all.push_back(bench::to_problem(one));
  }
  const std::vector<bench::Case> gates = *bench::suite_cases("gates");
  for (bench::Case one : gates) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      one.dtype = dtype;
      all.push_back(bench::to_problem(one));
    }
    all.push_back(bench::with_fp8_inputs(bench::to_problem(one)));
  }
  // Last, so that the numbers of the others stay.
  for (const bench::Case& one : *bench::suite_cases("prefill")) {
    if (one.page_size > 0) all.push_back(bench::to_problem(one));
  }
  return all;
}

// Left over in memory for the first and for the second plan of a problem.
constexpr std::byte kStale[2] = {std::byte{0xA5}, std::byte{0x5A}};

// `first` without addresses and without what differs from `second`.
std::vector<std::byte> lasting(std::vector<std::byte> first, const std::vector<std::byte>& second) {
  constexpr size_t kWord = 4;  // no number that differs is shorter
  for (size_t at = 0; at + kWord <= first.size(); at += kWord) {
    bool differs = false;
    for (size_t i = at; i < at + kWord; ++i) {
      const bool unwritten = first[i] == kStale[0] && second[i] == kStale[1];
      differs = differs || (first[i] != second[i] && !unwritten);
      if (unwritten) first[i] = std::byte{};
    }
    if (differs) std::fill_n(first.begin() + static_cast<int64_t>(at), kWord, std::byte{});
  }
  for (size_t at = 0; at + sizeof(uint64_t) <= first.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, first.data() + at, sizeof word);
    if (word >> 48 != fake::kAddressMark) continue;
    word = fake::kAddressMark << 48;
    std::memcpy(first.data() + at, &word, sizeof word);
  }
  return first;
}

Result<std::vector<fake::Launch>> launches_of(const Variant& kernel, const ForwardProblem& p,
                                              const PlanContext& context, std::byte stale) {
  fake::fill_with_stale(stale);
  const Result<PlannedKernel> planned = kernel.plan(p, context);
  if (!planned.ok()) return planned.status();
  (void)fake::take_launches();
  fake::fill_with_stale(stale);
  FLASHCORE_RETURN_IF_ERROR(
      planned->run(arguments(), workspace(planned->workspace_bytes), Stream{}));
  return fake::take_launches();
}

Status print_launches(const Variant& kernel, const Problem& problem, size_t number,
                      const PlanContext& context) {
  const Result<ForwardProblem> p = resolve(problem);
  if (!p.ok() || !refusal_of(kernel, *p, context).empty()) return {};
  std::vector<fake::Launch> both[2];
  for (int i = 0; i < 2; ++i) {
    Result<std::vector<fake::Launch>> launches = launches_of(kernel, *p, context, kStale[i]);
    if (!launches.ok()) return launches.status();
    both[i] = std::move(*launches);
  }
  if (both[0].size() != both[1].size()) {
    return {StatusCode::device_error, "two plans of one problem launch different kernels"};
  }
  std::string functions;
  for (size_t i = 0; i < both[0].size(); ++i) {
    const fake::Launch &launch = both[0][i], &again = both[1][i];
    if (launch.kernel != again.kernel || launch.geometry != again.geometry ||
        launch.arguments.size() != again.arguments.size()) {
      return {StatusCode::device_error, "two plans of one problem launch different kernels"};
    }
    std::string text;
    for (const std::byte one : lasting(launch.arguments, again.arguments)) {
      text += fmt::format("{:02x}", static_cast<unsigned>(one));
    }
    fmt::print("launch sm_{} {} {} {} {} {}\n", context.device.compute_capability, kernel.name,
               number, launch.kernel, launch.geometry, text);
    functions += " " + launch.kernel;
  }
  if (functions.empty()) return {};
  fmt::print("case sm_{} {}{}\n", context.device.compute_capability, kernel.name, functions);
  return {};
}

std::map<std::string, std::vector<size_t>> read_argument_sizes(const char* path) {
  std::map<std::string, std::vector<size_t>> sizes;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kernel;
    words >> kernel;
    for (size_t bytes = 0; words >> bytes;) sizes[kernel].push_back(bytes);
  }
  return sizes;
}

}  // namespace

int record_standard_cases(const char* path) {
  fake::use(read_argument_sizes(path));
  const std::vector<Problem> standard = standard_problems();
  for (const fake::Gpu& gpu : fake::kGpus) {
    fake::use(gpu);
    for (const Variant& kernel : variants()) {
      if (kernel.device != DeviceKind::cuda) continue;
      for (size_t i = 0; i < standard.size(); ++i) {
        const Status status = print_launches(kernel, standard[i], i, fake::context_of(gpu));
        if (status.ok()) continue;
        fmt::print(stderr, "record_launches: {}: {}\n", kernel.name, status.message());
        return 1;
      }
    }
  }
  return 0;
}

}  // namespace flashcore
