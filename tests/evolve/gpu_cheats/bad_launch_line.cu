// compile: lacks a number
//@ launch shared 8 *
KERNEL(SIGNATURE) { honest(ARGUMENTS); }
