// What of a program holds for every run: where each buffer's memory comes from, from which step to which it is needed,
// and which sizes the inputs define.
#pragma once

#include <unordered_map>

#include "kernel/from_graph/program.h"
#include "runtime/bind_sizes.h"
#include "runtime/kernel_access.h"

namespace tessera {

// Where a buffer's memory comes from.
enum class Home : uint8_t {
    Input,     // the caller's tensor
    Constant,  // of the program
    Prepared,  // filled once, when the program is loaded
    Host,      // a tensor, or another value, created by a host step
    Output,    // allocated in each run and returned to the caller
    Arena,     // of the run's context
    Device,    // of the run's context, in the memory of another device
};

struct ProgramLayout {
    explicit ProgramLayout(const Program& program);

    std::vector<int> root;   // by buffer: the one that has the memory
    std::vector<Home> home;  // by buffer: that of its root
    std::vector<int> first;  // by root: the step that first writes it; 0 for what is there from the beginning
    std::vector<int> last;   // by root: the last step that uses it; outputs and what is never used: the last there is
    std::vector<bool> in_kernel;                                      // by root: a kernel step uses it
    std::vector<bool> in_run;                                         // by root: some step uses it, or it is an output
    std::vector<KernelAccess> access;                                 // by kernel
    std::vector<std::vector<std::pair<const Value*, int>>> captures;  // by step: values that nested graphs use, buffers
    std::vector<size_t> ahead;  // steps that check inputs, with their dependencies: they can run before all others
    std::vector<bool> checks_ahead;  // by step: a check among them
    size_t most_args = 0;
    std::vector<SizeSource> sizes;

  private:
    void find_ahead(const Program& program);
};

}  // namespace tessera
