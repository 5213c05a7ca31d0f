#include "evolve/evaluate/call_memory.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "bench/tensors/host_tensor.hpp"

namespace flashcore::evolve {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kWindow = uint64_t{24} << 20;
constexpr uint64_t kLargestGap = 4096;  // between tensors, and before the first
constexpr size_t kPool = (size_t{1} << 17) + 29;

// Bytes per tensor.
struct Sizes {
  uint64_t q, kv, lse;
};

Sizes sizes_of(const CallShape& s, DType dtype) {
  const auto rows = static_cast<uint64_t>(s.batch * s.heads_q * s.seqlen_q);
  const auto row = static_cast<uint64_t>(s.head_dim) * size_of(dtype);
  return {rows * row, static_cast<uint64_t>(s.batch * s.heads_kv * s.seqlen_kv) * row,
          rows * sizeof(float)};
}

uint64_t padded(uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment + kLargestGap;
}

// Bytes per call; with a window, only the call's own bytes.
uint64_t input_bytes(const Sizes& n, uint64_t window) {
  return (window > 0 ? 0 : padded(n.q) + 2 * padded(n.kv)) + sizeof(CallTensors);
}

uint64_t output_bytes(const Sizes& n) { return padded(n.q) + padded(n.lse); }

// Places tensors one after the other, with random gaps.
class Layout {
 public:
  Layout(bench::Random& secret, uint64_t begin) : secret_(secret), at_(begin) {}

  uint64_t place(uint64_t bytes) {
    at_ += kAlignment * static_cast<uint64_t>(secret_.integer(1, kLargestGap / kAlignment - 1));
    const uint64_t place = at_;
    at_ += padded(bytes) - kLargestGap;
    return place;
  }
  // Includes room for a last gap.
  uint64_t end() const { return at_ + kAlignment; }

 private:
  bench::Random& secret_;
  uint64_t at_;
};

}  // namespace

NormalPool::NormalPool(DType dtype, bench::Random& secret) : element_(size_of(dtype)) {
  bench::HostTensor numbers(TensorDesc::contiguous(dtype, {static_cast<int64_t>(kPool)}));
  numbers.fill([&] { return secret.normal(); });
  numbers_.assign(numbers.bytes().begin(), numbers.bytes().end());
}

void NormalPool::fill(std::span<std::byte> out, bench::Random& secret) const {
  while (!out.empty()) {
    const auto from = static_cast<size_t>(secret.integer(0, static_cast<int64_t>(kPool) - 1));
    const size_t count = std::min({out.size(), (kPool - from) * element_, size_t{32768}});
    std::memcpy(out.data(), numbers_.data() + from * element_, count);
    out = out.subspan(count);
  }
}

Result<CallMemory> CallMemory::make(DType dtype, std::span<const CallShape> shapes,
                                    uint64_t calls) {
  return make(dtype, 0, shapes, calls);
}

Result<CallMemory> CallMemory::make_windows(DType dtype, std::span<const CallShape> shapes,
                                            uint64_t calls) {
  uint64_t largest = 0;
  for (const CallShape& shape : shapes) {
    const Sizes n = sizes_of(shape, dtype);
    largest = std::max({largest, n.q, n.kv});
  }
  return make(dtype, std::max(kWindow, 3 * largest) / kAlignment * kAlignment, shapes, calls);
}

Result<CallMemory> CallMemory::make(DType dtype, uint64_t window, std::span<const CallShape> shapes,
                                    uint64_t calls) {
  uint64_t in = 0, out = 0;
  for (const CallShape& shape : shapes) {
    const Sizes n = sizes_of(shape, dtype);
    in = std::max(in, input_bytes(n, window) * calls);
    out = std::max(out, output_bytes(n) * calls);
  }
  Result<SharedMemory> inputs = SharedMemory::make(window + in + kLargestGap);
  if (!inputs.ok()) return inputs.status();
  Result<SharedMemory> outputs = SharedMemory::make(out + kLargestGap);
  if (!outputs.ok()) return outputs.status();
  return CallMemory(dtype, window, std::move(*inputs), std::move(*outputs));
}

uint64_t CallMemory::room_for(const CallShape& shape) const {
  const Sizes n = sizes_of(shape, dtype_);
  return std::min((inputs_.size() - window_ - kLargestGap) / input_bytes(n, window_),
                  (outputs_.size() - kLargestGap) / output_bytes(n));
}

RunCommand CallMemory::prepare(const CallShape& shape, uint64_t calls, bench::Random& secret,
                               std::byte poison) {
  shape_ = shape;
  poison_ = poison;
  const Sizes n = sizes_of(shape, dtype_);
  calls_.resize(calls);
  const uint64_t list = (calls * sizeof(CallTensors) + kAlignment - 1) / kAlignment * kAlignment;
  Layout in(secret, list), out(secret, 0);
  const auto input = [&](uint64_t bytes) {
    if (window_ == 0) return in.place(bytes);
    const auto last = static_cast<int64_t>((window_ - bytes) / kAlignment);
    return list + kAlignment * static_cast<uint64_t>(secret.integer(0, last));
  };
  for (CallTensors& one : calls_) {
    one = {input(n.q), input(n.kv), input(n.kv), out.place(n.q), out.place(n.lse)};
  }
  used_ = out.end();
  const uint64_t inputs_end = window_ == 0 ? in.end() : list + window_;
  for (const auto& all : {inputs_.bytes().first(inputs_end), outputs_.bytes().first(used_)}) {
    std::memset(all.data(), std::to_integer<int>(poison), all.size());
  }
  std::memcpy(inputs_.bytes().data(), calls_.data(), calls * sizeof(CallTensors));
  return {.nonce = secret.bits(),
          .calls = calls,
          .list = 0,
          .input_bytes = inputs_end,
          .output_bytes = used_,
          .shape = shape};
}

RunCommand CallMemory::prepare(const CallShape& shape, uint64_t calls, const NormalPool& pool,
                               bench::Random& secret) {
  const RunCommand command = prepare(shape, calls, secret);
  if (window_ > 0) {
    pool.fill(inputs_.bytes().first(command.input_bytes).last(window_), secret);
    return command;
  }
  for (uint64_t i = 0; i < calls; ++i) {
    for (const std::span<std::byte> tensor : {q(i), k(i), v(i)}) pool.fill(tensor, secret);
  }
  return command;
}

std::span<std::byte> CallMemory::q(uint64_t i) {
  return inputs_.bytes().subspan(calls_[i].q, sizes_of(shape_, dtype_).q);
}
std::span<std::byte> CallMemory::k(uint64_t i) {
  return inputs_.bytes().subspan(calls_[i].k, sizes_of(shape_, dtype_).kv);
}
std::span<std::byte> CallMemory::v(uint64_t i) {
  return inputs_.bytes().subspan(calls_[i].v, sizes_of(shape_, dtype_).kv);
}
std::span<std::byte> CallMemory::o(uint64_t i) {
  return outputs_.bytes().subspan(calls_[i].o, sizes_of(shape_, dtype_).q);
}
std::span<std::byte> CallMemory::lse(uint64_t i) {
  return outputs_.bytes().subspan(calls_[i].lse, sizes_of(shape_, dtype_).lse);
}

bool CallMemory::surroundings_intact() const {
  const Sizes n = sizes_of(shape_, dtype_);
  const std::span<const std::byte> all = outputs_.bytes().first(used_);
  uint64_t from = 0;
  const auto untouched = [&](uint64_t to) {
    return std::all_of(all.begin() + static_cast<int64_t>(from),
                       all.begin() + static_cast<int64_t>(to),
                       [&](std::byte one) { return one == poison_; });
  };
  for (const CallTensors& one : calls_) {
    for (const auto& [begin, bytes] : {std::pair{one.o, n.q}, {one.lse, n.lse}}) {
      if (!untouched(begin)) return false;
      from = begin + bytes;
    }
  }
  return untouched(all.size());
}

bool CallMemory::has_nan() {
  for (uint64_t i = 0; i < calls_.size(); ++i) {
    if (bench::has_nan(dtype_, o(i)) || bench::has_nan(DType::f32, lse(i))) return true;
  }
  return false;
}

}  // namespace flashcore::evolve
