// Builds without CUDA have no ladder to climb and no GPU to profile.
#include <memory>
#include <string>

#include "cli/command.hpp"

namespace flashcore::cli {
namespace {

Command without_cuda(std::string name, std::string summary) {
  const std::string sentence = name + ": needs the CUDA kernels, which this build is without";
  return {.name = std::move(name),
          .summary = std::move(summary),
          .examples = "",
          .declare = [](OptionSet&) {},
          .execute = [sentence](Session&) -> Result<ExitCode> {
            return Status(StatusCode::unsupported, sentence);
          },
          .takes_any_words = true};
}

}  // namespace

Command ladder_command() {
  return without_cuda("ladder", "Gate and time every rung of the ladder, and write the evidence");
}

Command profile_command() {
  return without_cuda("profile", "Say what limits a kernel, from profiler counters");
}

}  // namespace flashcore::cli
