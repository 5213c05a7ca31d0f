// Programmatic dependent launch (sm_90): a kernel that starts while the one before it in the stream
// still runs. Without the launch attribute both instructions do nothing.
#pragma once

namespace flashcore::cuda::ptx {

// Waits until the grids that this one depends on have completed and their writes
// are visible. Before it, nothing that they may write may be read, and nothing that
// they may use may be written. Some thread of every block calls this: the next grid
// in the stream relies on it, since it may start when this one is complete.
// PTX ISA: griddepcontrol.wait, sm_90.
__device__ __forceinline__ void wait_for_earlier_grids() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Lets the next grid start once every block of this one has called this or has exited.
// PTX ISA: griddepcontrol.launch_dependents, sm_90.
__device__ __forceinline__ void start_next_grid() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace flashcore::cuda::ptx
