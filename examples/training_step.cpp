// Training steps in C++: an attention layer, 4 query heads over 2 of keys and values, learns its Q,
// K and V so that O becomes a given target, with dropout. Each step runs the forward pass, takes the
// gradient of the loss |O - target|^2 / 2, which is O - target, and runs the backward pass.
//
// The dropout seed and offset are in memory that both passes read: both use the same mask, and each
// step another one. On a GPU the memory is the device's, and a captured step can be replayed.
//
//   c++ -std=c++20 training_step.cpp $(pkg-config --cflags --libs flashcore) -o training_step
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <flashcore/flashcore.hpp>
#include <random>
#include <string>
#include <vector>

namespace {

using Values = std::vector<float>;

Values normal(size_t count, unsigned seed) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> draw;
  Values values(count);
  for (float& value : values) value = draw(bits);
  return values;
}

void descend(Values& values, const Values& gradient) {
  for (size_t i = 0; i < values.size(); ++i) values[i] -= 0.1f * gradient[i];
}

int fail(const flashcore::Status& status) {
  std::fprintf(stderr, "%s\n", status.message().c_str());
  return EXIT_FAILURE;
}

}  // namespace

int main() {
  using namespace flashcore;
  constexpr int64_t kHeads = 4, kHeadsKv = 2, kSeqlen = 64, kHeadDim = 32;
  constexpr int kSteps = 40;

  // Described and planned once. The backward pass needs the LSE of the forward pass.
  Problem problem;
  problem.q = problem.o = TensorDesc::contiguous(DType::f32, {1, kHeads, kSeqlen, kHeadDim});
  problem.k = problem.v = TensorDesc::contiguous(DType::f32, {1, kHeadsKv, kSeqlen, kHeadDim});
  problem.lse = TensorDesc::contiguous(DType::f32, {1, kHeads, kSeqlen});
  problem.causal = true;
  problem.dropout_p = 0.05f;
  problem.dropout_state = TensorDesc::contiguous(DType::i64, {2});
  Gradients gradients;
  gradients.d_o = problem.o;
  gradients.dq = problem.q;
  gradients.dk = problem.k;
  gradients.dv = problem.v;
  const Result<Plan> forward = make_plan(problem);
  if (!forward.ok()) return fail(forward.status());
  const Result<Plan> backward = make_backward_plan(problem, gradients);
  if (!backward.ok()) return fail(backward.status());

  constexpr size_t kCount = kHeads * kSeqlen * kHeadDim, kCountKv = kHeadsKv * kSeqlen * kHeadDim;
  Values q = normal(kCount, 1), k = normal(kCountKv, 2), v = normal(kCountKv, 3);
  Values o(kCount), lse(kHeads * kSeqlen), target(kCount);
  Values d_o(kCount), dq(kCount), dk(kCountKv), dv(kCountKv);
  int64_t dropout[2] = {20240607, 0};  // the seed, and the offset
  BackwardArguments arguments;
  arguments.forward = {.q = q.data(),
                       .k = k.data(),
                       .v = v.data(),
                       .o = target.data(),
                       .lse = lse.data(),
                       .dropout_state = dropout};
  arguments.d_o = d_o.data();
  arguments.dq = dq.data();
  arguments.dk = dk.data();
  arguments.dv = dv.data();

  // The target is the output for another Q, K and V, so it can nearly be reached.
  if (const Status status = forward->run(arguments.forward); !status.ok()) return fail(status);
  q = normal(kCount, 4);
  k = normal(kCountKv, 5);
  v = normal(kCountKv, 6);
  arguments.forward.q = q.data();
  arguments.forward.k = k.data();
  arguments.forward.v = v.data();
  arguments.forward.o = o.data();

  // On the CPU, runs without a workspace allocate their own.
  double first = 0, loss = 0;
  for (int step = 0; step < kSteps; ++step) {
    ++dropout[1];
    if (const Status status = forward->run(arguments.forward); !status.ok()) return fail(status);
    loss = 0;
    for (size_t i = 0; i < kCount; ++i) {
      d_o[i] = o[i] - target[i];
      loss += 0.5 * static_cast<double>(d_o[i]) * static_cast<double>(d_o[i]);
    }
    if (step == 0) first = loss;
    if (const Status status = backward->run(arguments); !status.ok()) return fail(status);
    descend(q, dq);
    descend(k, dk);
    descend(v, dv);
  }
  std::printf("%s, %s: loss %.1f, after %d steps %.1f\n", std::string(forward->kernel()).c_str(),
              std::string(backward->kernel()).c_str(), first, kSteps, loss);
  return loss < first / 4 ? EXIT_SUCCESS : EXIT_FAILURE;
}
