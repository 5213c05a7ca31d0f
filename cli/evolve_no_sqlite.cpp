// Builds without SQLite cannot store a run.
#include "cli/command.hpp"

namespace flashcore::cli {

Command evolve_command() {
  return {.name = "evolve",
          .summary = "Improve a kernel in a loop, gates first",
          .examples = "",
          .declare = [](OptionSet&) {},
          .execute = [](Session&) -> Result<ExitCode> {
            return Status(StatusCode::unsupported,
                          "evolve: needs SQLite, which this build is without; install "
                          "libsqlite3-dev and build again");
          },
          .takes_any_words = true};
}

}  // namespace flashcore::cli
