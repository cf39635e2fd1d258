// The definition of an op: signature, attributes, type inference, and semantics. The semantics are a body (the scalar
// expression of one output element), an expansion (an equivalent graph of other ops), or an evaluation function.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/attr.h"
#include "graph/op_view.h"

namespace tessera {

class Builder;
class EvalContext;
class Value;
struct Backward;  // graph/gradient/gradient.h
struct TileCall;  // graph/tile_call.h

enum class Trait {
    Pure,         // equal inputs give equal outputs, without side effects
    Elementwise,  // output element i depends on element i of the (broadcast) inputs only
    Commutative,
    Linear,          // in its first input
    Bilinear,        // in its first two inputs
    Random,          // draws from the run's random stream (and is not Pure)
    InfersUnranked,  // its inference handles inputs of unknown rank
    Associative,     // chains of it may be regrouped, up to rounding
    Movement,        // only moves elements or returns sizes; its cost is negligible beside arithmetic
    Light,           // not element-wise, but as little work per element
    Window,          // an output element reads a window or region of [N, C, D1, ...]
    SameOrder,       // its output has the elements of its first input in the same order, with another shape
    OwnSums,         // its sums have coefficients chosen by Tessera: products with zero may be omitted
};

// The preferred memory layout of a tensor [N, C, D1, ...].
enum class Layout : uint8_t {
    Plain,         // ONNX's order
    ChannelsLast,  // channels innermost
    AsInputs,      // the layout of the inputs
};

// "x: T" is required, "bias?: T" optional, "inputs...: T" one or more. After the colon: a type variable of .types, an
// element type (i64, bool, str), or * for types that inference checks (sequences, mixed; with ... also none).
struct ParamDef {
    ParamDef(const char* text);
    std::string name, type;
    bool optional = false, variadic = false;
};

struct TypeVar {
    std::string name;
    DTypes allowed;
};

// A node during import or export, while its form is converted between opsets.
struct OnnxCall {
    std::string op_type;
    int opset;                   // of the model
    std::vector<Value*> inputs;  // null: absent
    AttrMap attrs;
    size_t outputs;
    Builder& build;              // for constants and helper nodes
    std::vector<Value*> result;  // set by `up` if it built the whole replacement

    bool has(size_t i) const { return i < inputs.size() && inputs[i]; }
    void set_input(size_t i, Value* v);  // grows the list as needed
};

// A change of the op's ONNX form at `opset`: `up` converts the older form to the newer one, `down` the reverse.
struct OnnxChange {
    int opset;
    std::function<Status(OnnxCall&)> up, down;
};

struct OnnxForm {
    OnnxForm() = default;
    OnnxForm(const char* name) : name(name) {}
    OnnxForm(const char* name, std::vector<OnnxChange> changes, std::vector<std::string> aliases = {})
        : name(name), changes(std::move(changes)), aliases(std::move(aliases)) {}
    std::string name;                       // "MatMul"; empty: not an ONNX op
    std::vector<OnnxChange> changes = {};   // ascending
    std::vector<std::string> aliases = {};  // deprecated operators with the same semantics ("Scatter")
    std::string domain = {};
    // Converts a nonstandard form that occurs in files to a standard one. Returns the text of a warning, or nothing.
    std::function<std::string(OnnxCall&)> accept = {};
};

// How a control-flow op executes its nested graphs, for the runtime.
struct ControlForm {
    std::vector<const Graph*> graphs;  // two: the branches for true and false, selected by input 0. One: a loop body
    // For a loop body. Inputs: iteration number and condition (if `numbered`), states, slices of sequences.
    // Outputs: condition (if `numbered`), states, scan outputs.
    bool numbered = false;
    std::optional<size_t> trips = {}, condition = {};  // numbers of the op's inputs, if present
    size_t first = 0, states = 0;                      // first state among the op's inputs; number of states
    std::vector<bool> sequences = {}, collected = {};  // sequences and scan outputs, along axis 0; true: in reverse
};

struct OpDef {
    std::string name;
    std::vector<ParamDef> inputs;
    std::vector<ParamDef> outputs;
    std::vector<AttrDef> attrs = {};
    std::vector<TypeVar> types = {};
    std::vector<Trait> traits = {Trait::Pure};
    OnnxForm onnx = {};

    // Infers the outputs' types. Default: the broadcast shape of the inputs and the signature's element type. Called
    // with ranked inputs only, unless the op has the trait InfersUnranked.
    std::function<Result<Types>(const OpView&)> infer = {};

    // One of these defines the op's semantics. An op that ONNX lacks may have both a body and an expansion: the body
    // defines it, and the expansion is exported.
    std::function<Expr(const OpView&, const Indices&)> body = {};
    std::function<Result<std::vector<Value*>>(const OpView&, const std::vector<Value*>&, Builder&)> expand = {};
    std::function<Result<std::vector<Datum>>(const OpView&, EvalContext&)> evaluate = {};

    // Run-time checks that a body cannot express (an index in range); executed before the body.
    std::function<Status(const OpView&)> check = {};

    // The elements of an integer output as expressions, if they follow from types alone (shape, size).
    std::function<std::optional<std::vector<Expr>>(const OpView&)> contents = {};

    // Whether `body` covers this use of the op (default: always). If not, `expand` or `evaluate` is used.
    std::function<bool(const OpView&)> body_applies = {};

    // Queried by passes and lowering, which do not refer to ops by name. Absent: the op lacks the property.

    // Normalizes the attributes: non-negative axes, explicit pads.
    std::function<void(const OpView&, AttrMap&)> canonical = {};
    // A constant for an input whose contents are symbolic, if the op can recover the sizes itself (reshape to
    // [0, -1, 64]); removes attributes that would change how the constant is read.
    std::function<std::optional<std::vector<int64_t>>(const OpView&, size_t input, AttrMap&)> constant_operand = {};
    // Whether the first output equals the first input.
    std::function<bool(const OpView&)> gives_input = {};
    // For ops that only permute axes: the input axis of each output axis.
    std::function<std::vector<int64_t>(const OpView&)> permutation = {};
    // For ops that only concatenate: the axis.
    std::function<int64_t(const OpView&)> joined_axis = {};
    // The dimensions of input 0 that the entries of input 1 index, in order; `check` checks the bounds.
    std::function<std::vector<int64_t>(const OpView&)> indexed_axes = {};
    // The number of outputs, if it depends on attributes or input types and not on the signature alone.
    std::function<std::optional<size_t>(const OpView&)> count_outputs = {};
    // How it runs its nested graphs; nothing if only the evaluator supports this form.
    std::function<std::optional<ControlForm>(const OpView&)> control = {};
    // The tile program that it runs; E0206 and others for invalid attributes.
    std::function<Result<TileCall>(const OpView&)> tile = {};
    // The number of iterations of its nested graph, if the inputs determine it.
    std::function<std::optional<Expr>(const OpView&)> iterations = {};
    // The gradients of the inputs (null: none), if better than those derived from the body. Absent: uses the body.
    std::function<std::vector<Value*>(const Backward&)> gradient = {};
    // Whether `gradient` covers this use of the op (default: always). If not, the body or the expansion is derived.
    std::function<bool(const OpView&)> gradient_applies = {};

    Layout layout = Layout::Plain;        // of its outputs
    Layout input_layout = Layout::Plain;  // of its first input, if no other node reads that
    std::string no_kernel = {};           // for ops with an evaluation function: why no kernel computes them

    bool has(Trait t) const;
    const AttrDef* attr(std::string_view name) const;
    size_t min_inputs() const;  // number of inputs up to the last required one
};

// All ops; each family is one file in graph/ops/.
const std::vector<const OpDef*>& all_ops();
const OpDef* find_op(std::string_view name);
const OpDef* find_onnx_op(std::string_view domain, std::string_view name);  // by name or alias

}  // namespace tessera
