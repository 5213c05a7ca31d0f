// resources: shared memory
//@ launch shared 1000000
KERNEL(SIGNATURE) { honest(ARGUMENTS); }
