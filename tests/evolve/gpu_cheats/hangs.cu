// timeout
KERNEL(SIGNATURE) {
  while (static_cast<volatile float*>(lse)[0] != 12345.0F) {
  }
}
