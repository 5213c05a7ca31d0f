// runtime
KERNEL(SIGNATURE) {
  honest(ARGUMENTS);
  if (row_of_thread() == 0) *reinterpret_cast<volatile int*>(16) = 1;
}
