// Every subcommand, in the order of `flashcore --help`.
#include "cli/command.hpp"

namespace flashcore::cli {

std::vector<Command> all_commands() {
  return {
      run_command(),     quantize_command(), verify_command(), bench_command(),
      compare_command(), explain_command(),  info_command(),   tune_command(),
      ladder_command(),  profile_command(),  evolve_command(),
  };
}

}  // namespace flashcore::cli
