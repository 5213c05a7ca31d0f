// The protocol between the evaluator and a candidate's process, over one socket.
#pragma once

#include <cstdint>

namespace flashcore::evolve {

inline constexpr const char* kEntryPoint = "attention";

// The entry point of a CPU candidate, in C. Tensors are contiguous, [B, H, S, D] and [B, H, S].
using EntryPoint = void (*)(const float* q, const float* k, const float* v, float* o, float* lse,
                            int64_t batch, int64_t heads_q, int64_t heads_kv, int64_t seqlen_q,
                            int64_t seqlen_kv, int64_t head_dim, float scale);

// Byte offsets of one call's tensors: q, k and v in the inputs' memory, o and lse in
// the outputs' memory.
struct CallTensors {
  uint64_t q, k, v, o, lse;
};

struct CallShape {
  int64_t batch, heads_q, heads_kv, seqlen_q, seqlen_kv, head_dim;
  float scale;
};

// Runs calls one after the other; the list of their CallTensors is in the inputs' memory.
struct RunCommand {
  uint64_t nonce;  // repeated in the answer
  uint64_t calls;
  uint64_t list;                       // offset of the list
  uint64_t input_bytes, output_bytes;  // used bytes of each memory
  CallShape shape;
};

enum class AnswerKind : uint32_t {
  ready,      // loaded; `detail`: bits of Isolation in force
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
