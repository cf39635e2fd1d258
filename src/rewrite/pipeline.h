// Runs a table of passes on a graph, phase by phase, with what is asked for around them: a look after each pass, an end
// after one of them, a check of the graph. The optimizer and lowering are such tables.
#pragma once

#include "rewrite/pass.h"

namespace tessera {

// Debugging options of a pipeline.
struct PassWatch {
    std::string stop_after = {};  // a pass: its first run is the last thing done
    bool verify = false;          // after each pass; always so in debug builds
    std::function<void(const std::string& pass, const Graph& graph, Changed changed)> after = {};
};

// E0501, with a hint, where the table has no such pass.
Status check_pass_name(const std::string& name, const std::vector<Pass>& table);

struct PassTime {
    std::string pass;
    size_t runs = 0, rewrites = 0;
    double seconds = 0;
};

class Pipeline {
  public:
    Pipeline(Graph& graph, std::vector<Pass> passes, PassContext& context, const PassWatch& watch);

    // The passes of a phase that are not optional, or that `with` names.
    Status run_phase(Phase phase, const std::vector<std::string>& with = {});
    // Whether running all phases again would leave the graph as it is, as far as they have shown: the last iteration of
    // the first phase and all of the second changed nothing, and tidying does not any more.
    Result<bool> at_rest();

    const std::vector<PassTime>& times() const { return times_; }  // in the order of the table
    int iterations() const { return iterations_; }                 // of the first phase
    bool settled() const { return settled_; }                      // false: a phase was ended at kMostIterations
    bool stopped() const { return stopped_; }                      // by the watch

  private:
    Result<Changed> run_pass(size_t i, const PassWatch& watch);
    // Whether the graph has changed since the pass last looked at it.
    bool stale(size_t i) const { return seen_[i] != version_; }
    bool is_in(size_t i, Phase phase) const;

    Graph& graph_;
    std::vector<Pass> passes_;
    PassContext& context_;
    const PassWatch& watch_;
    std::vector<PassTime> times_;
    std::vector<size_t> seen_;  // by pass: the graph's version after which it had nothing to do
    size_t version_ = 0;
    int iterations_ = 0;
    bool settled_ = true, stopped_ = false;
    bool written_out_ = false, tidied_ = false;  // those phases changed something
};

}  // namespace tessera
