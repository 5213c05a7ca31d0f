// Compiles GPU candidates before a run, at once and where there need be no GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "evolve/evaluate/compile.hpp"

namespace flashcore::evolve {

struct Ahead {
  std::string name;
  Program program;
};

// On so many threads. `tell` gets what became of each, one call at a time.
Status compile_ahead(const Task& task, const std::vector<Ahead>& programs, const Tools& tools,
                     int threads, const std::function<void(const Ahead&, const Finding&)>& tell);

}  // namespace flashcore::evolve
