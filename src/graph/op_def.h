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

enum class Trait {
    Pure,            // the same inputs give the same outputs, and nothing else happens
    Elementwise,     // output element i depends on element i of the (broadcast) inputs only
    Commutative,
    Linear,          // in its first input
    Bilinear,        // in its first two inputs
    Random,          // draws from the run's random stream (then not Pure)
    InfersUnranked,  // its inference handles inputs of unknown rank itself
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

    bool has(Trait t) const;
    const AttrDef* attr(std::string_view name) const;
    size_t min_inputs() const;  // up to the last required one
};

// All ops, each family from one file in graph/ops/.
const std::vector<const OpDef*>& all_ops();
const OpDef* find_op(std::string_view name);
const OpDef* find_onnx_op(std::string_view domain, std::string_view name);  // by name or alias

}  // namespace tessera
