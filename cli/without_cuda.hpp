// A stub for subcommands in builds without the CUDA kernels.
#pragma once

#include <string>
#include <utility>

#include "cli/command.hpp"

namespace flashcore::cli {

inline Command without_cuda(std::string name, std::string summary) {
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

}  // namespace flashcore::cli
