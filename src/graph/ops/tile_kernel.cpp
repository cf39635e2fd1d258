// A kernel of the tile language as an op: its text is an attribute, and formulas over the inputs' sizes say over which
// grid it runs, what its numbers are and how large its outputs.
#include <charconv>

#include "graph/copy_nodes.h"
#include "graph/evaluate/tiles/run_call.h"
#include "graph/ops/common.h"
#include "graph/ops/families.h"
#include "graph/tile_call.h"
#include "tile/verify.h"

namespace tessera {
namespace {

constexpr int64_t kMostTileBytes = 64 << 20;   // of all tiles of one instance

using As = TileCall::Argument::As;
using tile::Kind;

// The number behind a prefix: 2 of "in2".
std::optional<size_t> numbered(std::string_view text, std::string_view prefix) {
    if (!text.starts_with(prefix) || text.size() == prefix.size()) return {};
    size_t number = 0;
    const auto [end, error] = std::from_chars(text.data() + prefix.size(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

// A size over those of the inputs: in0.d1 is one, in0.size how many elements there are.
Result<Expr> formula(const OpView& op, std::string_view attr, const std::string& text) {
    auto parsed = parse_dim(text);
    if (!parsed) parsed = parse_formula(text);
    if (!parsed) return op.error(Code::E0212, "{}: \"{}\" is not a formula over sizes", attr, text);
    Bindings sizes;
    for (const std::string& name : free_symbols(*parsed)) {
        const size_t dot = name.find('.');
        const auto input = numbered(std::string_view(name).substr(0, dot), "in");
        const std::string_view what = dot == std::string::npos ? "" : std::string_view(name).substr(dot + 1);
        if (!input || !op.has(*input) || !op.type(*input).is_tensor())
            return op.error(Code::E0212, "{}: \"{}\" is not a size of an input", attr, name)
                .hint("in0.d1 is dimension 1 of input 0, in0.size its number of elements");
        const Shape& shape = op.shape(*input);
        const auto dim = numbered(what, "d");
        if (what != "size" && (!dim || *dim >= static_cast<size_t>(shape.rank())))
            return op.error(Code::E0212, "{}: \"{}\" is not a size of {}", attr, name, shape);
        sizes.emplace(name, dim ? shape[static_cast<int64_t>(*dim)] : shape.elements());
    }
    return substitute(*parsed, sizes);
}
Result<Expr> size_of(const OpView& op, std::string_view attr, const std::string& text) {
    return max(Expr(0), TRY(formula(op, attr, text)));
}

// "f32[in0.d0, 4]"
Result<TensorType> output_type(const OpView& op, const std::string& text) {
    const size_t open = text.find('[');
    const auto dtype = dtype_from_name(std::string_view(text).substr(0, open));
    if (!dtype || open == std::string::npos || !text.ends_with(']'))
        return op.error(Code::E0212, "outputs: \"{}\" is not a type", text).hint("write f32[in0.d0, 4]");
    std::vector<Dim> dims;
    int depth = 0;
    std::string part;
    const std::string inside = text.substr(open + 1, text.size() - open - 2);
    for (char c : inside + ",") {
        depth += c == '(' ? 1 : c == ')' ? -1 : 0;
        if (c != ',' || depth > 0) {
            part += c;
            continue;
        }
        if (part.find_first_not_of(' ') != std::string::npos)
            dims.push_back(TRY(size_of(op, "outputs", part)));
        else if (!dims.empty() || inside.find_first_not_of(' ') != std::string::npos)
            return op.error(Code::E0212, "outputs: \"{}\" is not a type", text);
        part.clear();
    }
    if (depth != 0) return op.error(Code::E0212, "outputs: \"{}\" is not a type", text);
    return TensorType{*dtype, Shape(std::move(dims))};
}

Result<std::vector<TensorType>> output_types(const OpView& op) {
    std::vector<TensorType> all;
    for (const std::string& text : op.strings("outputs")) all.push_back(TRY(output_type(op, text)));
    if (all.empty()) return op.error(Code::E0206, "outputs: the list is empty");
    return all;
}

// A number of the model in the place of a parameter.
std::optional<Expr> number_for(const tile::Type& type, const std::string& text) {
    const char *begin = text.data(), *end = begin + text.size();
    if (is_float(type.dtype)) {
        double value = 0;
        const auto read = std::from_chars(begin, end, value);
        return read.ec == std::errc() && read.ptr == end ? std::optional(constant(value, type.dtype)) : std::nullopt;
    }
    int64_t value = 0;
    const auto read = std::from_chars(begin, end, value);
    if (read.ec != std::errc() || read.ptr != end) return {};
    const Expr exact = type.dtype == DType::boolean ? int_const(value != 0, type.dtype) : int_const(value, type.dtype);
    return exact;
}

// Where a program of a model may not do what others do. E0601.
Status check_program(const OpView& op, const tile::ProgramData& program, const TileCall& call) {
    const std::vector<int> arrays = TRY(tile::arrays_of_pointers(program));
    int64_t bytes = 0;
    for (const tile::Type& t : program.types)
        bytes += tile::element_count(t) * static_cast<int64_t>(t.pointer ? sizeof(int64_t) : dtype_bytes(t.dtype));
    if (bytes > kMostTileBytes)
        return op.error(Code::E0108, "tiles of {} bytes in one instance", bytes)
            .hint("the maximum is {}", kMostTileBytes);
    std::vector<const tile::Region*> open{&program.body};
    while (!open.empty()) {
        const tile::Region& region = *open.back();
        open.pop_back();
        for (const tile::Instruction& i : region.instructions) {
            for (const tile::Region& inner : i.regions) open.push_back(&inner);
            if (i.kind == Kind::Print || i.kind == Kind::Assert)
                return op.error(Code::E0601, "{}: a kernel in a model cannot print or assert", program.name);
            if (i.kind != Kind::Store && i.kind != Kind::Atomic) continue;
            const int array = arrays[static_cast<size_t>(i.inputs[0])];
            if (array < 0 || call.arguments[static_cast<size_t>(array)].as != As::Output)
                return op.error(Code::E0601, "{}: stores to a tensor that is not an output", program.name)
                    .hint("inputs are read-only; \"initial\" names the input with the initial contents of an output");
        }
    }
    return {};
}

class CallReader {
  public:
    explicit CallReader(const OpView& op) : op_(op) {}

    Result<TileCall> read() {
        const std::vector<std::string>& texts = op_.strings("arguments");
        outputs_ = TRY(output_types(op_));
        bound_.assign(outputs_.size(), false);
        auto program = tile::Program::parse(op_.string("kernel"));
        if (!program.ok())
            return op_.error(program.error().code(), "{} ({})", program.error().message(), program.error().where());
        tile::ProgramData data = program->data();
        if (texts.size() != data.parameters.size())
            return op_.error(Code::E0207, "arguments: {} for {} parameters of {}", texts.size(), data.parameters.size(),
                             data.name);
        TileCall call{*program, {}, {}, {}};
        std::vector<tile::Parameter> left;
        std::vector<tile::Instruction> constants;
        for (size_t p = 0; p < texts.size(); ++p) {
            const tile::Type& type = data.types[static_cast<size_t>(data.parameters[p].value)];
            if (const auto number = type.pointer ? std::nullopt : number_for(type, texts[p])) {
                constants.push_back({.kind = Kind::Constant, .outputs = {data.parameters[p].value}, .body = *number});
                continue;
            }
            left.push_back(data.parameters[p]);
            call.arguments.push_back(TRY(argument(type, texts[p])));
            call.arguments.back().text = texts[p];
        }
        for (size_t o = 0; o < bound_.size(); ++o)
            if (!bound_[o]) return op_.error(Code::E0206, "arguments: there is no argument out{}", o);
        data.parameters = std::move(left);
        data.body.instructions.insert(data.body.instructions.begin(), constants.begin(), constants.end());
        TRY(check_program(op_, data, call));
        call.program = tile::Program(std::make_shared<const tile::ProgramData>(std::move(data)));
        TRY(read_grid(call));
        TRY(read_initial(call));
        return call;
    }

  private:
    Result<TileCall::Argument> argument(const tile::Type& type, const std::string& text) {
        if (const auto out = numbered(text, "out")) {
            if (*out >= outputs_.size()) return op_.error(Code::E0212, "arguments: there is no {}", text);
            if (bound_[*out]) return op_.error(Code::E0212, "arguments: {} is given twice", text);
            bound_[*out] = true;
            TRY(same_type(type, text, outputs_[*out].dtype, true));
            return TileCall::Argument{As::Output, *out};
        }
        if (const auto in = numbered(text, "in")) {
            if (!op_.has(*in)) return op_.error(Code::E0212, "arguments: there is no {}", text);
            if (!op_.type(*in).is_tensor()) return op_.error(Code::E0208, "{} is not a tensor", text);
            TRY(same_type(type, text, op_.dtype(*in), false));
            const auto count = op_.shape(*in).elements().as_int();
            if (!type.pointer && (count ? *count != 1 : op_.concrete()))
                return op_.shape_error("{} of {} is given where a single element is required", text, op_.shape(*in));
            return TileCall::Argument{As::Input, *in};
        }
        if (type.pointer || !is_int(type.dtype))
            return op_.error(Code::E0212, "arguments: \"{}\" is not a valid value of {}", text, type.to_string());
        return TileCall::Argument{As::Size, 0, TRY(size_of(op_, "arguments", text))};
    }
    Status same_type(const tile::Type& type, const std::string& text, DType given, bool pointer) const {
        if (type.dtype == given && (type.pointer || !pointer)) return {};
        return op_.error(Code::E0208, "{} has elements of {}, but the kernel takes {}", text, dtype_name(given),
                         type.to_string());
    }
    Status read_grid(TileCall& call) const {
        const std::vector<std::string>& texts = op_.strings("grid");
        if (texts.empty() || texts.size() > 3) return op_.error(Code::E0206, "grid: has one to three axes");
        call.grid = {1, 1, 1};
        Expr all = 1;
        for (size_t axis = 0; axis < texts.size(); ++axis) {
            call.grid[axis] = TRY(size_of(op_, "grid", texts[axis]));
            if (call.grid[axis].as_int().value_or(0) > kMostInstances)
                return op_.error(Code::E0212, "grid: {} is more than the maximum of {}", to_string(call.grid[axis]),
                                 kMostInstances);
            if (!call.grid[axis].as_int()) continue;
            all = all * call.grid[axis];
            if (*all.as_int() > kMostInstances)
                return op_.error(Code::E0212, "grid: more than {} instances", kMostInstances);
        }
        return {};
    }
    Status read_initial(TileCall& call) const {
        call.initial = op_.ints_or("initial", std::vector<int64_t>(outputs_.size(), -1));
        if (call.initial.size() != outputs_.size())
            return op_.error(Code::E0206, "initial: {} for {} outputs", call.initial.size(), outputs_.size());
        for (size_t o = 0; o < outputs_.size(); ++o) {
            if (call.initial[o] < 0) continue;
            const auto input = static_cast<size_t>(call.initial[o]);
            if (!op_.has(input) || !op_.type(input).is_tensor() || op_.dtype(input) != outputs_[o].dtype)
                return op_.error(Code::E0212, "initial: output {} cannot have the initial contents of input {}", o,
                                 input);
            if (!(op_.shape(input) == outputs_[o].shape))
                return op_.shape_error("initial: output {} is {}, but input {} is {}", o, outputs_[o].shape, input,
                                       op_.shape(input));
        }
        return {};
    }

    const OpView& op_;
    std::vector<TensorType> outputs_;
    std::vector<bool> bound_;
};

Result<TileCall> read_call(const OpView& op) { return CallReader(op).read(); }

Result<std::vector<Datum>> evaluate_kernel(const OpView& op, EvalContext& context) {
    return run_call(op, TRY(read_call(op)), context);
}

// The graph that the model gives for it: of the inputs, the first output and its gradient, the inputs' gradients.
Gradients kernel_gradient(const Backward& back) {
    const OpView& op = back.node.view();
    if (!op.has_attr("backward")) {
        back.b.fail(op.error(Code::E0202, "has no graph \"backward\", which defines its gradients"));
        return {};
    }
    std::vector<Value*> given = back.in;
    given.push_back(back.out);
    given.push_back(back.g);
    const Graph& graph = op.graph("backward");
    if (graph.inputs().size() != given.size() || graph.outputs().size() != back.in.size()) {
        back.b.fail(op.error(Code::E0207, "backward: has {} inputs and {} outputs, not {} and {}",
                             graph.inputs().size(), graph.outputs().size(), given.size(), back.in.size()));
        return {};
    }
    auto made = copy_nodes(graph, back.b.graph(), given);
    if (!made.ok()) {
        back.b.fail(std::move(made).error());
        return {};
    }
    return *made;
}

OpDef tile_kernel() {
    OpDef def{
        .name = "tile_kernel",
        .inputs = {"inputs...: *"},
        .outputs = {"outputs...: *"},
        .attrs = {strings_attr("arguments").required(), graph_attr("backward"), strings_attr("grid").required(),
                  ints_attr("initial"), string_attr("kernel").required(), strings_attr("outputs").required()},
        .onnx = "TileKernel",
        .infer = [](const OpView& op) -> Result<Types> {
            TRY(read_call(op));
            Types types;
            for (TensorType& t : TRY(output_types(op))) types.emplace_back(std::move(t));
            return types;
        },
        .evaluate = evaluate_kernel,
        .count_outputs = [](const OpView& op) -> std::optional<size_t> { return op.strings("outputs").size(); },
        .tile = read_call,
        .gradient = kernel_gradient,
        .no_kernel = "its kernel is no program for this processor",
    };
    def.onnx.domain = "tessera";
    return def;
}

}  // namespace

std::vector<OpDef> tile_ops() { return {tile_kernel()}; }

}  // namespace tessera
