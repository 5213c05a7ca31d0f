/* A program outside the tree, in C: (B 1, H 8, S 512, D 64), causal, f32, with LSE. It checks a row
 * of each head against its own arithmetic. */
#include <flashcore/flashcore.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 8, SEQLEN = 512, HEAD_DIM = 64, COUNT = HEADS * SEQLEN * HEAD_DIM };

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, flashcore_last_error());
  return EXIT_FAILURE;
}

/* Uniform in [-1, 1): a linear congruential generator. */
static float next_value(uint32_t* state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

/* The largest error of query `row` of a head, O and LSE. */
static double row_error(const float* q, const float* k, const float* v, const float* o, float lse,
                        int row) {
  double out[HEAD_DIM] = {0};
  double sum = 0, error;
  for (int j = 0; j <= row; ++j) {
    double dot = 0;
    for (int d = 0; d < HEAD_DIM; ++d) {
      dot += (double)q[row * HEAD_DIM + d] * (double)k[j * HEAD_DIM + d];
    }
    const double weight = exp(dot / sqrt((double)HEAD_DIM));
    sum += weight;
    for (int d = 0; d < HEAD_DIM; ++d) out[d] += weight * (double)v[j * HEAD_DIM + d];
  }
  error = fabs(log(sum) - (double)lse);
  for (int d = 0; d < HEAD_DIM; ++d) {
    error = fmax(error, fabs(out[d] / sum - (double)o[row * HEAD_DIM + d]));
  }
  return error;
}

static void remember_kernel(void* user, const char* kernel, const char* refusal,
                            int32_t automatic) {
  (void)automatic;
  if (refusal[0] == '\0') printf("%s would run\n", kernel);
  ++*(int*)user;
}

int main(void) {
  const int64_t shape[4] = {1, HEADS, SEQLEN, HEAD_DIM};
  flashcore_problem problem;
  flashcore_arguments arguments;
  flashcore_plan* plan = NULL;
  void* workspace = NULL;
  int kernels = 0;
  uint32_t state = 1;
  double error = 0;
  float* const data = (float*)malloc((4 * COUNT + HEADS * SEQLEN) * sizeof(float));
  float* const q = data;
  float* const k = data + COUNT;
  float* const v = data + 2 * COUNT;
  float* const o = data + 3 * COUNT;
  float* const lse = data + 4 * COUNT;
  if (data == NULL) return EXIT_FAILURE;
  for (int i = 0; i < 3 * COUNT; ++i) data[i] = next_value(&state);
  for (int i = 3 * COUNT; i < 4 * COUNT + HEADS * SEQLEN; ++i) data[i] = NAN;

  if (flashcore_problem_init(&problem, sizeof problem) != FLASHCORE_OK ||
      flashcore_tensor_contiguous(&problem.q, FLASHCORE_F32, 4, shape) != FLASHCORE_OK ||
      flashcore_tensor_contiguous(&problem.lse, FLASHCORE_F32, 3, shape) != FLASHCORE_OK) {
    return fail("problem");
  }
  problem.k = problem.v = problem.o = problem.q;
  problem.causal = 1;
  if (flashcore_explain(&problem, NULL, remember_kernel, &kernels) != FLASHCORE_OK || kernels < 1) {
    return fail("explain");
  }
  if (flashcore_plan_create(&problem, NULL, &plan) != FLASHCORE_OK) return fail("plan");
  if (flashcore_plan_workspace_bytes(plan) > 0) {
    const size_t bytes = (flashcore_plan_workspace_bytes(plan) + 255) / 256 * 256;
    workspace = aligned_alloc(256, bytes);
  }

  flashcore_arguments_init(&arguments, sizeof arguments);
  arguments.q = q;
  arguments.k = k;
  arguments.v = v;
  arguments.o = o;
  arguments.lse = lse;
  if (flashcore_plan_run(plan, &arguments, workspace, flashcore_plan_workspace_bytes(plan), NULL) !=
      FLASHCORE_OK) {
    return fail("run");
  }
  for (int h = 0; h < HEADS; ++h) {
    const int at = h * SEQLEN * HEAD_DIM;
    const int row = (h * 73 + SEQLEN - 1) % SEQLEN;
    const double here = row_error(q + at, k + at, v + at, o + at, lse[h * SEQLEN + row], row);
    if (!(here <= error)) error = here; /* NaN too */
  }
  printf("flashcore %s from C: %s, largest error %.1e\n", flashcore_version(),
         flashcore_plan_kernel(plan), error);
  flashcore_plan_destroy(plan);
  free(workspace);
  free(data);
  return error < 2e-5 ? EXIT_SUCCESS : EXIT_FAILURE;
}
