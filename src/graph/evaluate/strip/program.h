// Runs one node of a plan over a box of loop variables. Values are computed in strips: runs of consecutive values of
// one loop variable, the lane variable; what does not depend on it is computed once a strip. Evaluation is lazy and
// remembers: a value is computed when first needed after a variable it depends on has changed, and never under a
// condition that does not hold.
#pragma once

#include <unordered_map>
#include <vector>

#include "graph/evaluate/strip/plan.h"

namespace tessera::strip {

inline constexpr int64_t kStrip = 512;  // the most lanes in a strip

// Where results go: element (sum over the box of (value - begin) * stride), in `dtype`.
struct Target {
    DType dtype;
    void* data;
};

struct BoxDim {
    int var;
    int64_t begin, count, stride;
};

// An index that was out of bounds.
struct Fault {
    int slot = 0, dim = 0;
    int64_t index = 0, extent = 0;
};

class Program {
  public:
    // For runs over boxes about as large as this one; their variables cover the root's.
    Program(const Plan& plan, int root, const std::vector<BoxDim>& typical);

    // False where an index was out of bounds; fault() says which.
    bool run(const std::vector<BoxDim>& box, Target target);
    const Fault& fault() const { return fault_; }

  private:
    struct Mask {
        const int64_t* lanes;  // 0 or 1; null: all
        int64_t id;            // not 0 where there are lanes
    };
    struct Range {  // lanes [begin, end), those of the mask
        int64_t begin, end;
        Mask mask;
    };
    struct RunNode {
        const PlanNode* plan;
        int lane;               // the variable whose strip this is, or -1: one value
        std::vector<int> args;  // run nodes, as the plan node's; -1 stays
        std::vector<int> gathers;
        std::vector<int> vars;       // what it depends on, the fastest first
        int inner_lane = -1;         // Reduce: the axis it strips over by itself
        std::vector<int> loops;      // Reduce: the other axes
        int64_t* integer = nullptr;  // the values; real ones are doubles in the same memory
        int64_t *scratch = nullptr, *scratch2 = nullptr;
        int64_t tick = -1, begin = 0, end = 0, mask_id = 0;  // when, and for which lanes, the values were computed
        double* real() const { return reinterpret_cast<double*>(integer); }
    };

    int instantiate(int node, int lane);
    void place_buffers();
    int64_t width(int lane) const;  // lanes that a strip of that variable may have
    int64_t width(const RunNode& n) const {
        return width(n.plan->op == Op::Reduce && n.lane < 0 ? n.inner_lane : n.lane);
    }

    bool fresh(const RunNode& n, const Range& r) const {
        for (int v : n.vars)
            if (changed_[v] > n.tick) return false;
        return n.tick >= 0 && n.begin <= r.begin && r.end <= n.end && (n.mask_id == 0 || n.mask_id == r.mask.id);
    }
    bool eval(int id, const Range& r) {
        RunNode& n = nodes_[id];
        if (n.lane < 0) return fresh(n, kOne) || compute(n, kOne);
        return fresh(n, r) || compute(n, r);
    }
    bool compute(RunNode& n, const Range& r);
    bool load(RunNode& n, const Range& r);
    bool gather(RunNode& n, const Range& r, int64_t base, int64_t stride, bool check);
    bool apply(RunNode& n, const Range& r);
    bool select(RunNode& n, const Range& r);
    bool blend(RunNode& n, const Range& r);
    bool take_branch(RunNode& n, int branch, const Range& r);
    bool reduce_lanes(RunNode& n, const Range& r);
    bool reduce_across(RunNode& n);
    void start_accumulating(RunNode& n, int64_t* acc, int64_t begin, int64_t end);
    void accumulate_into(RunNode& n, int64_t* acc, int64_t begin, int64_t end);
    bool advance(const std::vector<int>& loops);
    void narrow(const PlanNode& test, int lane, int64_t& begin, int64_t& end) const;
    int64_t value_at(const Affine& a) const;
    bool within(const PlanNode& n, int lane, const Range& r) const;  // whether every check holds on the whole range
    bool fail(const PlanNode& n, int dim, int64_t index, int64_t extent);
    void set(int var, int64_t value) {
        current_[var] = value;
        changed_[var] = ++now_;
    }
    void store(const Target& target, int64_t offset, int64_t stride, int64_t count);

    static constexpr Range kOne{0, 1, {}};

    const Plan& plan_;
    int lane_ = -1;
    int root_ = -1;
    std::vector<RunNode> nodes_;
    std::unordered_map<int64_t, int> made_;  // (plan node, lane) -> run node
    std::vector<int64_t> memory_;
    std::vector<int64_t> current_, changed_;
    int64_t now_ = 0, masks_ = 0;
    Fault fault_;
};

// How much time a value of `root` takes in strips along `lane` of `length`, in nanoseconds or so; lane -1: one at a
// time.
double strip_cost(const Plan& plan, int root, int lane, int64_t length);

// The lane variable of a uniform reduction, or -1.
int best_axis(const Plan& plan, const PlanNode& reduce);

}  // namespace tessera::strip
