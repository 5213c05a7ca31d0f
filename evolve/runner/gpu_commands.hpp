// What the evaluator and the process that runs a GPU candidate say to each other, over one socket:
//
//   process                evaluator
//   ready                                    it has a context
//                          GpuLoad and text  memories as descriptors, object, launch lines
//   loaded                                   or refused
//                          RunCommand        (commands.hpp)
//   prepared                                 inputs and poison are on the GPU
//                          nonce             now: the evaluator's clock runs, too
//   launched                                 and how long it took between events
//   done                                     outputs are in the shared memory
#pragma once

#include <cstdint>

namespace flashcore::evolve {

// Before the text, which has lines: the object's path, then "value NAME NUMBER" for the parameters of
// the source, and its launch lines.
struct GpuLoad {
  uint64_t input_bytes, output_bytes;  // of the two memories that come with it
  uint64_t workspace_bytes;            // most that may be asked for, all calls together
  uint32_t type;                       // of q, k, v and o: DType
  uint32_t text_bytes;
};
inline constexpr uint32_t kLongestLoadText = 64 << 10;

enum class GpuAnswerKind : uint32_t {
  ready,
  loaded,
  prepared,
  launched,
  done,
  // The rest have a text. By the candidate's fault:
  no_entry,
  wrong_signature,
  wrong_launch,  // its launch lines, or what they ask for
  too_large,     // the GPU does not have what it asks for
  fault,         // it failed as it ran
  wrote_inputs,
  // By this machine's:
  broken,
};

struct GpuAnswer {
  GpuAnswerKind kind;
  uint32_t isolation;  // of `ready`: bits of Isolation
  uint64_t nonce;
  double seconds;                                // of `launched`
  int64_t registers, local_bytes, shared_bytes;  // of `loaded`: of a thread, and static of a block
  int64_t blocks, threads, dynamic_bytes;        // of `prepared`
  char text[160];
};

}  // namespace flashcore::evolve
