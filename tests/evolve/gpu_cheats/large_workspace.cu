// resources: workspace
//@ launch workspace 1000000000000
KERNEL(SIGNATURE) { honest(ARGUMENTS); }
