// compile: no extern "C" __global__ function
// Host code is not linked, so this constructor never runs.
struct Patch {
  Patch() { *static_cast<volatile int*>(nullptr) = 1; }
};
static Patch patch;
// gpu only: for the stub it would run.
extern "C" __global__ void other(SIGNATURE) { honest(ARGUMENTS); }
