#include "bench/tune/table_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>

#include "bench/io/atomic_file.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

// Held while it lives; the system releases it when the process ends, for any reason.
class FileLock {
 public:
  static Result<FileLock> take(const std::string& path) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor < 0) {
      return invalid("{}: cannot be opened ({}), wanted a path in a writable directory", path,
                     std::strerror(errno));
    }
    FileLock lock(descriptor);
    while (::flock(descriptor, LOCK_EX) != 0) {
      if (errno != EINTR) return invalid("{}: cannot be locked ({})", path, std::strerror(errno));
    }
    return lock;
  }
  FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

}  // namespace

Result<tuning::TunedTable> open_table(const std::string& path, const tuning::TunedDevice& device) {
  Result<tuning::ReadTable> read = tuning::read_table(path);
  if (!read.ok()) return read.status();
  if (!read->is_there) return tuning::TunedTable{.device = device, .entries = {}};
  if (read->table.device == device) return std::move(read->table);
  return invalid("{}: is for {} with {} SMs, wanted a table for {} with {}", path,
                 read->table.device.name, read->table.device.multiprocessors, device.name,
                 device.multiprocessors);
}

Status update_table(const std::string& path, const tuning::TunedDevice& device,
                    const std::function<void(tuning::TunedTable&)>& change) {
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
  const Result<FileLock> lock = FileLock::take(path + ".lock");
  if (!lock.ok()) return lock.status();
  Result<tuning::TunedTable> table = open_table(path, device);
  if (!table.ok()) return table.status();
  change(*table);
  return io::write_text(path, tuning::table_text(*table));
}

}  // namespace flashcore::bench
