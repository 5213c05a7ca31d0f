/* Training steps in C: an attention layer, 4 query heads over 2 of keys and values, learns its Q, K
 * and V so that O becomes a given target. Each step runs the forward pass, takes the gradient of the
 * loss |O - target|^2 / 2, which is O - target, and runs the backward pass.
 *
 *   cc training_step.c $(pkg-config --cflags --libs flashcore) -o training_step && ./training_step */
#include <flashcore/flashcore.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 4, HEADS_KV = 2, SEQLEN = 64, HEAD_DIM = 32, STEPS = 40 };
enum { Q_COUNT = HEADS * SEQLEN * HEAD_DIM, KV_COUNT = HEADS_KV * SEQLEN * HEAD_DIM };

static float q[Q_COUNT], k[KV_COUNT], v[KV_COUNT], o[Q_COUNT], lse[HEADS * SEQLEN], target[Q_COUNT];
static float d_o[Q_COUNT], dq[Q_COUNT], dk[KV_COUNT], dv[KV_COUNT];

static void check(flashcore_status status) {
  if (status == FLASHCORE_OK) return;
  fprintf(stderr, "%s\n", flashcore_last_error());
  exit(EXIT_FAILURE);
}

/* Uniform in [-1, 1): a linear congruential generator. */
static void fill(float* values, int count, uint32_t seed) {
  for (int i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
  }
}

static void descend(float* values, const float* gradient, int count) {
  for (int i = 0; i < count; ++i) values[i] -= 0.1f * gradient[i];
}

/* The loss, and its gradient in d_o. */
static double loss_of_o(void) {
  double loss = 0;
  for (int i = 0; i < Q_COUNT; ++i) {
    d_o[i] = o[i] - target[i];
    loss += 0.5 * (double)d_o[i] * (double)d_o[i];
  }
  return loss;
}

int main(void) {
  const int64_t q_shape[4] = {1, HEADS, SEQLEN, HEAD_DIM};
  const int64_t kv_shape[4] = {1, HEADS_KV, SEQLEN, HEAD_DIM};
  flashcore_problem problem;
  flashcore_gradients gradients;
  flashcore_arguments arguments;
  flashcore_backward_arguments backward_arguments;
  flashcore_plan *forward = NULL, *backward = NULL;
  double first = 0, loss = 0;

  /* Described and planned once. The backward pass needs the LSE of the forward pass. */
  check(flashcore_problem_init(&problem, sizeof problem));
  check(flashcore_tensor_contiguous(&problem.q, FLASHCORE_F32, 4, q_shape));
  check(flashcore_tensor_contiguous(&problem.k, FLASHCORE_F32, 4, kv_shape));
  check(flashcore_tensor_contiguous(&problem.lse, FLASHCORE_F32, 3, q_shape));
  problem.v = problem.k;
  problem.o = problem.q;
  problem.causal = 1;
  check(flashcore_gradients_init(&gradients, sizeof gradients));
  gradients.d_o = problem.o;
  gradients.dq = problem.q;
  gradients.dk = problem.k;
  gradients.dv = problem.v;
  check(flashcore_plan_create(&problem, NULL, &forward));
  check(flashcore_backward_plan_create(&problem, &gradients, NULL, &backward));

  /* The target is the output for another Q, K and V, so it can be reached. */
  check(flashcore_arguments_init(&arguments, sizeof arguments));
  arguments.q = q;
  arguments.k = k;
  arguments.v = v;
  arguments.o = target;
  arguments.lse = lse;
  fill(q, Q_COUNT, 1);
  fill(k, KV_COUNT, 2);
  fill(v, KV_COUNT, 3);
  check(flashcore_plan_run(forward, &arguments, NULL, 0, NULL));
  fill(q, Q_COUNT, 4);
  fill(k, KV_COUNT, 5);
  fill(v, KV_COUNT, 6);

  /* On the CPU, runs without a workspace allocate their own. */
  arguments.o = o;
  check(flashcore_backward_arguments_init(&backward_arguments, sizeof backward_arguments));
  backward_arguments.forward = &arguments;
  backward_arguments.d_o = d_o;
  backward_arguments.dq = dq;
  backward_arguments.dk = dk;
  backward_arguments.dv = dv;
  for (int step = 0; step < STEPS; ++step) {
    check(flashcore_plan_run(forward, &arguments, NULL, 0, NULL));
    loss = loss_of_o();
    if (step == 0) first = loss;
    check(flashcore_plan_run_backward(backward, &backward_arguments, NULL, 0, NULL));
    descend(q, dq, Q_COUNT);
    descend(k, dk, KV_COUNT);
    descend(v, dv, KV_COUNT);
  }
  printf("%s, %s: loss %.1f, after %d steps %.1f\n", flashcore_plan_kernel(forward),
         flashcore_plan_kernel(backward), first, STEPS, loss);
  flashcore_plan_destroy(forward);
  flashcore_plan_destroy(backward);
  return loss < first / 4 ? EXIT_SUCCESS : EXIT_FAILURE;
}
