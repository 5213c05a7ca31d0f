// runtime
KERNEL(SIGNATURE) {
  honest(ARGUMENTS);
  if (row_of_thread() == 0) __trap();
}
