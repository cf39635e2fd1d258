// One node of an ONNX graph: its inputs, attributes and version, or the function it calls.
#include <algorithm>

#include "base/nearest.h"
#include "graph/names.h"
#include "graph/onnx/importer.h"
#include "graph/ops/foreign.h"
#include "graph/ops/nested.h"
#include "graph/refine.h"
#include "onnx/operators.h"

namespace tessera {
namespace {

std::string shown_domain(const std::string& domain) { return domain.empty() ? "ai.onnx" : domain; }

std::string_view attribute_type_name(onnx::AttributeType type) {
    static constexpr std::string_view kNames[] = {
        "undefined", "float",   "int",    "string",        "tensor",         "graph", "floats", "ints",
        "strings",   "tensors", "graphs", "sparse tensor", "sparse tensors", "type",  "types"};
    auto i = static_cast<size_t>(type);
    return i < std::size(kNames) ? kNames[i] : "unknown";
}

Type without_shape(const Type& t) {
    if (t.is_tensor()) return Type(t.tensor().dtype, Shape::unknown());
    if (t.is_sequence()) return Type::sequence(without_shape(t.element()));
    if (t.is_optional()) return Type::optional(without_shape(t.element()));
    return t;
}

// Of what is declared only the rank, where inference finds none: a run says what the sizes are.
Type with_rank_of(const Type& inferred, const Type& declared, const std::string& name) {
    if (!inferred.is_tensor() || inferred.tensor().shape.ranked()) return inferred;
    if (!declared.tensor().shape.ranked()) return inferred;
    Shape shape;
    for (int64_t d = 0; d < declared.tensor().rank(); ++d) shape.push_back(symbol(fmt::format("{}.d{}", name, d)));
    return Type(inferred.tensor().dtype, std::move(shape));
}

// What the inputs of a nested graph must be where it does not declare them: by what its op passes in.
std::vector<Type> nested_input_types(const onnx::Node& node, size_t count, const std::vector<Value*>& inputs) {
    std::vector<Type> types(count);
    auto given = [&](size_t i) { return i < inputs.size() && inputs[i] ? inputs[i]->type() : Type(); };
    if (node.op_type == "Loop") {
        for (size_t i = 0; i < count; ++i)
            types[i] = i == 0   ? Type(DType::i64, Shape{})
                       : i == 1 ? Type(DType::boolean, Shape{})
                                : without_shape(given(i));
    } else if (node.op_type == "SequenceMap") {
        for (size_t i = 0; i < count; ++i) {
            types[i] = given(i).is_sequence() ? given(i).element() : given(i);
            if (given(i).is_sequence() && varies_in_sequence(types[i])) types[i] = without_shape(types[i]);
        }
    } else if (node.op_type == "Scan") {
        for (size_t i = 0; i < count; ++i) types[i] = without_shape(given(i));
    }
    return types;
}

}  // namespace

std::string OnnxImporter::where(const onnx::Node& node, const Scope& scope) const {
    std::string label = !node.name.empty()     ? fmt::format("node \"{}{}\"", scope.prefix, node.name)
                        : node.outputs.empty() ? "a node"
                                               : fmt::format("the node giving \"{}{}\"", scope.prefix, node.outputs[0]);
    return fmt::format("{}: {} ({})", source_, label, node.op_type);
}

Value** OnnxImporter::find(const std::string& name, Scope& scope) const {
    for (Scope* s = &scope; s; s = s->outer)
        if (auto it = s->values.find(name); it != s->values.end()) return &it->second;
    return nullptr;
}

Status OnnxImporter::define(const std::string& name, Value* value, Scope& scope, const std::string& where) {
    if (!scope.values.emplace(name, value).second) return Error(Code::E0204, "\"{}\" is defined twice", name).at(where);
    return {};
}

std::string OnnxImporter::free_name(const std::string& name, Scope& scope) {
    auto renamed = scope.renamed.find(name);
    std::string ours = renamed != scope.renamed.end() ? renamed->second : scope.prefix + name;
    // A value that has the model's name without being defined under it got it while an older form was adapted.
    if (scope.prefix.empty() && !scope.values.count(name))
        if (Value* squatter = scope.graph->find_value(ours); squatter && &squatter->graph() == scope.graph)
            scope.graph->rename(*squatter, generated_number(ours) ? "" : ours + "_");
    return ours;
}

OnnxImporter::Bound OnnxImporter::resolve(const onnx::Attribute& a, Scope& scope) const {
    if (a.ref_attr_name.empty()) return {&a, &scope};
    if (!scope.bound) return {nullptr, nullptr};
    auto it = scope.bound->find(a.ref_attr_name);
    return it == scope.bound->end() ? Bound{nullptr, nullptr} : it->second;
}

Result<Attr> OnnxImporter::read_attr(const onnx::Node& node, const onnx::Attribute& a, Scope& lookup, const Scope& at,
                                     const std::vector<Value*>& inputs) {
    using T = onnx::AttributeType;
    switch (a.type) {
        case T::Float: return Attr(a.f);
        case T::Int: return Attr(a.i);
        case T::String: return Attr(a.s);
        case T::Floats: return Attr(a.floats);
        case T::Ints: return Attr(a.ints);
        case T::Strings: return Attr(a.strings);
        case T::Tensor:
            if (a.t) return Attr(TRY(tensor_from_onnx(*a.t, data_)));
            break;
        case T::SparseTensor:
            if (a.sparse_tensor) return Attr(TRY(tensor_from_onnx(*a.sparse_tensor, data_)));
            break;
        case T::TypeProto:
            if (a.tp)
                return Attr(TRY(type_from_onnx(*a.tp, a.name, [this](const std::string& p) { return dim_param(p); })));
            break;
        case T::Graph:
            if (a.g)
                return Attr(TRY(import_nested(*a.g, lookup, at, nested_input_types(node, a.g->inputs.size(), inputs))));
            break;
        default:
            return Error(Code::E0206, "attribute {} is of kind {}, which no operator accepts", a.name,
                         attribute_type_name(a.type));
    }
    return Error(Code::E0206, "attribute {} is declared as {} but has no value", a.name, attribute_type_name(a.type));
}

Result<AttrMap> OnnxImporter::read_attrs(const onnx::Node& node, Scope& scope, const std::vector<Value*>& inputs) {
    AttrMap attrs;
    for (const onnx::Attribute& a : node.attributes) {
        if (!a.ref_attr_name.empty() && !scope.bound)
            return Error(Code::E0206, "attribute {} refers to a function's attribute outside a function", a.name);
        Bound bound = resolve(a, scope);
        if (!bound.attribute) continue;             // the caller left it out
        if (a.name == "consumed_inputs") continue;  // a hint to compute in place, before opset 6
        Attr value = TRY(read_attr(node, *bound.attribute, *bound.scope, scope, inputs));
        if (!attrs.emplace(a.name, std::move(value)).second)
            return Error(Code::E0206, "attribute {} is given twice", a.name);
    }
    return attrs;
}

Result<std::vector<Value*>> OnnxImporter::read_inputs(const onnx::Node& node, Scope& scope) {
    std::vector<Value*> inputs;
    for (const std::string& name : node.inputs) {
        if (name.empty()) {
            inputs.push_back(nullptr);
            continue;
        }
        Value** value = find(name, scope);
        if (!value) {
            std::vector<std::string_view> candidates;
            for (Scope* s = &scope; s; s = s->outer)
                for (const auto& [known, _] : s->values) candidates.push_back(known);
            std::sort(candidates.begin(), candidates.end());
            Error error(Code::E0203, "input \"{}\" is never defined", name);
            if (std::string near = nearest(name, candidates); !near.empty())
                return std::move(error).hint("did you mean \"{}\"?", near);
            return error;
        }
        inputs.push_back(*value);
    }
    while (!inputs.empty() && !inputs.back()) inputs.pop_back();
    return inputs;
}

Error OnnxImporter::unknown_op(const onnx::Node& node, const std::string& domain, const Scope& scope) const {
    auto version = scope.opsets->find(domain);
    Error error(Code::E0201, "{} is not a supported operator of domain {} (opset {})", node.op_type,
                shown_domain(domain),
                version == scope.opsets->end() ? "not imported" : std::to_string(version->second));
    std::vector<std::string_view> names, domains;
    for (const OpDef* op : all_ops()) {
        if (op->onnx.name.empty()) continue;
        if (op->onnx.name == node.op_type)
            return std::move(error).hint("domain {} has an operator of that name", shown_domain(op->onnx.domain));
        if (op->onnx.domain == domain) names.push_back(op->onnx.name);
        domains.push_back(op->onnx.domain);
    }
    if (names.empty())
        return std::move(error).hint(
            "operators of other domains can be defined by functions in the model (ModelProto.functions)");
    if (std::string near = nearest(node.op_type, names); !near.empty())
        return std::move(error).hint("did you mean {}?", near);
    return std::move(error).hint("`tessera ops` lists the supported operators");
}

Status OnnxImporter::check_declared(Value& value, const std::string& name, Scope& scope, const std::string& where) {
    auto it = scope.declared.find(name);
    if (it == scope.declared.end()) return {};
    const onnx::Type& said = it->second->type;
    if (said.kind == onnx::Type::Kind::None || (said.kind == onnx::Type::Kind::Tensor && said.elem_type == 0))
        return {};
    bool binding = scope.outputs.count(name) && !scope.graph->outer();
    auto declared = type_from_onnx(said, value.name(), [this](const std::string& p) { return dim_param(p); });
    if (!declared.ok()) {
        if (!binding) return {};
        return contradiction(std::move(declared).error().at(where), Code::W0201);
    }
    auto refined = refine(value.type(), *declared, value.name());
    if (refined) {
        if (!options_.strict) refined = with_rank_of(value.type(), *refined, value.name());
        if (options_.declared && !(value.type() == *refined)) *options_.declared = true;
        value.set_type(std::move(*refined));
    } else if (binding) {
        return contradiction(
            Error(Code::E0210, "output \"{}\" is declared {}, but the graph computes {}", name, *declared, value.type())
                .at(where)
                .hint("declare the output as it is computed, or make its sizes dynamic"),
            Code::W0201);
    }
    return {};
}

Status OnnxImporter::contradiction(Error error, Code warning) {
    if (options_.strict) return error;
    if (options_.warnings) options_.warnings->push_back({warning, error.message(), error.where(), error.hint()});
    return {};
}

Status OnnxImporter::import_constant(const onnx::Node& node, Scope& scope) {
    std::string place = where(node, scope);
    auto wrong = [&](std::string_view what) { return Error(Code::E0206, "Constant: {}", what).at(place); };
    if (!node.inputs.empty()) return Error(Code::E0207, "Constant takes no inputs").at(place);
    if (node.outputs.size() != 1 || node.outputs[0].empty())
        return Error(Code::E0207, "Constant has one output").at(place);
    auto attrs = read_attrs(node, scope, {});
    if (!attrs.ok()) return std::move(attrs).error().at(place);
    if (attrs->size() != 1) return wrong("exactly one of its value attributes must be given");
    const auto& [name, attr] = *attrs->begin();
    std::optional<Tensor> tensor;
    if (name == "value" || name == "sparse_value") {
        if (auto* t = std::get_if<Tensor>(&attr)) tensor = *t;
    } else if (name == "value_int") {
        if (auto* v = std::get_if<int64_t>(&attr)) tensor = Tensor::scalar(*v);
    } else if (name == "value_float") {
        if (auto* v = std::get_if<float>(&attr)) tensor = Tensor::scalar(*v);
    } else if (name == "value_string") {
        if (auto* v = std::get_if<std::string>(&attr)) tensor = Tensor::strings({}, {*v});
    } else if (name == "value_ints") {
        if (auto* v = std::get_if<std::vector<int64_t>>(&attr)) tensor = Tensor::ints(*v);
    } else if (name == "value_floats") {
        if (auto* v = std::get_if<std::vector<float>>(&attr)) tensor = Tensor::of<float>({int64_t(v->size())}, *v);
    } else if (name == "value_strings") {
        if (auto* v = std::get_if<std::vector<std::string>>(&attr)) tensor = Tensor::strings({int64_t(v->size())}, *v);
    } else {
        return wrong(fmt::format("attribute {} is not known", name));
    }
    if (!tensor) return wrong(fmt::format("attribute {} has kind {}", name, attr_kind_name(attr_kind(attr))));
    std::string ours = free_name(node.outputs[0], scope);
    return define(node.outputs[0], scope.graph->constant(std::move(*tensor), ours), scope, place);
}

Status OnnxImporter::import_call(const onnx::Node& node, const onnx::Function& function, Scope& scope) {
    std::string place = where(node, scope);
    FunctionKey key{plain_domain(function.domain), function.name, function.overload};
    if (std::find(calls_.begin(), calls_.end(), key) != calls_.end())
        return Error(Code::E0215, "function {} calls itself", function.name).at(place);
    if (scope.depth + 1 > options_.max_depth)
        return Error(Code::E0109, "functions call each other more than {} levels deep", options_.max_depth).at(place);
    inlined_ += function.nodes.size();
    if (inlined_ > options_.max_inlined_nodes)
        return Error(Code::E0108, "inlining the model's functions creates more than {} nodes",
                     options_.max_inlined_nodes)
            .at(place);
    if (node.inputs.size() > function.inputs.size())
        return Error(Code::E0207, "function {} takes {} inputs, but gets {}", function.name, function.inputs.size(),
                     node.inputs.size())
            .at(place);
    if (node.outputs.size() > function.outputs.size())
        return Error(Code::E0207, "function {} has {} outputs, but the node has {}", function.name,
                     function.outputs.size(), node.outputs.size())
            .at(place);

    auto inputs = read_inputs(node, scope);
    if (!inputs.ok()) return std::move(inputs).error().at(place);
    std::map<std::string, Bound> bound;
    for (const onnx::Attribute& a : node.attributes)
        if (Bound b = resolve(a, scope); b.attribute) bound[a.name] = b;
    Scope body{.graph = scope.graph, .outer = nullptr, .values = {}};
    for (const onnx::Attribute& a : function.attribute_protos) bound.emplace(a.name, Bound{&a, &body});
    body.bound = &bound;
    body.depth = scope.depth + 1;
    // The caller names what goes on inside; a hostile name must not grow with every level.
    std::string label = !node.name.empty() ? node.name : function.name;
    body.prefix = scope.prefix + label + "/";
    if (body.prefix.size() > 200) body.prefix = fmt::format("inlined{}/", inlined_);
    Opsets opsets;
    TRY(read_opsets(function.opset_import, opsets, "function " + function.name));
    for (const auto& [domain, version] : *scope.opsets) opsets.emplace(domain, version);
    body.opsets = &opsets;
    for (const auto& v : function.value_info) body.declared.emplace(v.name, &v);
    for (size_t i = 0; i < function.inputs.size(); ++i)
        TRY(define(function.inputs[i], i < inputs->size() ? (*inputs)[i] : nullptr, body, place));
    for (size_t i = 0; i < node.outputs.size(); ++i)
        if (!node.outputs[i].empty() && !body.values.count(function.outputs[i]))
            body.renamed.emplace(function.outputs[i], free_name(node.outputs[i], scope));

    calls_.push_back(key);
    TRY(import_nodes(function.nodes, body));
    calls_.pop_back();

    for (size_t i = 0; i < node.outputs.size(); ++i) {
        if (node.outputs[i].empty()) continue;
        auto it = body.values.find(function.outputs[i]);
        if (it == body.values.end() || !it->second)
            return Error(Code::E0203, "output \"{}\" of function {} is never defined", function.outputs[i],
                         function.name)
                .at(place);
        TRY(define(node.outputs[i], it->second, scope, place));
        TRY(check_declared(*it->second, node.outputs[i], scope, place));
    }
    return {};
}

Result<int> OnnxImporter::opset_of(const onnx::Node& node, const std::string& domain, const Scope& scope) {
    const int since = onnx::first_opset(domain, node.op_type);
    auto version = scope.opsets->find(domain);
    if (version == scope.opsets->end()) {
        TRY(contradiction(Error(Code::E0202, "{} belongs to domain {}, which the model does not import", node.op_type,
                                shown_domain(domain))
                              .at(where(node, scope)),
                          Code::W0202));
        return std::max(since, onnx::newest_opset(domain));
    }
    if (since <= version->second) return version->second;
    TRY(contradiction(Error(Code::E0201, "{} exists since opset {} of domain {}, but the model imports opset {}",
                            node.op_type, since, shown_domain(domain), version->second)
                          .at(where(node, scope))
                          .hint("export the model with opset {} or newer", since),
                      Code::W0202));
    return since;
}

// What was made for a node takes its outputs' names; what was there already has one.
Status OnnxImporter::define_made(const onnx::Node& node, const std::vector<Value*>& made, size_t before, Scope& scope) {
    const std::string place = where(node, scope);
    const auto& nodes = scope.graph->nodes();
    for (size_t i = 0; i < node.outputs.size(); ++i) {
        if (node.outputs[i].empty()) continue;
        Value* value = i < made.size() ? made[i] : nullptr;
        if (!value) return Error(Code::E0207, "{} has no output {} in this form", node.op_type, i).at(place);
        const auto end = made.begin() + static_cast<ptrdiff_t>(i);
        const bool fresh = std::any_of(nodes.begin() + static_cast<ptrdiff_t>(before), nodes.end(),
                                       [&](const auto& n) { return n.get() == value->node(); });
        if (fresh && std::find(made.begin(), end, value) == end)
            scope.graph->rename(*value, free_name(node.outputs[i], scope));
        TRY(define(node.outputs[i], value, scope, place));
        TRY(check_declared(*value, node.outputs[i], scope, place));
    }
    return {};
}

Status OnnxImporter::import_node(const onnx::Node& node, Scope& scope) {
    std::string domain = plain_domain(node.domain);
    if (auto f = functions_.find({domain, node.op_type, node.overload}); f != functions_.end())
        return import_call(node, *f->second, scope);
    std::string place = where(node, scope);
    const OpDef* op = find_onnx_op(domain, node.op_type);
    if (domain.empty() && node.op_type == "Constant") return import_constant(node, scope);
    const ForeignOp* foreign = op ? nullptr : find_foreign_op(domain, node.op_type);
    if (!op && !foreign) return unknown_op(node, domain, scope).at(place);
    const int version = TRY(opset_of(node, domain, scope));

    auto inputs = read_inputs(node, scope);
    if (!inputs.ok()) return std::move(inputs).error().at(place);
    bool alias = domain.empty() && node.op_type == "Identity" && inputs->size() == 1 && (*inputs)[0] &&
                 std::any_of(node.metadata_props.begin(), node.metadata_props.end(),
                             [](const onnx::StringPair& p) { return p.key == kAliasMark; });
    if (alias && node.outputs.size() == 1) return define(node.outputs[0], (*inputs)[0], scope, place);

    auto attrs = read_attrs(node, scope, *inputs);
    if (!attrs.ok()) return std::move(attrs).error().at(place);
    size_t outputs = node.outputs.size();
    while (outputs > 0 && node.outputs[outputs - 1].empty()) --outputs;
    Builder build(*scope.graph, place);
    OnnxCall call{node.op_type, version, std::move(*inputs), std::move(*attrs), outputs, build, {}};
    size_t before = scope.graph->nodes().size();
    if (foreign) {
        ForeignCall written(call);
        Status made = foreign->build(written);
        if (!made.ok()) return std::move(made).error().at(place);
        return define_made(node, call.result, before, scope);
    }
    if (op->onnx.accept && !options_.strict)
        if (std::string did = op->onnx.accept(call); !did.empty())
            TRY(contradiction(Error(Code::E0210, "{}: {}", node.op_type, did).at(place), Code::W0202));
    for (const OnnxChange& change : op->onnx.changes) {
        if (change.opset <= version || !change.up) continue;
        Status changed = change.up(call);
        if (changed.ok()) changed = build.status();
        if (!changed.ok()) return std::move(changed).error().at(place);
        if (!call.result.empty()) break;
    }

    if (!call.result.empty()) return define_made(node, call.result, before, scope);

    NodeSpec spec{.op = op, .inputs = std::move(call.inputs), .attrs = std::move(call.attrs), .outputs = call.outputs};
    if (!node.name.empty()) spec.name = scope.prefix + node.name;
    for (size_t i = 0; i < outputs; ++i) {
        bool given = !node.outputs[i].empty();
        spec.output_names.push_back(given ? free_name(node.outputs[i], scope) : "");
        spec.given.push_back(given);
    }
    for (const auto& p : node.metadata_props) {
        const AttrDef* def = p.key.starts_with(kHintPrefix) ? op->attr(p.key.substr(kHintPrefix.size())) : nullptr;
        auto hint = def && def->is_hint ? hint_from_onnx(def->kind, p.value) : std::nullopt;
        if (hint)
            spec.attrs[def->name] = std::move(*hint);
        else
            spec.metadata[p.key] = p.value;
    }
    if (!node.doc_string.empty()) spec.metadata["doc_string"] = node.doc_string;
    auto added = scope.graph->add(std::move(spec));
    if (!added.ok()) return std::move(added).error().at(place);
    for (size_t i = 0; i < outputs; ++i) {
        if (node.outputs[i].empty()) continue;
        if (i >= (*added)->output_count())
            return Error(Code::E0207, "{} has no output {} in this form", node.op_type, i).at(place);
        Value* value = (*added)->output(i);
        TRY(define(node.outputs[i], value, scope, place));
        TRY(check_declared(*value, node.outputs[i], scope, place));
    }
    return {};
}

}  // namespace tessera
