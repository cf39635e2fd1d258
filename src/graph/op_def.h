// The definition of an op, whole: signature, attributes, type inference, and its meaning, which is a body (the scalar
// expression of one output element), an expansion (the smaller graph it stands for), or its own evaluation.
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
    Pure,            // the same inputs give the same outputs, and nothing else happens
    Elementwise,     // output element i depends on element i of the (broadcast) inputs only
    Commutative,
    Linear,          // in its first input
    Bilinear,        // in its first two inputs
    Random,          // draws from the run's random stream (then not Pure)
    InfersUnranked,  // its inference handles inputs of unknown rank itself
    Associative,     // operands of several in a row may be grouped at will, up to rounding
    Movement,        // places elements elsewhere or says how many there are: nothing beside an op that computes
    Light,           // as little work for an element as an element-wise op, though it is none
    Window,          // an output element takes a window or a region of [N, C, D1, ...]
    SameOrder,       // its output has the elements of its first input one after the other, in another shape
    OwnSums,         // its sums are of numbers that we chose: products with zero may be left out
};

// How a tensor [N, C, D1, ...] lies best in memory.
enum class Layout : uint8_t {
    Plain,         // in ONNX's order
    ChannelsLast,  // the channels innermost
    AsInputs,      // as what it is computed from lies
};

// "x: T" required, "bias?: T" optional, "inputs...: T" one or more. After the colon: a type variable of .types, an element
// type (i64, bool, str), or * for whatever inference says (sequences, mixed types; with ... also none at all).
struct ParamDef {
    ParamDef(const char* text);
    std::string name, type;
    bool optional = false, variadic = false;
};

struct TypeVar {
    std::string name;
    DTypes allowed;
};

// How an ONNX node became, or becomes, one of ours, while a form from another opset is being adapted.
struct OnnxCall {
    std::string op_type;
    int opset;                   // of the model
    std::vector<Value*> inputs;  // null where not given
    AttrMap attrs;
    size_t outputs;
    Builder& build;              // for constants and helper nodes
    std::vector<Value*> result;  // set by `up` when it built the whole replacement itself

    bool has(size_t i) const { return i < inputs.size() && inputs[i]; }
    void set_input(size_t i, Value* v);  // grows the list as needed
};

// The op's ONNX form changed at `opset` in a way that matters: `up` takes the form before it to the one from it on, `down` back.
struct OnnxChange {
    int opset;
    std::function<Status(OnnxCall&)> up, down;
};

struct OnnxForm {
    OnnxForm() = default;
    OnnxForm(const char* name) : name(name) {}
    OnnxForm(const char* name, std::vector<OnnxChange> changes, std::vector<std::string> aliases = {})
        : name(name), changes(std::move(changes)), aliases(std::move(aliases)) {}
    std::string name;     // "MatMul"; empty: not an ONNX op
    std::vector<OnnxChange> changes = {};  // ascending
    std::vector<std::string> aliases = {}; // retired ops that are the same thing ("Scatter")
    std::string domain = {};
    // Brings a form that the standard lacks, but files have, to one that it has; what was taken for what, or nothing.
    std::function<std::string(OnnxCall&)> accept = {};
};

// How an op runs the graphs nested in it: what whoever steers their programs must know.
struct ControlForm {
    std::vector<const Graph*> graphs;  // two: a branch for true and one for false, by input 0. One: a body, again and again
    // Of a body. Its inputs: the number of the iteration and the condition where it is numbered, states, slices of
    // sequences. Its outputs: the condition where it is numbered, states, what is collected.
    bool numbered = false;
    std::optional<size_t> trips = {}, condition = {};  // inputs of the op, where they are given
    size_t first = 0, states = 0;                      // inputs of the op: states from here, sequences after them
    std::vector<bool> sequences = {}, collected = {};  // along axis 0; true: from the end
};

struct OpDef {
    std::string name;
    std::vector<ParamDef> inputs;
    std::vector<ParamDef> outputs;
    std::vector<AttrDef> attrs = {};
    std::vector<TypeVar> types = {};
    std::vector<Trait> traits = {Trait::Pure};
    OnnxForm onnx = {};

    // The outputs' types. Without it: every output has the broadcast shape of the inputs, and the signature's element
    // type. It is called with ranked inputs only, unless the op says InfersUnranked.
    std::function<Result<Types>(const OpView&)> infer = {};

    // One of these is the op's meaning. An op that ONNX lacks may have a body and an expansion: the body is what it
    // means, the expansion how it is written as ONNX.
    std::function<Expr(const OpView&, const Indices&)> body = {};
    std::function<Result<std::vector<Value*>>(const OpView&, const std::vector<Value*>&, Builder&)> expand = {};
    std::function<Result<std::vector<Datum>>(const OpView&, EvalContext&)> evaluate = {};

    // Checks on run-time contents that a body cannot express (an index in range); run before the body.
    std::function<Status(const OpView&)> check = {};

    // An integer output's elements as expressions, where they follow from types alone (shape, size).
    std::function<std::optional<std::vector<Expr>>(const OpView&)> contents = {};

    // Whether `body` serves this use of the op; without it, always. Where it says no, `expand` or `evaluate` is used.
    std::function<bool(const OpView&)> body_applies = {};

    // What passes and lowering ask of an op instead of its name. Without it: the op is not of that kind.

    // Writes the attributes in the one way that says what several can: axes counted from the front, pads as numbers.
    std::function<void(const OpView&, AttrMap&)> canonical = {};
    // Integers for an input that names sizes which the op can find itself (reshape to [0, -1, 64]), where its contents
    // are known but not constant; attributes that would read them in another way go.
    std::function<std::optional<std::vector<int64_t>>(const OpView&, size_t input, AttrMap&)> constant_operand = {};
    // Whether the first output is the first input as it is.
    std::function<bool(const OpView&)> gives_input = {};
    // For each axis of the output, which of the input it is: of an op that does nothing but permute them.
    std::function<std::vector<int64_t>(const OpView&)> permutation = {};
    // The axis along which the inputs follow one another: of an op that does nothing but join them.
    std::function<int64_t(const OpView&)> joined_axis = {};
    // The dimensions of input 0 that the entries of input 1 index in turn; `check` sees that they are inside.
    std::function<std::vector<int64_t>(const OpView&)> indexed_axes = {};
    // How many outputs there are, where attributes or the types of inputs say so and the signature does not.
    std::function<std::optional<size_t>(const OpView&)> count_outputs = {};
    // How it runs its nested graphs; nothing where only its evaluation does it in this form.
    std::function<std::optional<ControlForm>(const OpView&)> control = {};
    // The tile program that it runs; E0206 and others where its attributes say none.
    std::function<Result<TileCall>(const OpView&)> tile = {};
    // How often its nested graphs run, where its inputs say so.
    std::function<std::optional<Expr>(const OpView&)> iterations = {};
    // The gradients of the inputs, null where none flows: what its body would not say as well. Empty: ask the body.
    std::function<std::vector<Value*>(const Backward&)> gradient = {};

    Layout layout = Layout::Plain;        // of its outputs
    Layout input_layout = Layout::Plain;  // of its first input, where nobody else reads that
    std::string no_kernel = {};           // why no kernel computes it, where its meaning is its own evaluation

    bool has(Trait t) const;
    const AttrDef* attr(std::string_view name) const;
    size_t min_inputs() const;  // up to the last required one
};

// All ops, each family from one file in graph/ops/.
const std::vector<const OpDef*>& all_ops();
const OpDef* find_op(std::string_view name);
const OpDef* find_onnx_op(std::string_view domain, std::string_view name);  // by name or alias

}  // namespace tessera
