// valid
KERNEL(SIGNATURE) { honest(ARGUMENTS); }
