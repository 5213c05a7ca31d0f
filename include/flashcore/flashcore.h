/* FlashCore's C interface: softmax(Q K^T) V, one operator with one meaning on every backend.
 *
 * It is the C++ interface of flashcore.hpp, translated. docs/semantics.md says what is computed.
 *
 *   flashcore_problem problem;
 *   flashcore_problem_init(&problem, sizeof problem);
 *   const int64_t shape[4] = {1, 8, 512, 64};
 *   flashcore_tensor_contiguous(&problem.q, FLASHCORE_F16, 4, shape);
 *   problem.k = problem.v = problem.o = problem.q;
 *   flashcore_plan* plan = NULL;
 *   if (flashcore_plan_create(&problem, NULL, &plan) != FLASHCORE_OK) fail(flashcore_last_error());
 *   flashcore_arguments arguments;
 *   flashcore_arguments_init(&arguments, sizeof arguments);
 *   arguments.q = q; arguments.k = k; arguments.v = v; arguments.o = o;
 *   if (flashcore_plan_run(plan, &arguments, NULL, 0, NULL) != FLASHCORE_OK) ...
 *   flashcore_plan_destroy(plan);
 *
 * Errors. A function that can fail returns a flashcore_status. flashcore_last_error() returns the
 * message of the calling thread's last such call. No C++ exception leaves the library.
 *
 * Sized structs. The first member of a struct that may grow is `struct_size`, which the caller sets
 * to sizeof of the struct that it was compiled with; the _init functions do. A struct from an older
 * header lacks the last members: they get their defaults. One from a newer header has bytes that
 * this library does not know: they must be zero, or the call fails with FLASHCORE_UNSUPPORTED.
 *
 * Enumerations are passed as int32_t; values that are not listed are refused. Flags are int32_t, 0
 * or 1.
 *
 * Threads. Every function may be called from any thread. One plan may run on several threads at
 * once, each with its own outputs and workspace. A plan may be destroyed while runs of it are
 * executing, queued on a GPU or captured in a graph: they do not need it any more. */
#ifndef FLASHCORE_FLASHCORE_H
#define FLASHCORE_FLASHCORE_H

#include <stddef.h>
#include <stdint.h>

#if defined(FLASHCORE_SHARED)
#define FLASHCORE_API __attribute__((visibility("default")))
#else
#define FLASHCORE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------------------------------------------
 * Errors */

/* One of FLASHCORE_OK ... FLASHCORE_INTERNAL. */
typedef int32_t flashcore_status;

enum {
  FLASHCORE_OK = 0,
  FLASHCORE_INVALID_ARGUMENT = 1, /* malformed: the message names argument and its value */
  FLASHCORE_UNSUPPORTED = 2,      /* well-formed, but no kernel here computes it */
  FLASHCORE_OUT_OF_MEMORY = 3,
  FLASHCORE_DEVICE_ERROR = 4, /* the GPU or its driver reported an error */
  FLASHCORE_INTERNAL = 5      /* a defect of the library */
};

/* The message of the calling thread's last call that returned a flashcore_status; empty if that
 * call returned FLASHCORE_OK. Never null. It stays valid until the thread's next such call.
 * Messages longer than 1023 bytes are cut. */
FLASHCORE_API const char* flashcore_last_error(void);

/* "ok", "invalid_argument", ...; "unknown" for anything else. Never null. */
FLASHCORE_API const char* flashcore_status_name(flashcore_status status);

/* -------------------------------------------------------------------------------------------------
 * Tensors */

enum { FLASHCORE_MAX_RANK = 4 };

/* Element types; `dtype` members and parameters hold one. */
enum {
  FLASHCORE_F32 = 0,
  FLASHCORE_F16 = 1,
  FLASHCORE_BF16 = 2,
  FLASHCORE_F8E4M3 = 3,  /* the "fn" variant: no infinity, largest value 448 */
  FLASHCORE_F8E5M2 = 4,  /* IEEE-like: infinity, largest finite value 57344 */
  FLASHCORE_BOOLEAN = 5, /* one byte; zero is false, anything else is true */
  FLASHCORE_I32 = 6,
  FLASHCORE_F64 = 7, /* only for O, LSE and gradients, and only the reference computes it */
  FLASHCORE_I64 = 8  /* only for dropout_state */
};

/* Shape and strides without data. Strides are in elements and may be zero or negative on inputs.
 * The layout of this struct never changes. */
typedef struct flashcore_tensor {
  int32_t dtype;
  int32_t rank; /* 1 to 4; 0: an optional tensor is absent, and the rest must be zero */
  int64_t shape[4];
  int64_t stride[4];
} flashcore_tensor;

/* Fills in a row-major tensor; shape has `rank` entries, rank is 1 to 4.
 * FLASHCORE_INVALID_ARGUMENT: a null pointer, another rank, an unknown dtype. flashcore_plan_create
 * checks whether the shape makes sense. On an error *tensor is unchanged. */
FLASHCORE_API flashcore_status flashcore_tensor_contiguous(flashcore_tensor* tensor, int32_t dtype,
                                                           int32_t rank, const int64_t* shape);

/* Fills in a tensor with the given strides, in elements; shape and strides have `rank` entries. */
FLASHCORE_API flashcore_status flashcore_tensor_strided(flashcore_tensor* tensor, int32_t dtype,
                                                        int32_t rank, const int64_t* shape,
                                                        const int64_t* stride);

/* "f32", "f16", ...; "unknown" for anything else. Never null. */
FLASHCORE_API const char* flashcore_dtype_name(int32_t dtype);

/* Bytes per element; 0 for an unknown dtype. */
FLASHCORE_API size_t flashcore_dtype_size(int32_t dtype);

/* -------------------------------------------------------------------------------------------------
 * The problem */

/* The position of the diagonal: query i is aligned with key i + offset. */
enum {
  FLASHCORE_TOP_LEFT = 0,     /* offset 0 */
  FLASHCORE_BOTTOM_RIGHT = 1, /* offset len_kv - len_q: the last query sees the last key */
  FLASHCORE_GIVEN = 2         /* causal_offset, or causal_offsets: one per sequence */
};

/* A problem without its data. B batch, Hq query heads, Hkv key/value heads (Hq a multiple of Hkv),
 * Sq queries, Skv keys, Dqk and Dv head dimensions. "x|1": extent x, or 1 and broadcast. */
typedef struct flashcore_problem {
  size_t struct_size;

  flashcore_tensor q; /* [B, Hq, Sq, Dqk]; packed: [total_q, Hq, Dqk]. f32, f16, bf16 or fp8 */
  flashcore_tensor k; /* [B, Hkv, Skv, Dqk]; packed: [total_kv, Hkv, Dqk]; in pages:
                         [num_pages, Hkv, page_size, Dqk]. dtype of q, or fp8 */
  flashcore_tensor v; /* as k with Dv; dtype of k, or fp8 where k is fp8; or see v_transposed */
  flashcore_tensor o; /* [B, Hq, Sq, Dv]; packed: [total_q, Hq, Dv]. a type of q, or f64 */

  /* Optional tensors: rank 0 means absent, the default. */
  flashcore_tensor lse;            /* [B, Hq, Sq]; packed: [total_q, Hq]. f32, or f64 */
  flashcore_tensor bias;           /* [B|1, Hq|1, Sq|1, Skv|1], f32, f16 or bf16 */
  flashcore_tensor mask;           /* [B|1, Hq|1, Sq|1, Skv|1], boolean, true = attend */
  flashcore_tensor alibi_slopes;   /* [Hq] or [B|1, Hq], f32 */
  flashcore_tensor sinks;          /* [Hq], f32: one logit per head */
  flashcore_tensor q_scale;        /* [B|1, Hq|1], f32, for fp8 */
  flashcore_tensor k_scale;        /* [B|1, Hkv|1, blocks|1], f32, for fp8; num_pages for B */
  flashcore_tensor v_scale;        /* as k_scale */
  flashcore_tensor cu_seqlens_q;   /* [B + 1], i32: makes the problem a packed one */
  flashcore_tensor cu_seqlens_kv;  /* [B + 1], i32: with cu_seqlens_q, unless k and v are paged */
  flashcore_tensor seqlens_q;      /* [B], i32: number of queries in use */
  flashcore_tensor seqlens_kv;     /* [B], i32: number of keys in use */
  flashcore_tensor causal_offsets; /* [B], i32: with FLASHCORE_GIVEN */

  int32_t has_softmax_scale; /* 0 (default): 1 / sqrt(Dqk), and softmax_scale must be 0 */
  float softmax_scale;
  float softcap;         /* > 0: s = softcap * tanh(s / softcap); default 0 */
  int32_t causal;        /* key j is seen when j <= i + offset; default 0 */
  int32_t alignment;     /* default FLASHCORE_BOTTOM_RIGHT */
  float dropout_p;       /* in [0, 1]; default 0 */
  int64_t causal_offset; /* with FLASHCORE_GIVEN and no causal_offsets; default 0 */
  int64_t window_left;  /* key j is seen when j >= i + offset - window_left; default -1: no limit */
  int64_t window_right; /* key j is seen when j <= i + offset + window_right; default -1 */
  int64_t kv_scale_block; /* keys per block of k_scale and v_scale; default 0: one block */
  int64_t max_seqlen_q;   /* packed: most queries per sequence; default 0: not known */
  int64_t max_seqlen_kv;  /* packed or in pages: most rows per sequence; default 0: not known */

  /* Optional; [2], i64: a run reads the dropout seed and offset from memory on the plan's
   * device, so that each replay of a captured run can use another mask. Not read if the problem
   * has no dropout. */
  flashcore_tensor dropout_state;

  /* Optional: caches. k and v in pages, listed by a table or by one flat list, and left padding. */
  flashcore_tensor page_table;       /* [B, max_pages], i32 */
  flashcore_tensor kv_indptr;        /* [B + 1], i32: the flat list, instead of a table */
  flashcore_tensor kv_indices;       /* [total_pages], i32 */
  flashcore_tensor kv_last_page_len; /* [B], i32: rows in use on a sequence's last page */
  flashcore_tensor cache_leftpad;    /* [B], i32: rows before a sequence's first key */
  flashcore_tensor page_status;      /* [1], i32, output: set to 1 when a page index was out of
                                        range and was clamped */

  /* Optional, for speculative trees; [B|1, Sq, words]; packed: [total_q, words]. i32: bit t of a
   * query's words is set if the query sees key offset + t. Earlier keys are not affected. */
  flashcore_tensor tree_mask;

  /* Optional; [B|1, Hq|1], f32, for an fp8 o: the run stores O divided by this scale,
   * rounded and saturated. */
  flashcore_tensor o_scale;
  /* Optional; [B|1, Hq|1], f32, outputs: the largest |O| before scaling and rounding, and the
   * largest probability before dropout. */
  flashcore_tensor amax_o;
  flashcore_tensor amax_s;

  int32_t
      v_transposed; /* 1: v is [B, Hkv, Dv, columns], as flashcore_transpose_v makes it; default 0.
                           Only for fp8 in one piece; columns is a multiple of 128, at least Skv */
  int32_t reserved; /* zero */

  /* Optional; [B|1, Hq|1], f32, output: the largest score, after softcap, bias and ALiBi. */
  flashcore_tensor max_logit;
} flashcore_problem;

/* Sets every member within the first struct_size bytes to its default, and struct_size itself.
 * FLASHCORE_INVALID_ARGUMENT: a null or misaligned pointer, an impossible size. */
FLASHCORE_API flashcore_status flashcore_problem_init(flashcore_problem* problem,
                                                      size_t struct_size);

/* -------------------------------------------------------------------------------------------------
 * Devices */

enum { FLASHCORE_CPU = 0, FLASHCORE_CUDA = 1, FLASHCORE_SIM = 2 };

/* Filled in by the library, up to struct_size bytes. */
typedef struct flashcore_device_info {
  size_t struct_size;
  int32_t kind;                    /* FLASHCORE_CPU, FLASHCORE_CUDA or FLASHCORE_SIM */
  int32_t index;                   /* among the devices of its kind */
  int32_t compute_capability;      /* CUDA: 80, 89, 90, ... */
  int32_t multiprocessors;         /* CUDA: SMs; CPU: hardware threads */
  int64_t shared_memory_per_block; /* CUDA: bytes, opt-in limit */
  int64_t memory_bytes;
  char name[256]; /* zero-terminated, cut if longer */
} flashcore_device_info;

/* Returns the number of devices that plans can be made for. The CPU is always there, and always first. */
FLASHCORE_API flashcore_status flashcore_device_count(size_t* count);

/* Describes device number `position`, 0 to count - 1. Set info->struct_size first. */
FLASHCORE_API flashcore_status flashcore_device_get(size_t position, flashcore_device_info* info);

/* -------------------------------------------------------------------------------------------------
 * Plans */

typedef struct flashcore_plan_options {
  size_t struct_size;
  int32_t device_kind; /* default FLASHCORE_CPU */
  int32_t device_index;
  const char* kernel;      /* null or "": the kernel in the environment variable FLASHCORE_KERNEL,
                              or the best that computes the problem; at most 255 characters */
  int32_t threads;         /* CPU: default 0, all hardware threads */
  int32_t batch_invariant; /* 1: a row's bits do not depend on the rest of the batch */
  int32_t early_start;     /* 1: on CUDA, a run may start before earlier work in its stream has
                          ended; it waits for that work before it touches memory */
  int32_t ignored;         /* padding of older versions */
  int32_t deterministic;   /* backward: 1 (default): the same bits in every run; 0: atomic
                              accumulation in any order, which may be faster */
  int32_t reserved;        /* zero */
} flashcore_plan_options;

FLASHCORE_API flashcore_status flashcore_plan_options_init(flashcore_plan_options* options,
                                                           size_t struct_size);

/* A problem bound to a kernel. Free it with flashcore_plan_destroy. */
typedef struct flashcore_plan flashcore_plan;

/* Checks the problem and chooses the kernel. options may be null, for the defaults. On an error
 * *plan is null. FLASHCORE_INVALID_ARGUMENT: a malformed problem or option. FLASHCORE_UNSUPPORTED:
 * no kernel of the device computes it, or the device is not there. */
FLASHCORE_API flashcore_status flashcore_plan_create(const flashcore_problem* problem,
                                                     const flashcore_plan_options* options,
                                                     flashcore_plan** plan);

/* Frees a plan. Null is allowed, and a plan that was already freed is ignored. Work queued on a GPU
 * and runs on other threads go on. Only the strings of flashcore_plan_kernel and
 * flashcore_plan_reason become invalid. */
FLASHCORE_API void flashcore_plan_destroy(flashcore_plan* plan);

/* The kernel's name in the table of kernels, and one sentence that says why it was chosen. Both
 * live as long as the plan. "" for null. */
FLASHCORE_API const char* flashcore_plan_kernel(const flashcore_plan* plan);
FLASHCORE_API const char* flashcore_plan_reason(const flashcore_plan* plan);

/* Bytes of workspace that a run needs, on the plan's device. 0 for null. */
FLASHCORE_API size_t flashcore_plan_workspace_bytes(const flashcore_plan* plan);

/* The data of one run: pointers to element [0, 0, ...] of the problem's tensors, all on the plan's
 * device. Pointers to tensors that the problem does not have are ignored. A run is refused if an
 * output shares an element's memory with another tensor (interleaved views of one buffer share
 * none). Every other call has the same rule. */
typedef struct flashcore_arguments {
  size_t struct_size;
  const void* q;
  const void* k;
  const void* v;
  void* o;
  void* lse;
  const void* bias;
  const void* mask;
  const float* alibi_slopes;
  const float* sinks;
  const float* q_scale;
  const float* k_scale;
  const float* v_scale;
  const int32_t* cu_seqlens_q;
  const int32_t* cu_seqlens_kv;
  const int32_t* seqlens_q;
  const int32_t* seqlens_kv;
  const int32_t* causal_offsets;
  uint64_t dropout_seed; /* seed and offset: used if the problem has no dropout_state */
  uint64_t dropout_offset;
  const int64_t* dropout_state; /* seed and offset, bit for bit */
  const int32_t* page_table;
  const int32_t* kv_indptr;
  const int32_t* kv_indices;
  const int32_t* kv_last_page_len;
  const int32_t* cache_leftpad;
  int32_t* page_status;
  const int32_t* tree_mask;
  const float* o_scale;
  float* amax_o;
  float* amax_s;
  float* max_logit;
} flashcore_arguments;

FLASHCORE_API flashcore_status flashcore_arguments_init(flashcore_arguments* arguments,
                                                        size_t struct_size);

/* Computes O (and LSE, and the largest values, where the problem has them).
 * workspace: at least flashcore_plan_workspace_bytes() bytes on the plan's device, aligned to 256
 * bytes. It needs no initialisation. On the CPU it may be null with 0 bytes: then the run allocates
 * and frees its own.
 * stream: a cudaStream_t, or null for the default stream; ignored on the CPU.
 * On a GPU the call is asynchronous in the stream, allocates nothing and does not synchronise. The
 * thread's current GPU stays the same, unless that GPU has no context yet: then the call does not
 * create one, and the plan's GPU becomes the current one.
 * FLASHCORE_INVALID_ARGUMENT: a missing or misaligned pointer, inconsistent lengths, a
 * workspace that is too small. On an error nothing is launched and nothing is written. */
FLASHCORE_API flashcore_status flashcore_plan_run(const flashcore_plan* plan,
                                                  const flashcore_arguments* arguments,
                                                  void* workspace, size_t workspace_bytes,
                                                  void* stream);

/* -------------------------------------------------------------------------------------------------
 * Gradients */

/* The tensors that the backward pass reads and writes in addition to the problem's own. The problem
 * must have an lse; its o and lse are inputs of the backward pass. Each gradient has the shape of
 * its tensor. "f64": only the reference computes it. */
typedef struct flashcore_gradients {
  size_t struct_size;

  flashcore_tensor d_o; /* input; dtype of o */
  flashcore_tensor dq;  /* dtype of q, or f32, or f64 */
  flashcore_tensor dk;  /* as dq */
  flashcore_tensor dv;  /* as dq */

  /* Optional tensors: rank 0 means absent, the default. */
  flashcore_tensor d_lse;          /* input: a gradient that flows into lse; f32, or f64 */
  flashcore_tensor d_bias;         /* dtype of the bias, or f32, or f64 */
  flashcore_tensor d_sinks;        /* f32, or f64 */
  flashcore_tensor d_alibi_slopes; /* f32, or f64 */
} flashcore_gradients;

FLASHCORE_API flashcore_status flashcore_gradients_init(flashcore_gradients* gradients,
                                                        size_t struct_size);

/* The data of one backward run. Pointers to tensors that the gradients do not have are ignored. */
typedef struct flashcore_backward_arguments {
  size_t struct_size;
  const flashcore_arguments* forward; /* as in the forward pass; its o and lse are read */
  const void* d_o;
  void* dq;
  void* dk;
  void* dv;
  const void* d_lse;
  void* d_bias;
  void* d_sinks;
  void* d_alibi_slopes;
} flashcore_backward_arguments;

FLASHCORE_API flashcore_status
flashcore_backward_arguments_init(flashcore_backward_arguments* arguments, size_t struct_size);

/* Same as flashcore_plan_create, for the problem's backward pass. Run the
 * plan with flashcore_plan_run_backward. */
FLASHCORE_API flashcore_status flashcore_backward_plan_create(const flashcore_problem* problem,
                                                              const flashcore_gradients* gradients,
                                                              const flashcore_plan_options* options,
                                                              flashcore_plan** plan);

/* Computes the gradients; everything else is as in flashcore_plan_run. */
FLASHCORE_API flashcore_status flashcore_plan_run_backward(
    const flashcore_plan* plan, const flashcore_backward_arguments* arguments, void* workspace,
    size_t workspace_bytes, void* stream);

/* -------------------------------------------------------------------------------------------------
 * Serving: calls, not plans. They need no workspace and depend only on shapes. On a GPU they are
 * asynchronous in the stream. `options` may be null; only its device and threads are used. */

/* Partial results a and b of the same queries over disjoint keys. o and lse have the shapes that a
 * problem's have, dense or packed. */
typedef struct flashcore_merge_problem {
  size_t struct_size;
  flashcore_tensor o_a;   /* f32, f16 or bf16 */
  flashcore_tensor o_b;   /* the same shape and dtype */
  flashcore_tensor lse_a; /* f32 */
  flashcore_tensor lse_b;
  flashcore_tensor o;   /* dtype of o_a, or f32 */
  flashcore_tensor lse; /* optional: rank 0 means absent */
} flashcore_merge_problem;

typedef struct flashcore_merge_arguments {
  size_t struct_size;
  const void* o_a;
  const void* o_b;
  const float* lse_a;
  const float* lse_b;
  void* o;    /* may be o_a or o_b, with the same strides and dtype */
  float* lse; /* may be lse_a or lse_b */
} flashcore_merge_arguments;

FLASHCORE_API flashcore_status flashcore_merge_problem_init(flashcore_merge_problem* problem,
                                                            size_t struct_size);
FLASHCORE_API flashcore_status flashcore_merge_arguments_init(flashcore_merge_arguments* arguments,
                                                              size_t struct_size);

/* Merges both parts into attention over all their keys. On an error nothing is written. */
FLASHCORE_API flashcore_status flashcore_merge(const flashcore_merge_problem* problem,
                                               const flashcore_merge_arguments* arguments,
                                               const flashcore_plan_options* options, void* stream);

/* Appends new keys and values to a cache, with an optional rotation (RoPE). */
typedef struct flashcore_append_problem {
  size_t struct_size;
  flashcore_tensor k_new; /* [B, Hkv, Snew, Dqk]; packed: [total, Hkv, Dqk] */
  flashcore_tensor v_new; /* as k_new with Dv, dtype of k_new */
  flashcore_tensor k;     /* the cache, as in flashcore_problem. dtype of k_new, or fp8 */
  flashcore_tensor v;
  flashcore_tensor seqlens_kv; /* [B], i32: rows of the cache in use before the call */

  /* Optional tensors: rank 0 means absent, the default. */
  flashcore_tensor seqlens_new;    /* [B], i32: new rows in use */
  flashcore_tensor cu_seqlens_new; /* [B + 1], i32: the new rows are packed */
  flashcore_tensor page_table;     /* this to v_scale: as in flashcore_problem */
  flashcore_tensor kv_indptr;
  flashcore_tensor kv_indices;
  flashcore_tensor cache_leftpad;
  flashcore_tensor page_status;
  flashcore_tensor k_scale; /* for an fp8 cache: it stores the value divided by its scale */
  flashcore_tensor v_scale;
  flashcore_tensor rope_cos; /* [positions, rotary_dim / 2], f32 */
  flashcore_tensor rope_sin;
  flashcore_tensor q;     /* [B, Hq, Snew, Dqk]; packed: [total, Hq, Dqk]. dtype of k_new */
  flashcore_tensor q_out; /* rotated; may be q itself */

  int64_t kv_scale_block;
  int64_t rotary_dim;   /* with rope_base: number of rotated elements; default 0: all of Dqk */
  float rope_base;      /* above 0: angles are position * rope_scale * base^(-2n / rotary_dim) */
  float rope_scale;     /* default 1 */
  int32_t interleaved;  /* 1: pairs are (2n, 2n + 1); default 0: (n, n + rotary_dim / 2) */
  int32_t v_transposed; /* 1: v is [B, Hkv, Dv, columns], as in flashcore_problem; default 0 */
} flashcore_append_problem;

typedef struct flashcore_append_arguments {
  size_t struct_size;
  const void* k_new;
  const void* v_new;
  void* k;
  void* v;
  const int32_t* seqlens_kv;
  const int32_t* seqlens_new;
  const int32_t* cu_seqlens_new;
  const int32_t* page_table;
  const int32_t* kv_indptr;
  const int32_t* kv_indices;
  const int32_t* cache_leftpad;
  int32_t* page_status;
  const float* k_scale;
  const float* v_scale;
  const float* rope_cos;
  const float* rope_sin;
  const void* q;
  void* q_out;
} flashcore_append_arguments;

FLASHCORE_API flashcore_status flashcore_append_problem_init(flashcore_append_problem* problem,
                                                             size_t struct_size);
FLASHCORE_API flashcore_status
flashcore_append_arguments_init(flashcore_append_arguments* arguments, size_t struct_size);

/* On an error nothing is written. */
FLASHCORE_API flashcore_status flashcore_append(const flashcore_append_problem* problem,
                                                const flashcore_append_arguments* arguments,
                                                const flashcore_plan_options* options,
                                                void* stream);

/* One serving step in one call: appends, and then runs an attention plan over the same cache.
 * `arguments` must be as after flashcore_append: its seqlens_kv count the new rows, and its q may
 * be q_out. Both are checked before anything is written. The workspace is as in flashcore_plan_run,
 * and the options are as in flashcore_append. */
FLASHCORE_API flashcore_status flashcore_append_and_attend(
    const flashcore_append_problem* problem, const flashcore_append_arguments* rows,
    const flashcore_plan* plan, const flashcore_arguments* arguments,
    const flashcore_plan_options* options, void* workspace, size_t workspace_bytes, void* stream);

/* -------------------------------------------------------------------------------------------------
 * Quantisation: makes an fp8 tensor and its scales in the form that attention takes. Like serving:
 * a call, not a plan. `options` may be null; only its device and threads are used. */

typedef struct flashcore_quantize_problem {
  size_t struct_size;
  flashcore_tensor x;     /* [B, H, S, D]; packed: [total, H, D]. f32, f16 or bf16 */
  flashcore_tensor x_out; /* output, the same shape. f8e4m3 or f8e5m2 */
  flashcore_tensor scale; /* output, f32: [B|1, H|1], as q_scale, or [B|1, H|1, blocks|1] */

  /* Optional tensors: rank 0 means absent, the default. */
  flashcore_tensor mean;       /* output, [B, H, D], f32: subtracted from all rows first */
  flashcore_tensor cu_seqlens; /* [B + 1], i32: the rows are packed */
  flashcore_tensor seqlens;    /* [B], i32: rows in use */

  int64_t scale_block; /* rows per block; default 0: one block */
  int64_t max_seqlen;  /* packed: most rows per sequence; default 0: not known */
} flashcore_quantize_problem;

typedef struct flashcore_quantize_arguments {
  size_t struct_size;
  const void* x;
  void* x_out;
  float* scale;
  float* mean;
  const int32_t* cu_seqlens;
  const int32_t* seqlens;
} flashcore_quantize_arguments;

FLASHCORE_API flashcore_status flashcore_quantize_problem_init(flashcore_quantize_problem* problem,
                                                               size_t struct_size);
FLASHCORE_API flashcore_status
flashcore_quantize_arguments_init(flashcore_quantize_arguments* arguments, size_t struct_size);

/* On an error nothing is written. */
FLASHCORE_API flashcore_status flashcore_quantize(const flashcore_quantize_problem* problem,
                                                  const flashcore_quantize_arguments* arguments,
                                                  const flashcore_plan_options* options,
                                                  void* stream);

/* Transposes an fp8 v in rows, [B, H, S, D], to the layout of v_transposed in flashcore_problem.
 * v_out is an output of the same type, [B, H, D, columns], with columns a multiple of 128 and at
 * least S. Columns without a row become 0. On an error nothing is written. */
FLASHCORE_API flashcore_status flashcore_transpose_v(const flashcore_tensor* v, const void* v_data,
                                                     const flashcore_tensor* v_out,
                                                     void* v_out_data,
                                                     const flashcore_plan_options* options,
                                                     void* stream);

/* -------------------------------------------------------------------------------------------------
 * Verdicts */

/* The verdict of one kernel on a problem. A message that does not apply is "". The library writes
 * the struct and sets struct_size to the size that it knows; later members are not there. */
typedef struct flashcore_verdict {
  size_t struct_size;
  const char* kernel;
  const char* refusal;  /* why it cannot compute the problem; "": it can */
  const char* declines; /* why it leaves a problem that it could compute to another kernel,
                           unless it is asked for by name; "": it does not */
  const char* note;     /* a remark for callers about the kernel here */
  int32_t automatic;    /* 0: runs only when asked for by name */
  int32_t reserved;     /* zero */
} flashcore_verdict;

/* The struct and its strings live only during the call. The function must not leave by longjmp. */
typedef void (*flashcore_verdict_visitor)(void* user, const flashcore_verdict* verdict);

/* Calls `visit` for every kernel of the device, best first. A plan gets the kernel that a tuning
 * table names (its note says so), otherwise the first automatic one that neither refuses nor
 * declines, otherwise the first that only declines. options may be null.
 * Fails only for a bad problem, option or pointer, and then `visit` has not been called. */
FLASHCORE_API flashcore_status flashcore_visit_verdicts(const flashcore_problem* problem,
                                                        const flashcore_plan_options* options,
                                                        flashcore_verdict_visitor visit,
                                                        void* user);

/* Same as flashcore_visit_verdicts, for a backward pass. */
FLASHCORE_API flashcore_status flashcore_visit_backward_verdicts(
    const flashcore_problem* problem, const flashcore_gradients* gradients,
    const flashcore_plan_options* options, flashcore_verdict_visitor visit, void* user);

/* A smaller form of flashcore_visit_verdicts: kernel, refusal and automatic. */
typedef void (*flashcore_verdict_function)(void* user, const char* kernel, const char* refusal,
                                           int32_t automatic);

FLASHCORE_API flashcore_status flashcore_explain(const flashcore_problem* problem,
                                                 const flashcore_plan_options* options,
                                                 flashcore_verdict_function function, void* user);

/* Drops the loaded tuning tables (docs/tuning.md); later plans load them again. A device's table is
 * loaded once, when the first plan for the device is made. */
FLASHCORE_API void flashcore_reload_tuning(void);

/* -------------------------------------------------------------------------------------------------
 * Dropout */

/* *keeps = 1 if dropout keeps the pair (query, key) of a sequence and query head, otherwise 0.
 * The mask is a pure function of these arguments, the same on every backend.
 * FLASHCORE_INVALID_ARGUMENT: null, dropout_p outside [0, 1], an index outside [0, 2^31). */
FLASHCORE_API flashcore_status flashcore_dropout_keeps(uint64_t seed, uint64_t offset,
                                                       float dropout_p, int64_t batch, int64_t head,
                                                       int64_t query, int64_t key, int32_t* keeps);

/* -------------------------------------------------------------------------------------------------
 * Attention over several GPUs: the schedule of one rank, as data (context_parallel.hpp, and
 * docs/distributed.md). */

/* How rows are cut into shards. */
enum {
  FLASHCORE_CONTIGUOUS = 0, /* one piece for each rank, in order */
  FLASHCORE_ZIGZAG = 1      /* two pieces for each rank: r and 2 * world - 1 - r */
};

enum {
  FLASHCORE_AUTOMATIC = 0, /* the one with the lowest predicted time */
  FLASHCORE_RING = 1,
  FLASHCORE_ALL_GATHER = 2,
  FLASHCORE_ULYSSES = 3
};

typedef struct flashcore_context_problem {
  size_t struct_size;
  int32_t world;            /* number of ranks; default 1 */
  int32_t rank;             /* the rank whose plan is made; default 0 */
  int32_t layout;           /* default FLASHCORE_ZIGZAG */
  int32_t algorithm;        /* default FLASHCORE_AUTOMATIC */
  int64_t documents;        /* lengths in each of the next two; a dense batch is one document */
  const int64_t* seqlens_q; /* rows of each document, over all ranks */
  const int64_t* seqlens_kv;
  int32_t causal;    /* default 0 */
  int32_t alignment; /* FLASHCORE_BOTTOM_RIGHT, the default, or FLASHCORE_TOP_LEFT */
  int64_t window_left;
  int64_t window_right;
  /* For the predicted times, and, the heads, for Ulysses; the defaults are as in C++. */
  int64_t batch;
  int64_t heads_q;
  int64_t heads_kv;
  int64_t head_dim_qk;
  int64_t head_dim_v;
  int64_t element_bytes;
  double link_bytes_per_second;
  double flops_per_second;
} flashcore_context_problem;

FLASHCORE_API flashcore_status flashcore_context_problem_init(flashcore_context_problem* problem,
                                                              size_t struct_size);

typedef struct flashcore_context_plan flashcore_context_plan;

/* FLASHCORE_INVALID_ARGUMENT: malformed; FLASHCORE_UNSUPPORTED: ulysses with heads that the ranks
 * do not divide. On an error *plan is null. */
FLASHCORE_API flashcore_status flashcore_context_plan_create(
    const flashcore_context_problem* problem, flashcore_context_plan** plan);

/* Null is allowed. What the plan's functions returned points into it. */
FLASHCORE_API void flashcore_context_plan_destroy(flashcore_context_plan* plan);

/* Set struct_size of this and the next two structs first; they are filled in up to that size. */
typedef struct flashcore_context_info {
  size_t struct_size;
  int32_t algorithm;  /* never FLASHCORE_AUTOMATIC */
  int32_t initialise; /* 1: O begins as 0, the LSE as -inf, and every call is merged */
  int64_t rows_q;     /* of this rank's shards */
  int64_t rows_kv;
  int64_t steps;
  int64_t num_pieces_q; /* of every rank, in order of rank and place */
  int64_t num_pieces_kv;
  const int64_t* pieces_q; /* four numbers each: rank, first row, its place in the shard, rows */
  const int64_t* pieces_kv;
  double ring_seconds; /* predicted for a forward pass; infinite: it is not possible */
  double all_gather_seconds;
  double ulysses_seconds;
} flashcore_context_info;

FLASHCORE_API flashcore_status flashcore_context_plan_info(const flashcore_context_plan* plan,
                                                           flashcore_context_info* info);

/* Ranks; -1: none. */
typedef struct flashcore_context_step {
  size_t struct_size;
  int32_t owner;        /* ring: whose K and V this rank has now */
  int32_t send_to;      /* the K and V at hand go there, while the calls run */
  int32_t send_own_to;  /* the rank's own K and V go there */
  int32_t receive_from; /* the next step's K and V come from there */
  /* Backward: the rank adds its dK and dV of other owners' blocks to the sum that came with them. */
  int32_t gradient_to;   /* after the calls, the sum at hand goes there, at last to the owner */
  int32_t gradient_from; /* the next step's comes from there */
  int32_t gradient_home_from; /* a complete one of this rank's own comes from there */
  int32_t reserved;           /* zero */
  int64_t calls;
} flashcore_context_step;

FLASHCORE_API flashcore_status flashcore_context_plan_step(const flashcore_context_plan* plan,
                                                           int64_t step,
                                                           flashcore_context_step* info);

typedef struct flashcore_context_call {
  size_t struct_size;
  int64_t window_left; /* as in flashcore_problem, with FLASHCORE_GIVEN */
  int64_t window_right;
  int64_t num_blocks;
  const int64_t* blocks; /* five numbers each: q_begin, q_end, kv_begin, kv_end, causal_offset */
} flashcore_context_call;

FLASHCORE_API flashcore_status flashcore_context_plan_call(const flashcore_context_plan* plan,
                                                           int64_t step, int64_t call,
                                                           flashcore_context_call* info);

/* -------------------------------------------------------------------------------------------------
 * Build */

/* The version of the running library, such as "0.1.0". */
FLASHCORE_API const char* flashcore_version(void);

/* Filled in by the library, up to struct_size bytes. The strings are never freed. */
typedef struct flashcore_build_info {
  size_t struct_size;
  const char* version;
  const char* compiler;     /* "GNU 12.2.0" */
  const char* build_type;   /* "Release" */
  const char* cuda_targets; /* "80+ptx;89;90a", or "" */
  const char* cpu_target;   /* the SIMD target that runs here */
  int32_t cuda;             /* 1: CUDA kernels are compiled in */
  int32_t reserved;         /* zero */
} flashcore_build_info;

/* Set info->struct_size first. */
FLASHCORE_API flashcore_status flashcore_build_info_get(flashcore_build_info* info);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif
