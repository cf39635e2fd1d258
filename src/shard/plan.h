// The partitioned program, the same for all ranks: what each step computes, moves and combines, and which box of every
// tensor each rank has. Only ranges and boxes differ between ranks, so that all make the same sequence of collectives.
#pragma once

#include <variant>

#include "shard/propagate.h"
#include "shard/rates.h"

namespace tessera::shard {

// A tensor as the ranks hold it.
struct Held {
    const Value* value = nullptr;  // of the graph, or the one that it is a part of the computation of
    DType dtype = DType::f32;
    std::optional<Sizes> sizes;  // none: every rank has all of it, whatever it is
    Placement boxes;             // by rank
    bool source = false;         // an input or a constant of the graph
};

// Elements by an op's body, for ranges of its variables; without a body, the node itself from whole operands.
struct ComputeStep {
    const Unit* unit = nullptr;
    std::optional<Expr> body;  // loads of slots beyond the node's inputs are of `more`
    std::vector<Variable> variables;
    std::vector<Ranges> ranges;              // by rank
    std::vector<std::optional<int>> inputs;  // what is held of each slot that is read
    std::vector<int> results;                // held; of a node without a body one for each output
    bool own = false;                        // the body is the op's own
};

// The elements of `from` to where `to` has them.
struct MoveStep {
    int from = 0, to = 0;
};

// The ranks that differ along the axes only have terms of the same box; their combination goes to where `to` has it.
struct CombineStep {
    int from = 0, to = 0;
    ReduceOp op = ReduceOp::Sum;
    std::vector<size_t> axes;
};

using PlanStep = std::variant<ComputeStep, MoveStep, CombineStep>;

// Calls f(held) for what a step reads.
template <typename F>
void for_each_read(const PlanStep& step, const F& f) {
    if (auto* c = std::get_if<ComputeStep>(&step)) {
        for (const auto& in : c->inputs)
            if (in) f(*in);
    } else if (auto* m = std::get_if<MoveStep>(&step)) {
        f(m->from);
    } else {
        f(std::get<CombineStep>(step).from);
    }
}

struct Plan {
    Mesh mesh;
    std::shared_ptr<const Graph> graph;
    std::vector<Unit> units;
    Shardings shardings;
    std::vector<std::string> conflicts;
    std::vector<Held> held;
    std::vector<PlanStep> steps;
    std::vector<size_t> cuts;  // numbers of steps, ascending, from which on computation may wait for other collectives
    std::vector<int> inputs, outputs;  // held, of the graph's inputs and outputs
    std::vector<bool> in_parts;        // by input: a rank is given its part of it, not the whole
};

// An output that takes an input's place in the next run, such as an updated weight: each rank is given and gives its
// part. All other outputs are whole on every rank.
struct KeptState {
    size_t input = 0;
    std::optional<size_t> output = {};  // none: it stays as it is
};

struct PlanOptions {
    std::vector<KeptState> kept = {};
    Rates rates = {};
    // Instead of the rates: operations of a device in the time in which it receives a byte, without latencies.
    std::optional<double> operations_per_byte = {};
    // Operations that are worth a segment of their own beside a collective that they do not wait for.
    double overlap_operations = 1 << 26;
    bool whole_outputs = true;  // every rank has all of them; otherwise the parts that their shardings give it
    // Draws a number below n: then divisions are drawn and not chosen by cost. For tests.
    std::function<size_t(size_t)> draw = {};
    Rates chosen_rates() const { return operations_per_byte ? byte_rates(*operations_per_byte) : rates; }
};

// `given` shardings are of values of the graph, whose sizes are constants. E0409 for graphs with control flow or random
// numbers.
Result<std::unique_ptr<Plan>> make_plan(std::shared_ptr<const Graph> graph, const Mesh& mesh, const Shardings& given,
                                        const PlanOptions& options = {});

bool is_local(const Plan& plan, const MoveStep& move);  // every rank has what it needs
// What a collective is called: all_gather, all_to_all, halo_exchange, slice; all_reduce, reduce_scatter.
std::string_view kind_of(const Plan& plan, const PlanStep& step);
// Bytes that a rank receives, at most.
int64_t received_bytes(const Plan& plan, const PlanStep& step);
int64_t element_bytes(DType dtype);

}  // namespace tessera::shard
