// What the evaluator and the process that runs a candidate say to each other, over one socket.
#pragma once

#include <cstdint>

namespace flashcore::evolve {

inline constexpr const char* kEntryPoint = "attention";

// The entry point of a CPU candidate, in C. Tensors are contiguous, [B, H, S, D] and [B, H, S].
using EntryPoint = void (*)(const float* q, const float* k, const float* v, float* o, float* lse,
                            int64_t batch, int64_t heads_q, int64_t heads_kv, int64_t seqlen_q,
                            int64_t seqlen_kv, int64_t head_dim, float scale);

// Where the tensors of one call lie, in bytes: q, k and v from the beginning of the inputs' memory,
// o and lse from that of the outputs'.
struct CallTensors {
  uint64_t q, k, v, o, lse;
};

struct CallShape {
  int64_t batch, heads_q, heads_kv, seqlen_q, seqlen_kv, head_dim;
  float scale;
};

// Calls one after the other; their CallTensors are a list in the inputs' memory.
struct RunCommand {
  uint64_t nonce;  // the answer repeats it
  uint64_t calls;
  uint64_t list;                       // where it begins
  uint64_t input_bytes, output_bytes;  // of each memory that are in use
  CallShape shape;
};

enum class AnswerKind : uint32_t {
  ready,      // loaded; `detail` is what of Isolation is in force
  done,       // the calls returned
  forbidden,  // the system call `detail` was refused
  failed,     // not loaded; `detail` says why (LoadFailure)
};

struct Answer {
  AnswerKind kind;
  uint32_t detail;
  uint64_t nonce;
};

enum class LoadFailure : uint32_t { memory, folder, filter, object, entry };

// Bits of `ready`. Limits and the filter of system calls are always in force.
enum Isolation : uint32_t { isolated_network = 1, isolated_files = 2 };

}  // namespace flashcore::evolve
