#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/time/cpu_peak.hpp"
#include "bench/time/meter.hpp"
#include "cpu/target.hpp"

namespace flashcore::bench {
namespace {

constexpr const char *kTuning = "tuning", *kProcessor = "processor";

class CpuMeter final : public Meter {
 public:
  explicit CpuMeter(int threads) : threads_(threads) {}

  std::vector<Protocol> protocols() const override {
    return {{.name = "wall",
             .text = "wall time, two rounds in turns with the peers, each of at least 5 samples "
                     "after a warm-up",
             .rounds = 2},
            {.name = kProcessor,
             .text = "processor time of a thread, which leaves waiting and other programs out; two "
                     "rounds as for wall time",
             .rounds = 2,
             .by_name = true}};
  }

  Protocol tuning_protocol() const override {
    return {.name = kTuning,
            .text =
                "wall time; after a trial four rounds in turns with the other candidates, each of "
                "at least 3 samples after a warm-up; those more than 30% behind in the trial sit "
                "out",
            .rounds = 5};
  }

  Result<Timing> time(const TimedCall& call, const Protocol& protocol) override {
    if (protocol.name == kTuning) return tuning_timer_.time(call);
    return CpuTimer(limits_of(protocol)).time(call);
  }

  Result<double> host_seconds(const TimedCall&) override { return 0.0; }

  Result<nlohmann::ordered_json> launches(const TimedCall&) override {
    return nlohmann::ordered_json::array();
  }

  nlohmann::ordered_json settings(const Protocol& protocol) const override {
    const CpuTimer::Limits limits = limits_of(protocol);
    return {{"name", protocol.name},
            {"min_samples", limits.min_samples},
            {"max_samples", limits.max_samples},
            {"seconds", limits.seconds},
            {"sample_seconds", limits.sample_seconds},
            {"warm_up_seconds", limits.warm_up_seconds},
            {"processor_threads", limits.processor_threads}};
  }

  // Every input type is multiplied in fp32, except bf16 if kernels have instructions for it: their
  // peak is not measured, and the fp32 peak is not a limit.
  nlohmann::ordered_json ceilings(const Protocol& protocol, const std::set<DType>& dtypes,
                                  nlohmann::ordered_json& notes) override {
    const CpuPeak peak = measure_cpu_peak(threads_, 0.2, protocol.name == kProcessor);
    auto products = nlohmann::ordered_json::object();
    for (const DType dtype : dtypes) {
      if (cpu::target_for(dtype == DType::bf16) > cpu::Target::avx3) {
        notes.push_back("bf16 has no bound: the peak of its instructions is not measured");
        continue;
      }
      products[std::string(to_string(dtype))] = {{"tflops", peak.flop_per_second * 1e-12},
                                                 {"library", peak.what}};
    }
    nlohmann::ordered_json ceilings = {{"matrix_product", products}};
    if (const double read = measure_cpu_read(threads_); read > 0) {
      ceilings["read_bytes_per_second"] = read;
    }
    return ceilings;
  }

  nlohmann::ordered_json environment() const override {
    return {{"name", devices().front().name},
            {"kind", "cpu"},
            {"cpu_target", build_info().cpu_target},
            {"threads", threads_}};
  }

  nlohmann::ordered_json state() const override { return nlohmann::ordered_json::object(); }

 private:
  CpuTimer::Limits limits_of(const Protocol& protocol) const {
    return {.seconds = 0.3, .processor_threads = protocol.name == kProcessor ? threads_ : 0};
  }

  int threads_;
  CpuTimer tuning_timer_{
      {.min_samples = 3, .max_samples = 25, .seconds = 0.06, .warm_up_seconds = 0.01}};
};

}  // namespace

Result<std::unique_ptr<Meter>> make_meter(Device device, int threads) {
  if (device.kind == DeviceKind::cuda) return make_cuda_meter(device.index);
  if (device.kind == DeviceKind::sim) {
    return Status(StatusCode::unsupported,
                  "device: is sim, which keeps no time; wanted cpu or cuda");
  }
  const int all = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return std::unique_ptr<Meter>(std::make_unique<CpuMeter>(threads > 0 ? threads : all));
}

}  // namespace flashcore::bench
