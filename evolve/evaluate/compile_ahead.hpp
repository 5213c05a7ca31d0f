// Compiles GPU candidates before a run, in parallel and without a GPU.
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

// On this many threads. `tell` gets each result, one call at a time.
Status compile_ahead(const Task& task, const std::vector<Ahead>& programs, const Tools& tools,
                     int threads, const std::function<void(const Ahead&, const Finding&)>& tell);

}  // namespace flashcore::evolve
