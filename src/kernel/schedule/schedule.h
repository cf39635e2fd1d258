// A schedule: how to carry out a Compute, as a list of primitives, each checked when it is applied and recorded in a
// trace that can be printed and replayed. Nothing is computed here; lower() turns the whole into a Kernel.
//
// Each stage starts as a nest of its axes, then its reduction axes, all serial, at the top (`root`), in the order of
// the stages. Names: a loop is called `<stage>.<axis>`; a split of `m.i` gives `m.i.o` and `m.i.i`, a fusion of `a.i`
// and `a.j` `a.i_j`.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernel/ir/compute.h"
#include "kernel/schedule/stage_plan.h"

namespace tessera {

struct Loop {
    std::string name;  // unique in the schedule
    bool operator==(const Loop&) const = default;
};

struct TraceStep {
    std::string primitive;
    std::vector<std::string> args;     // names and numbers, as printed
    std::vector<std::string> results;  // names of loops and stages that it made
};

class Schedule {
  public:
    explicit Schedule(Compute compute);
    const Compute& compute() const { return compute_; }
    const Compute& start() const { return start_; }  // before the first primitive: what the trace applies to
    const std::vector<TraceStep>& trace() const { return trace_; }

    // Reading.
    std::vector<Loop> loops(std::string_view stage) const;  // outermost first
    Expr extent(const Loop& loop) const;                    // where the stage is computed whole
    bool reduces(const Loop& loop) const;

    // Loops. A split whose factor does not divide the extent guards the last iteration (or see pad, loop_partition).
    Result<std::pair<Loop, Loop>> split(const Loop& loop, int64_t factor);       // inner extent = factor
    Result<std::pair<Loop, Loop>> split_parts(const Loop& loop, int64_t parts);  // outer extent = parts
    // By the inner extent, at most the loop's. The last part begins earlier and recomputes some elements.
    Result<std::pair<Loop, Loop>> split_whole(const Loop& loop, int64_t factor);
    Result<Loop> fuse(const Loop& outer, const Loop& inner);  // neighbours of one stage
    Status reorder(const std::vector<Loop>& order);           // permutes these loops among their positions
    Result<std::vector<Loop>> tile(const Loop& a, const Loop& b, int64_t fa, int64_t fb);  // ao, bo, ai, bi
    Status unroll(const Loop& loop);
    Status vectorize(const Loop& loop);  // constant extent; innermost, or above unrolled loops only
    Status parallel(const Loop& loop);   // carries nothing from iteration to iteration
    Status bind(const Loop& loop, std::string axis);
    Status annotate(const Loop& loop, std::string key, int64_t value);
    Status loop_partition(const Loop& loop);  // the iterations that need no guard apart from the one that does
    Status skew(const Loop& outer, const Loop& inner, int64_t factor);  // inner runs over inner + factor*outer
    Status fission(const Loop& loop);  // the statements inside it get a loop each (a reduction's init, its update,
                                       // attached stages)

    // Stages.
    Status compute_inline(std::string_view stage);  // its value where it is read; it is gone
    Status reverse_compute_inline(
        std::string_view stage);  // a map of the one element its producer makes goes into that producer
    Status compute_at(std::string_view stage,
                      const Loop& loop);  // just before what reads it, inside that loop of a consumer
    // Computes a consumer inside a loop of its producer: a map of the loop's elements, or a reduction over them.
    Status reverse_compute_at(std::string_view stage, const Loop& loop);
    Status compute_root(std::string_view stage);
    Result<std::string> cache_read(std::string_view stage, int buffer,
                                   Scope scope);  // a copy that `stage` reads instead; the new stage
    Result<std::string> cache_write(std::string_view stage,
                                    Scope scope);  // it computes into a copy, then a new last stage moves it out
    Status set_scope(std::string_view stage, Scope scope);
    Result<std::string> rfactor(
        const Loop& reduction);  // partial results over that loop in a stage of its own; the new stage
    Status decompose_reduction(std::string_view stage,
                               const Loop& loop);  // the init just before that loop, not inside it
    // Reductions along one axis in one loop over blocks of it: a maximum, and sums of terms exp(x - maximum) * y, whose
    // running values are corrected where a block has a larger one. The last stage has the loop; the others, and what is
    // computed from the maximum on the way, move there. Made for each stage: its reduction of one block; then the
    // factor of the correction, and what is subtracted.
    Result<std::vector<std::string>> online(const std::vector<std::string>& stages, int64_t block);
    // The operand of a product that `stage` sums, as a stage of its own over all variables that it depends on (im2col);
    // operand 0 or 1. The new stage's axes: those of the stage in their order, then its reduction axes.
    Result<std::string> reindex(std::string_view stage, int operand);
    // Axes of an intermediate or output stage merged: a stage over i, j, k with {{0,1},{2}} gets axes i_j and k. For
    // output stages the store follows; intermediates get a buffer of that shape and their readers adapt.
    Status merge_axes(std::string_view stage, const std::vector<std::vector<int>>& groups,
                      const std::vector<std::vector<int>>& reduce_groups = {});
    Status transform_layout(std::string_view stage, const IndexMap& map);  // of the intermediate that the stage writes
    // Rounds the stage's extents up to multiples (axes, then reduction axes; 1 leaves one alone). What it reads of
    // intermediate stages is there: those are padded with `fill`, which must not change the result of a reduction.
    Status pad(std::string_view stage, const std::vector<int64_t>& multiples);
    Status storage_align(std::string_view stage, int dim, int64_t factor,
                         int64_t offset);  // stride of dim = offset mod factor

    // Instructions.
    Status tensorize(const Loop& loop,
                     std::string intrinsic);  // the nest from that loop on is what the intrinsic declares
    Status prefetch(std::string_view stage, int buffer, const Loop& loop, int64_t ahead);
    // In `loop`, what the stage will read there in the next iteration of `outer`, a loop around it, for the second
    // cache: in parts, one for each iteration of `part`, another loop around it.
    Status prefetch_next(std::string_view stage, int buffer, const Loop& loop, const Loop& outer, const Loop& part);
    Status pipeline(const Loop& loop, int stages);
    Status double_buffer(std::string_view stage);

    // Applies a primitive by name, with arguments as in a trace (buffers by name); returns the names that it created.
    Result<std::vector<std::string>> apply(const std::string& primitive, const std::vector<std::string>& args);
    // The trace applied to another Compute of the same stages (other sizes).
    static Result<Schedule> replay(Compute compute, std::span<const TraceStep> trace);
    std::string print_trace() const;  // one primitive per line, as parse_trace reads
    static Result<std::vector<TraceStep>> parse_trace(std::string_view text);  // lines that begin with // are skipped

    // For lower(): by stage, how it is carried out.
    const std::vector<StagePlan>& plans() const { return plans_; }

  private:
    struct Place {
        size_t stage, loop;
    };
    Result<size_t> find_stage(std::string_view name) const;
    Result<Place> find_loop(const Loop& loop) const;
    Result<size_t> find_prefetched(std::string_view stage, int buffer, const Loop& loop) const;
    LoopPlan& at(const Place& place) { return plans_[place.stage].loops[place.loop]; }
    std::optional<size_t> writer(int buffer) const;  // the stage that fills an intermediate
    std::vector<size_t> readers(int buffer) const;
    bool is_parameter(int buffer) const { return static_cast<size_t>(buffer) < compute_.params; }
    bool inside(size_t stage, const Place& loop) const;  // computed in that loop, at any depth
    bool hosts(size_t stage) const;                      // others are computed in its loops
    std::string fresh_stage_name(std::string name) const;
    size_t insert_stage(size_t before, Stage stage);
    int add_buffer(std::string name, DType dtype, std::vector<Expr> shape);
    Status widen(const Expr& value, const Expr& load, const std::map<std::string, Expr>& running,
                 const std::string& reader);
    void merge_parameters(size_t stage, const std::vector<int>& group);
    void redirect(size_t stage, int from, int to);  // its loads
    Result<std::pair<Loop, Loop>> split_loop(const Loop& loop, int64_t amount, LoopRelation::Kind kind);
    Status untouched(size_t stage, std::string_view primitive) const;  // its loops are still its axes
    Status follow(size_t stage, const Place& loop);                    // a reduction of what its producer makes there
    bool stands_at(const std::string& loop) const;                     // a stage or an init does
    void restore_blind(const Stage& top, int buffer, const std::vector<int>& rows);
    void record(std::string primitive, std::vector<std::string> args, std::vector<std::string> results = {});

    Compute compute_, start_;
    std::vector<StagePlan> plans_;  // by stage of compute_
    std::vector<TraceStep> trace_;
};

// The nests. Stages that read nothing but parameters known ahead (Compute::known) and stand at the root are computed
// once, by `prepare`, into buffers that the kernel then takes as parameters.
struct LoweredPack {
    Kernel kernel;          // fills its last parameter from the others
    std::vector<int> args;  // its parameters, as slots of the kernel that it runs before
};
struct Lowered {
    Kernel kernel;                  // parameters: the Compute's, then `prepared`, then `scratch` (Global intermediates)
    Kernel prepare;                 // no body: nothing to prepare. It has no symbols
    std::vector<int> prepare_args;  // its parameters, as slots of `kernel`: what it reads, then `prepared`
    std::vector<int> prepared;      // slots of `kernel`
    std::vector<int> scratch;       // slots of `kernel`: their contents matter only while it runs
    std::vector<LoweredPack> packs; // run before it, in any order; each fills one of `scratch`
};
Result<Lowered> lower(const Schedule& schedule);

}  // namespace tessera
