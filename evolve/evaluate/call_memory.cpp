#include "evolve/evaluate/call_memory.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace flashcore::evolve {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kLargestGap = 4096;  // between tensors, and before the first
constexpr size_t kPool = (size_t{1} << 17) + 29;

struct Counts {
  int64_t q, kv, lse;
};

Counts counts_of(const CallShape& s) {
  const int64_t rows = s.batch * s.heads_q * s.seqlen_q;
  return {rows * s.head_dim, s.batch * s.heads_kv * s.seqlen_kv * s.head_dim, rows};
}

uint64_t padded(int64_t floats) {
  const uint64_t bytes = static_cast<uint64_t>(floats) * sizeof(float);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment + kLargestGap;
}

uint64_t input_bytes(const CallShape& shape) {
  const Counts n = counts_of(shape);
  return padded(n.q) + 2 * padded(n.kv) + sizeof(CallTensors);
}

uint64_t output_bytes(const CallShape& shape) {
  const Counts n = counts_of(shape);
  return padded(n.q) + padded(n.lse);
}

// Places tensors one after the other, with random gaps.
class Layout {
 public:
  Layout(bench::Random& secret, uint64_t begin) : secret_(secret), at_(begin) {}

  uint64_t place(int64_t floats) {
    at_ += kAlignment * static_cast<uint64_t>(secret_.integer(1, kLargestGap / kAlignment - 1));
    const uint64_t place = at_;
    at_ += padded(floats) - kLargestGap;
    return place;
  }
  // With room for a last gap.
  uint64_t end() const { return at_ + kAlignment; }

 private:
  bench::Random& secret_;
  uint64_t at_;
};

}  // namespace

NormalPool::NormalPool(bench::Random& secret) : numbers_(kPool) {
  for (float& number : numbers_) number = static_cast<float>(secret.normal());
}

void NormalPool::fill(std::span<float> out, bench::Random& secret) const {
  while (!out.empty()) {
    const auto from = static_cast<size_t>(secret.integer(0, static_cast<int64_t>(kPool) - 1));
    const size_t count = std::min({out.size(), kPool - from, size_t{8192}});
    std::memcpy(out.data(), numbers_.data() + from, count * sizeof(float));
    out = out.subspan(count);
  }
}

Result<CallMemory> CallMemory::make(std::span<const CallShape> shapes, uint64_t calls) {
  uint64_t in = 0, out = 0;
  for (const CallShape& shape : shapes) {
    in = std::max(in, input_bytes(shape) * calls);
    out = std::max(out, output_bytes(shape) * calls);
  }
  Result<SharedMemory> inputs = SharedMemory::make(in + kLargestGap);
  if (!inputs.ok()) return inputs.status();
  Result<SharedMemory> outputs = SharedMemory::make(out + kLargestGap);
  if (!outputs.ok()) return outputs.status();
  return CallMemory(std::move(*inputs), std::move(*outputs));
}

uint64_t CallMemory::room_for(const CallShape& shape) const {
  return std::min((inputs_.size() - kLargestGap) / input_bytes(shape),
                  (outputs_.size() - kLargestGap) / output_bytes(shape));
}

RunCommand CallMemory::prepare(const CallShape& shape, uint64_t calls, bench::Random& secret,
                               std::byte poison) {
  shape_ = shape;
  poison_ = poison;
  const Counts n = counts_of(shape);
  calls_.resize(calls);
  const uint64_t list = (calls * sizeof(CallTensors) + kAlignment - 1) / kAlignment * kAlignment;
  Layout in(secret, list), out(secret, 0);
  for (CallTensors& one : calls_) {
    one = {in.place(n.q), in.place(n.kv), in.place(n.kv), out.place(n.q), out.place(n.lse)};
  }
  used_ = out.end();
  for (const auto& all : {inputs_.bytes().first(in.end()), outputs_.bytes().first(used_)}) {
    std::fill(all.begin(), all.end(), poison);
  }
  std::memcpy(inputs_.bytes().data(), calls_.data(), calls * sizeof(CallTensors));
  return {.nonce = secret.bits(), .calls = calls, .list = 0, .shape = shape};
}

std::span<float> CallMemory::floats(const SharedMemory& memory, uint64_t at, int64_t count) {
  return {reinterpret_cast<float*>(memory.bytes().data() + at), static_cast<size_t>(count)};
}

std::span<float> CallMemory::q(uint64_t i) {
  return floats(inputs_, calls_[i].q, counts_of(shape_).q);
}
std::span<float> CallMemory::k(uint64_t i) {
  return floats(inputs_, calls_[i].k, counts_of(shape_).kv);
}
std::span<float> CallMemory::v(uint64_t i) {
  return floats(inputs_, calls_[i].v, counts_of(shape_).kv);
}
std::span<float> CallMemory::o(uint64_t i) {
  return floats(outputs_, calls_[i].o, counts_of(shape_).q);
}
std::span<float> CallMemory::lse(uint64_t i) {
  return floats(outputs_, calls_[i].lse, counts_of(shape_).lse);
}

bool CallMemory::surroundings_intact() const {
  const Counts n = counts_of(shape_);
  const std::span<const std::byte> all = outputs_.bytes().first(used_);
  uint64_t from = 0;
  const auto untouched = [&](uint64_t to) {
    return std::all_of(all.begin() + static_cast<int64_t>(from),
                       all.begin() + static_cast<int64_t>(to),
                       [&](std::byte one) { return one == poison_; });
  };
  for (const CallTensors& one : calls_) {
    for (const auto& [begin, count] : {std::pair{one.o, n.q}, {one.lse, n.lse}}) {
      if (!untouched(begin)) return false;
      from = begin + static_cast<uint64_t>(count) * sizeof(float);
    }
  }
  return untouched(all.size());
}

bool CallMemory::has_nan() {
  for (uint64_t i = 0; i < calls_.size(); ++i) {
    for (const std::span<float> tensor : {o(i), lse(i)}) {
      if (std::any_of(tensor.begin(), tensor.end(), [](float x) { return std::isnan(x); }))
        return true;
    }
  }
  return false;
}

}  // namespace flashcore::evolve
