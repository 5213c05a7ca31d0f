// A place in the source, in eight bytes: every record of
// an access keeps one, so that a finding names both lines.
//
// A wrapper passes Site::here() as a default argument, which is the caller's line. A plain
// access knows only its program counter; its line is looked up when a finding is written.
#pragma once

#include <cstdint>
#include <string>

namespace flashcore::sim {

class Site {
 public:
  constexpr Site() = default;

  static Site here(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    return Site(reinterpret_cast<uintptr_t>(file) | (uint64_t{line} << kAddressBits));
  }
  static Site of_instruction(const void* program_counter) {
    return Site(reinterpret_cast<uintptr_t>(program_counter));
  }

  explicit operator bool() const { return bits_ != 0; }
  bool operator==(const Site&) const = default;
  uint64_t bits() const { return bits_; }

  // "consumer.cuh:120"; for a plain access, the line in the debug information.
  std::string text() const;

 private:
  static constexpr int kAddressBits = 48;  // user space on x86-64 and arm64
  explicit Site(uint64_t bits) : bits_(bits) {}

  uint64_t bits_ = 0;  // low: address of the file's name, or of the instruction; high: line, or 0
};

}  // namespace flashcore::sim
