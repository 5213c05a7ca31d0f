// libFuzzer target: any bytes as a document that the command reads: cases, evidence, a task of evolve, a proposer's
// request and proposal. The first byte says which. What is refused has a message.
//   documents_fuzz -max_total_time=60 CORPUS_DIRECTORY
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "bench/evidence/evidence_file.hpp"
#include "evolve/task/task.hpp"

namespace {

using flashcore::Status;

// The readers take a file's name.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view text) : file_(::memfd_create("document", MFD_CLOEXEC)) {
    if (file_ < 0 ||
        ::write(file_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      std::abort();
    }
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(file_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

Status read(int kind, std::string_view text) {
  using namespace flashcore;
  const MemoryFile file(text);
  if (kind == 0) return bench::read_cases(file.path()).status();
  if (kind == 1) return bench::read_evidence(file.path()).status();
  const auto json = bench::read_json(file.path());
  if (!json.ok()) return json.status();
  if (kind == 2) return evolve::task_from(*json).status();
  return kind == 3 ? evolve::check_request(*json) : evolve::check_proposal(*json);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Status status = read(*data % 5, text);
  if (!status.ok() && status.message().empty()) std::abort();
  return 0;
}
