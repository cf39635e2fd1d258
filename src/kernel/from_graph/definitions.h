// Every tensor of a graph by its elements: a map, or one reduction of a map, over its own index variables. What a
// node's body says in one expression is cut here so that each reduction is a tensor of its own.
#pragma once

#include <unordered_map>

#include "base/machine.h"
#include "graph/graph.h"
#include "kernel/written/write_kernel.h"

namespace tessera {

// Index variables are %i0, %i1, ... (one for each dimension, in ONNX's order) and %r0, %r1, ... of the reduction.
struct Definition {
    // Given: by the caller, by a constant, or by a host step. Joined: its parts, one after the other along an axis,
    // each a definition that is only that part: so that what makes a part can put it where it belongs. Sizes: no
    // elements, only what some symbols are, which a host step finds.
    enum class Kind { Given, Map, Reduction, Joined, Sizes };
    Kind kind = Kind::Given;
    const Node* node = nullptr;    // that computes it
    const Value* value = nullptr;  // that it is; null: a part of one
    DType dtype = DType::f32;
    std::vector<Expr> shape;
    std::vector<ReduceAxis> reduce = {};
    ReduceOp combine = ReduceOp::Sum;
    Expr body = {};  // loads: numbers of definitions. No Reduce, and no arithmetic on floats narrower than f32
    std::vector<int> parts = {};
    int axis = 0;  // along which the parts are joined
    std::vector<ReduceAxis> axes() const;
    bool has_body() const { return kind == Kind::Map || kind == Kind::Reduction; }
};

// A node that is a step of its own: the evaluator computes it, only checks it or only infers sizes of it; or a kernel
// was written out for it.
struct HostNode {
    const Node* node;
    bool check_only = false;
    // Definitions; -1 where not given, not needed, or not asked for. A check may have one more input: a number that is
    // above 0 where an index is outside.
    std::vector<int> inputs, outputs;
    std::vector<int> captured = {};    // what its nested graphs use besides
    std::string reason;
    std::shared_ptr<const WrittenKernel> kernel = {};
    bool infers = false;  // these make it an InferStep or, the last, a FoundStep
    std::vector<std::string> sizes = {};
    std::vector<size_t> contents = {};
    std::vector<int64_t> found = {};
    bool guards() const { return check_only || (infers && sizes.empty() && contents.empty()); }  // defines no symbol
    bool tells() const { return infers || !contents.empty() || !found.empty(); }
};

struct Definitions {
    std::vector<Definition> list;      // producers before consumers
    std::vector<HostNode> hosts;       // in the order of the graph
    std::vector<int> outputs;          // of the graph
    int number(const Value* v) const;  // CHECKs that there is one
    std::unordered_map<const Value*, int> numbers;
    std::unordered_map<std::string, int>
        sizes;  // symbols that a host step defines, by the definition they are a size of
    std::vector<int> size_sources(int n) const;  // of those that a definition uses
};

Definitions define(const Graph& graph, const Machine& machine, bool strict = false);

// Whether the computation of the node's indices keeps them in bounds, so that no check is needed.
bool indices_stay_inside(const Node& node, const Definitions& all);

// Whether a body, of the elements of `shape`, may read an input along an axis that a run brings and that is empty then.
// Its loads are of the node's inputs.
bool may_read_of_nothing(const Node& node, const Expr& body, const std::vector<Expr>& shape);

// Constants whose elements are functions of their places become maps: where reading memory costs more than computing.
void write_positions(Definitions& all);

// Maxima along an axis of what positions alone decide to be one number or -inf become maps.
void close_maxima(Definitions& all);

// The variables %i0, %i1, ... that run over `shape`.
std::vector<Expr> index_vars(const std::vector<Expr>& shape);
// Which of the variables an expression is, by name; none of them.
std::optional<size_t> axis_of(const std::vector<Expr>& vars, const Expr& e);

// The same values without arithmetic on floats narrower than f32: loads are widened, casts round.
Expr widen(const Expr& e);

// Sums of a few products with numbers from a small constant, by the slot that loads it, written out. `known` gives null
// for what is no constant. Products with zero are left out where the sum is ours: a model's own may be of an infinity.
using KnownTensor = std::function<const Tensor*(int slot)>;
Expr spell_out_sums(const Expr& body, const KnownTensor& known, bool drop_zeros);

// A body in which an index that is 0 where its own extent is 1 is itself, that of a reduction too.
Expr without_broadcast(const Expr& body, const std::vector<Expr>& vars, const Shape& shape);

// A body without the cases of negative indices, which count from the end, for indices from constants that have none.
Expr without_negative_indices(const Expr& body, const KnownTensor& known);

// A body with its reductions taken out: each is handed to `add`, which gives the number to load it by. A reduction has
// the axes that it depends on; one that stands in a branch of a Select is only computed where that branch is taken.
// Nothing where the extent of a reduction is known only with the data.
using AddReduction = std::function<int(Definition)>;
std::optional<Expr> lift_reductions(const Expr& body, const std::vector<ReduceAxis>& axes, const AddReduction& add);

// A sum of products (i32(a) - p) * (i32(b) - q) of matrices of bytes, as definitions whose sums are of bytes alone:
//   sum of a * b - p * (sum of b - q) - q * (sum of a)
// It is the same in 32 bits that wrap. What is something else is added as it is. Gives the number of all of it.
int add_zero_points_apart(Definition d, const AddReduction& add);

// A reduction of which there are few results, for blocks of threads: as one of parts, and one of what those are. What
// is something else is added as it is. Gives the number of the results.
int add_in_parts(Definition d, const AddReduction& add);
// Whether it reduces what a product of 16-bit operands gave, on the way to another product, as the softmax of attention
// does: one kernel takes all of that, and splits it as it needs.
bool is_between_products(const Definition& d, const std::vector<Definition>& all);

}  // namespace tessera
