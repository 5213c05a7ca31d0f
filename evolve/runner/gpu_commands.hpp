// The protocol between the evaluator and a GPU candidate's process, over one socket:
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

// Precedes the text, whose lines are: the object's path, then "value NAME NUMBER" for the
// parameters of the source, and its launch lines.
struct GpuLoad {
  uint64_t input_bytes, output_bytes;  // sizes of the two memories whose descriptors follow
  uint64_t workspace_bytes;            // limit, for all calls together
  uint32_t type;                       // dtype of q, k, v and o: DType
  uint32_t text_bytes;
};
inline constexpr uint32_t kLongestLoadText = 64 << 10;

enum class GpuAnswerKind : uint32_t {
  ready,
  loaded,
  prepared,
  launched,
  done,
  // All others have a text. Errors of the candidate:
  no_entry,
  wrong_signature,
  wrong_launch,  // invalid launch lines or launch
  too_large,     // the GPU lacks the requested resources
  fault,         // it failed while running
  wrote_inputs,
  // Errors of this machine:
  broken,
};

struct GpuAnswer {
  GpuAnswerKind kind;
  uint32_t isolation;  // with `ready`: bits of Isolation
  uint64_t nonce;
  double seconds;                                // with `launched`
  int64_t registers, local_bytes, shared_bytes;  // with `loaded`: per thread, and static per block
  int64_t blocks, threads, dynamic_bytes;        // with `prepared`
  char text[160];
};

}  // namespace flashcore::evolve
