// What stands in a node of the text form: calls, arguments, attributes.
#include <algorithm>

#include "base/nearest.h"
#include "graph/gradient/gradient.h"
#include "graph/text/literal.h"
#include "graph/text/parser.h"

namespace tessera {
namespace {

constexpr int kMaxCalls = 100;  // calls in calls

}  // namespace

Result<Value*> TextParser::look_up(Graph& graph, const std::string& name, size_t at) {
    Value* value = graph.find_value(name);
    if (value && named_.count(value)) return value;
    std::vector<std::string_view> candidates;
    for (const Graph* g = &graph; g; g = g->outer()) {
        for (const auto& v : g->inputs()) candidates.push_back(v->name());
        for (const auto& v : g->constants()) candidates.push_back(v->name());
        for (const auto& n : g->nodes())
            for (size_t i = 0; i < n->output_count(); ++i) candidates.push_back(n->output(i)->name());
    }
    Error error = scan_.error(at, Code::E0302, "\"{}\" is not defined here", name);
    if (std::string near = nearest(name, candidates); !near.empty())
        return std::move(error).hint("did you mean \"{}\"?", near);
    return error;
}

Result<TextParser::Argument> TextParser::parse_argument(Graph& graph) {
    Argument argument{.at = scan_.at()};
    char c = scan_.peek();
    if (scan_.take("%")) {
        argument.value = TRY(look_up(graph, TRY(parse_name("a value's name")), argument.at));
    } else if (c == '"') {
        std::string name = TRY(scan_.string());
        if (scan_.peek() == ':') {  // a string, not a name
            scan_.go_to(argument.at);
            argument.literal = TRY(parse_literal());
        } else {
            argument.value = TRY(look_up(graph, name, argument.at));
        }
    } else if (scan_.take_word("_")) {
    } else if (std::string_view word = scan_.word(); is_plain_name(word)) {
        bool call = scan_.peek() == '(';
        scan_.go_to(argument.at);
        if (call) {
            if (++depth_ > kMaxCalls)
                return scan_.error(argument.at, Code::E0109, "calls are nested deeper than {} levels", kMaxCalls);
            Call inner = TRY(parse_call(graph));
            Node* node = TRY(build(graph, std::move(inner), {""}, {true}, {}, {}));
            argument.value = node->output();
            --depth_;
        } else {
            argument.value = TRY(look_up(graph, std::string(scan_.word()), argument.at));
        }
    } else {
        scan_.go_to(argument.at);
        argument.literal = TRY(parse_literal());
    }
    return argument;
}

Result<Value*> TextParser::parse_value(Graph& graph) {
    Argument argument = TRY(parse_argument(graph));
    if (argument.value) return argument.value;
    if (!argument.literal) return scan_.syntax(argument.at, "a value");
    return graph.constant(TRY(tensor_of(*argument.literal, {}, {})));
}

Result<TextParser::Call> TextParser::parse_call(Graph& graph) {
    Call call{.at = scan_.at()};
    std::string name(scan_.word());
    if (name.empty()) return scan_.syntax(call.at, "an operator");
    call.op = find_op(name);
    if (!call.op) {
        std::vector<std::string_view> names;
        for (const OpDef* op : all_ops()) {
            if (op->onnx.name == name)
                return scan_.error(call.at, Code::E0201, "there is no operator {}", name)
                    .hint("ONNX's {} is called {} here", name, op->name);
            names.push_back(op->name);
        }
        Error error = scan_.error(call.at, Code::E0201, "there is no operator {}", name);
        if (std::string near = nearest(name, names); !near.empty())
            return std::move(error).hint("did you mean {}?", near);
        return error;
    }
    TRY(scan_.expect("("));
    for (bool first = true; !scan_.take(")"); first = false) {
        if (!first) TRY(scan_.expect(","));
        size_t at = scan_.at();
        std::string key(scan_.word());
        if (key.empty() || !scan_.take("=")) {
            scan_.go_to(at);
            call.arguments.push_back(TRY(parse_argument(graph)));
            continue;
        }
        const AttrDef* def = call.op->attr(key);
        if (!def) {
            std::vector<std::string_view> names;
            for (const AttrDef& a : call.op->attrs) names.push_back(a.name);
            Error error = scan_.error(at, Code::E0206, "{} has no attribute {}", call.op->name, key);
            if (std::string near = nearest(key, names); !near.empty())
                return std::move(error).hint("did you mean {}?", near);
            return error;
        }
        Attr value = TRY(parse_attr(graph, def->kind));
        if (!call.attrs.emplace(key, std::move(value)).second)
            return scan_.error(at, Code::E0206, "attribute {} is given twice", key);
    }
    return call;
}

Result<Attr> TextParser::parse_attr(Graph& graph, AttrKind kind) {
    if (kind == AttrKind::Type) return Attr(TRY(parse_type()));
    if (kind != AttrKind::Graph) return attr_of(TRY(parse_literal()), kind);
    size_t at = scan_.at();
    if (!scan_.take_word("graph")) return scan_.syntax(at, "'graph'");
    std::string name = scan_.peek() == '"' ? TRY(scan_.prose()) : TRY(parse_name("the graph's name"));
    GraphPtr nested = graph.nested(std::move(name));
    TRY(parse_graph(*nested));
    return Attr(std::move(nested));
}

Result<Attr> TextParser::attr_of(const Literal& literal, AttrKind kind) {
    auto wrong = [&] {
        return scan_.error(literal.at, Code::E0206, "the attribute takes {} {}",
                           attr_kind_name(kind) == "int" ? "an" : "a", attr_kind_name(kind));
    };
    if (kind == AttrKind::Tensor) return Attr(TRY(tensor_of(literal, {}, {})));
    bool list = kind == AttrKind::Ints || kind == AttrKind::Floats || kind == AttrKind::Strings;
    bool strings = kind == AttrKind::String || kind == AttrKind::Strings;
    if (literal.dtype || literal.sizes.size() != (list ? 1 : 0)) return wrong();
    if (literal.kind == Literal::Kind::Data || literal.kind == Literal::Kind::Weights) return wrong();
    if (strings ? !literal.numbers.empty() : !literal.strings.empty()) return wrong();
    std::vector<int64_t> ints;
    std::vector<float> floats;
    for (std::string_view n : literal.numbers) {
        if (kind == AttrKind::Int || kind == AttrKind::Ints) {
            auto v = n == "true"    ? std::optional<int64_t>(1)
                     : n == "false" ? std::optional<int64_t>(0)
                                    : int_from_text(n);
            if (!v) return wrong();
            ints.push_back(*v);
        } else {
            auto v = float_from_text(n);
            if (!v) return wrong();
            floats.push_back(*v);
        }
    }
    switch (kind) {
        case AttrKind::Int: return Attr(ints.at(0));
        case AttrKind::Float: return Attr(floats.at(0));
        case AttrKind::String: return Attr(literal.strings.at(0));
        case AttrKind::Ints: return Attr(std::move(ints));
        case AttrKind::Floats: return Attr(std::move(floats));
        case AttrKind::Strings: return Attr(literal.strings);
        default: return wrong();
    }
}

Status TextParser::parse_vjp(Graph& graph, const std::vector<std::string>& names, size_t at) {
    std::vector<Value*> given;
    TRY(scan_.expect("("));
    do given.push_back(TRY(parse_value(graph)));
    while (scan_.take(","));
    TRY(scan_.expect(")"));
    if (given.size() < 3 || names.size() != given.size() - 2)
        return scan_.error(at, Code::E0207,
                           "vjp(y, dy, x...) gives one gradient for each x, and has {} arguments for {}", given.size(),
                           names.size());
    Builder b(graph);
    auto found = gradients(b, {{given[0], given[1]}}, {given.begin() + 2, given.end()});
    if (!found.ok()) return moved(std::move(found).error(), at);
    for (size_t i = 0; i < names.size(); ++i) {
        if (names[i].empty()) continue;
        Value* gradient = (*found)[i];
        if (!gradient) gradient = b.op("expand", {b.scalar_like(0, given[i + 2]), b.op("shape", {given[i + 2]})});
        TRY(b.status());
        TRY(define(graph, names[i], at));  // a node of the gradient's may have got the name
        NodeSpec spec{.op = find_op("identity"), .inputs = {gradient}, .output_names = {names[i]}};
        named_.insert(TRY(graph.add(std::move(spec)))->output());
    }
    return {};
}

Result<Node*> TextParser::build(Graph& graph, Call call, std::vector<std::string> names, std::vector<bool> given,
                                std::string name, std::map<std::string, std::string> metadata) {
    const OpDef& op = *call.op;
    bool variadic = !op.inputs.empty() && op.inputs.back().variadic;
    // Literals beyond the inputs are attributes, in the order the op declares them: transpose(x, [1,0]).
    while (!variadic && call.arguments.size() > op.inputs.size() && call.arguments.back().literal) {
        size_t extra = op.inputs.size();
        const AttrDef* free = nullptr;
        for (const AttrDef& a : op.attrs)
            if (!call.attrs.count(a.name)) {
                free = &a;
                break;
            }
        if (!free || !call.arguments[extra].literal) break;
        call.attrs.emplace(free->name, TRY(attr_of(*call.arguments[extra].literal, free->kind)));
        call.arguments.erase(call.arguments.begin() + static_cast<ptrdiff_t>(extra));
    }
    // A literal without a type takes that of its place: the signature's, or that of a value in a place of the same
    // type.
    auto place = [&](size_t i) -> const std::string* {
        if (op.inputs.empty() || (i >= op.inputs.size() && !variadic)) return nullptr;
        return &op.inputs[std::min(i, op.inputs.size() - 1)].type;
    };
    std::vector<Value*> inputs;
    for (size_t i = 0; i < call.arguments.size(); ++i) {
        const Argument& a = call.arguments[i];
        if (!a.literal) {
            inputs.push_back(a.value);
            continue;
        }
        std::optional<DType> dtype;
        bool numbers = a.literal->kind == Literal::Kind::Numbers;
        if (const std::string* type = place(i); type && numbers && !a.literal->dtype) {
            dtype = dtype_from_name(*type);
            for (size_t k = 0; k < call.arguments.size() && !dtype; ++k) {
                const Value* other = call.arguments[k].value;
                if (other && other->type().is_tensor() && place(k) && *place(k) == *type && *type != "*")
                    dtype = other->type().tensor().dtype;
            }
            if (dtype && *dtype == DType::string) dtype.reset();
        }
        inputs.push_back(graph.constant(TRY(tensor_of(*a.literal, dtype, {}))));
    }
    for (const std::string& output : names)
        if (!output.empty()) TRY(define(graph, output, call.at));  // a literal of this call may have got the name
    NodeSpec spec{.op = &op,
                  .inputs = std::move(inputs),
                  .attrs = std::move(call.attrs),
                  .outputs = names.size(),
                  .name = std::move(name),
                  .output_names = std::move(names),
                  .given = std::move(given),
                  .metadata = std::move(metadata)};
    auto node = graph.add(std::move(spec));
    if (!node.ok()) return moved(std::move(node).error(), call.at);
    return *node;
}

}  // namespace tessera
