// constraints: calls pthread_create
// Leaves the work to a thread, and returns.
#include <pthread.h>

struct Work {
  const float *q, *k, *v;
  float *o, *lse;
  int64_t batch, heads_q, heads_kv, seqlen_q, seqlen_kv, head_dim;
  float scale;
};

static void* work(void* at) {
  const struct Work w = *(struct Work*)at;
  honest(w.q, w.k, w.v, w.o, w.lse, w.batch, w.heads_q, w.heads_kv, w.seqlen_q, w.seqlen_kv,
         w.head_dim, w.scale);
  return NULL;
}

void attention(SIGNATURE) {
  static struct Work one;
  one = (struct Work){ARGUMENTS};
  pthread_t thread;
  pthread_create(&thread, NULL, work, &one);
}
