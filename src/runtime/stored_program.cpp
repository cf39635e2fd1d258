#include "runtime/stored_program.h"

#include <nlohmann/json.hpp>

#include "expr/text.h"
#include "graph/text/parse.h"
#include "graph/text/print.h"
#include "runtime/weight_places.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

// The node that gave a value: nodes need have no names, values have, where the text names them.
std::string name_of(const Node& node) {
    for (size_t i = 0; i < node.output_count(); ++i)
        if (node.output_given(i)) return node.output(i)->name();
    return {};
}

bool is_found(const Graph& graph, const Node* node) {
    if (node->output_count() == 0) return false;
    const Value* v = graph.find_value(name_of(*node));
    return v && v->node() == node;
}

// ---- to bytes

Json packed(const Expr& e) {
    if (auto n = e.as_int()) return *n;
    return to_string(e, [](int) { return std::string(); });
}

Json packed(const std::vector<Expr>& list) {
    Json out = Json::array();
    for (const Expr& e : list) out.push_back(packed(e));
    return out;
}

Json packed(const ProgramBuffer& b) {
    return Json::array({b.name, static_cast<int>(b.dtype), packed(b.shape), static_cast<int>(b.role),
                        b.value ? b.value->name() : "", b.order, b.alias});
}

Json packed(const Step& step) {
    if (auto* check = std::get_if<CheckStep>(&step))
        return Json::array({"check", name_of(*check->node), check->inputs});
    if (auto* infer = std::get_if<InferStep>(&step))
        return Json::array({"infer", name_of(*infer->node), infer->inputs, infer->contents, infer->sizes});
    if (auto* found = std::get_if<FoundStep>(&step))
        return Json::array({"found", name_of(*found->node), found->count, found->dims});
    if (auto* control = std::get_if<ControlStep>(&step))
        return Json::array({"control", name_of(*control->node), control->inputs, control->outputs});
    if (auto* host = std::get_if<HostStep>(&step))
        return Json::array({"host", name_of(*host->node), host->inputs, host->outputs, host->reason});
    const auto& kernel = std::get<KernelStep>(step);
    Json nodes = Json::array();
    for (const Node* node : kernel.nodes) nodes.push_back(name_of(*node));
    return Json::array({kernel.kernel, kernel.args, packed(kernel.symbols), kernel.label, nodes, packed(kernel.flops),
                        packed(kernel.bytes)});
}

// The node of a step, and which of its attributes, hold the graph.
std::optional<std::pair<const Node*, std::string>> place_of(const Program& program, const Graph* graph) {
    for (const Step& step : program.steps) {
        const Node* node = node_of(step);
        if (!node) continue;
        for (const auto& [name, attr] : node->attrs())
            if (auto* nested = std::get_if<GraphPtr>(&attr); nested && nested->get() == graph) return {{node, name}};
    }
    return {};
}

// All but the kernels, which nested programs share.
Json packed(const Program& program) {
    Json j;
    j["graph"] = print(*program.graph, {.by_value = kStoredByValue, .weights_file = "none"});
    j["buffers"] = Json::array();
    for (const ProgramBuffer& b : program.buffers) j["buffers"].push_back(packed(b));
    j["steps"] = Json::array();
    for (const Step& s : program.steps) j["steps"].push_back(packed(s));
    j["inputs"] = program.inputs;
    j["outputs"] = program.outputs;
    j["equal_sizes"] = Json::array();
    for (const EqualSizes& e : program.equal_sizes)
        j["equal_sizes"].push_back(Json::array({e.value, packed(e.said), packed(e.found)}));
    j["nested"] = Json::array();
    for (const NestedProgram& n : program.nested) {
        const auto place = place_of(program, n.graph);
        Json captured = Json::array();
        for (const Value* v : n.captured) captured.push_back(v->name());
        j["nested"].push_back({name_of(*place->first), place->second, captured, packed(*n.program)});
    }
    return j;
}

// ---- from bytes: what does not fit throws, here alone

struct Misfit {};

Expr expr_of(const Json& j) {
    if (j.is_number_integer()) return Expr(j.get<int64_t>());
    const auto& text = j.get_ref<const std::string&>();
    ExprNames names{[](const std::string& name) { return std::optional(symbol(name)); },
                    [](const std::string&) { return std::optional<std::pair<int, DType>>(); }};
    ExprText read = parse_expr(text, 0, names);
    if (!read.expr || read.end != text.size()) throw Misfit{};
    return *read.expr;
}

std::vector<Expr> exprs_of(const Json& list) {
    std::vector<Expr> out;
    for (const Json& j : list) out.push_back(expr_of(j));
    return out;
}

class Unpacking {
  public:
    Unpacking(const Json& from, const std::string& source) : from_(from), source_(source) {}

    StoredProgram run() {
        kernels();
        fill();
        CompileReport reported = report();
        return {std::move(program_), std::move(reported)};
    }

  private:
    // A nested one, with the kernels of the one around it.
    std::shared_ptr<Program> run_inside(const std::vector<Kernel>& kernels) {
        program_.kernels = kernels;
        fill();
        return std::make_shared<Program>(std::move(program_));
    }

    void fill() {
        graph();
        for (const Json& j : from_.at("buffers")) program_.buffers.push_back(buffer(j));
        for (const Json& j : from_.at("steps")) program_.steps.push_back(step(j));
        program_.inputs = buffers(from_.at("inputs"));
        program_.outputs = buffers(from_.at("outputs"));
        for (const Json& j : from_.at("equal_sizes"))
            program_.equal_sizes.push_back({j.at(0).get<std::string>(), expr_of(j.at(1)), expr_of(j.at(2))});
        for (const ProgramBuffer& b : program_.buffers) (void)checked(b.alias);
        for (const Json& j : from_.at("nested")) program_.nested.push_back(nested(j));
    }

    NestedProgram nested(const Json& j) const {
        const auto& attrs = node(j.at(0))->attrs();
        const auto attr = attrs.find(j.at(1).get<std::string>());
        const auto* graph = attr == attrs.end() ? nullptr : std::get_if<GraphPtr>(&attr->second);
        if (!graph || !*graph) throw Misfit{};
        NestedProgram n{graph->get(), {}, Unpacking(j.at(3), source_).run_inside(program_.kernels)};
        for (const Json& name : j.at(2)) n.captured.push_back(value(name));
        return n;
    }

    void graph() {
        const auto& text = from_.at("graph").get_ref<const std::string&>();
        auto graph = parse(text, {.source = "stored program", .without_weights = true});
        if (!graph.ok()) throw Misfit{};
        (*graph)->info().source = source_;
        program_.graph = std::move(*graph);
    }

    void kernels() {
        auto kernels = parse_kernels(from_.at("kernels").get_ref<const std::string&>(), "stored program");
        if (!kernels.ok()) throw Misfit{};
        program_.kernels = std::move(*kernels);
    }

    const Value* value(const std::string& name) const {
        const Value* v = program_.graph->find_value(name);
        if (!v) throw Misfit{};
        return v;
    }

    const Node* node(const std::string& name) const {
        const Node* n = value(name)->node();
        if (!n) throw Misfit{};
        return n;
    }

    int checked(int b) const {
        if (b < -1 || b >= static_cast<int>(program_.buffers.size())) throw Misfit{};
        return b;
    }

    std::vector<int> buffers(const Json& list) const {
        std::vector<int> out;
        for (const Json& j : list) out.push_back(checked(j.get<int>()));
        return out;
    }

    ProgramBuffer buffer(const Json& j) const {
        ProgramBuffer b;
        b.name = j.at(0).get<std::string>();
        b.dtype = static_cast<DType>(j.at(1).get<int>());
        b.shape = exprs_of(j.at(2));
        b.role = static_cast<BufferRole>(j.at(3).get<int>());
        if (auto name = j.at(4).get<std::string>(); !name.empty()) b.value = value(name);
        b.order = j.at(5).get<std::vector<int>>();
        b.alias = j.at(6).get<int>();
        return b;
    }

    Step host_step(const Json& j) const {
        const std::string kind = j.at(0);
        const Node* of = node(j.at(1));
        if (kind == "check") return CheckStep{of, buffers(j.at(2))};
        if (kind == "infer") {
            InferStep s{of, buffers(j.at(2)), j.at(3).get<std::vector<size_t>>(),
                        j.at(4).get<std::vector<std::string>>()};
            for (size_t i : s.contents)
                if (i >= s.inputs.size() || s.inputs[i] < 0 || !of->input(i)) throw Misfit{};
            return s;
        }
        if (kind == "control") {
            ControlStep s{of, buffers(j.at(2)), buffers(j.at(3))};
            if (!of->op().control || s.outputs.size() > of->output_count()) throw Misfit{};
            return s;
        }
        if (kind == "host") {
            HostStep s{of, buffers(j.at(2)), buffers(j.at(3)), j.at(4).get<std::string>()};
            if (s.outputs.size() > of->output_count()) throw Misfit{};
            return s;
        }
        if (kind != "found") throw Misfit{};
        FoundStep s{of, checked(j.at(2).get<int>()), j.at(3).get<std::vector<int64_t>>()};
        if (s.count < 0 || s.dims.size() != of->output_count()) throw Misfit{};
        return s;
    }

    Step step(const Json& j) const {
        if (j.at(0).is_string()) return host_step(j);
        KernelStep s{j.at(0).get<size_t>(), buffers(j.at(1)), exprs_of(j.at(2)), j.at(3).get<std::string>()};
        if (s.kernel >= program_.kernels.size() || s.args.size() != program_.kernels[s.kernel].params) throw Misfit{};
        for (const Json& name : j.at(4)) s.nodes.push_back(node(name));
        s.flops = expr_of(j.at(5));
        s.bytes = expr_of(j.at(6));
        return s;
    }

    static size_t steps_of(const Program& program) {
        size_t steps = program.steps.size();
        for (const NestedProgram& n : program.nested) steps += steps_of(*n.program);
        return steps;
    }

    CompileReport report() const {
        CompileReport r;
        r.kernels = program_.kernels.size();
        r.steps = steps_of(program_);
        for (const Json& j : from_.at("decisions")) r.decisions.emplace_back(j.at(0), j.at(1));
        for (const Json& j : from_.at("host_reasons")) r.host_reasons.emplace_back(j.at(0), j.at(1));
        r.host_steps = r.host_reasons.size();
        r.host_numbers = from_.at("host_numbers");
        from_.at("deciding").get_to(r.deciding);
        return r;
    }

    const Json& from_;
    const std::string& source_;
    Program program_;
};

}  // namespace

Decision can_store(const Program& program) {
    if (!program.devices.empty()) return no("its steps for {} have code of their own", program.devices[0]);
    for (const Step& step : program.steps) {
        if (auto* kernel = std::get_if<KernelStep>(&step)) {
            for (const Node* node : kernel->nodes)
                if (!is_found(*program.graph, node)) return no("{} is not in the graph", node->where());
            continue;
        }
        const Node* node = node_of(step);
        if (!is_found(*program.graph, node)) return no("{} is not in the graph", node->where());
    }
    for (const ProgramBuffer& b : program.buffers) {
        if (b.dtype == DType::string) return no("\"{}\" holds strings", b.name);
        if (b.value && program.graph->find_value(b.value->name()) != b.value)
            return no("\"{}\" is not in the graph", b.value->name());
    }
    for (const NestedProgram& n : program.nested) {
        const auto place = place_of(program, n.graph);
        if (!place) return no("a nested graph is of no step");
        for (const Value* v : n.captured)
            if (program.graph->find_value(v->name()) != v) return no("\"{}\" is not in the graph", v->name());
        if (Decision inner = can_store(*n.program); !inner) return inner;
    }
    return yes();
}

std::string pack_program(const Program& program, const CompileReport& report) {
    Json j = packed(program);
    std::string kernels;
    for (const Kernel& k : program.kernels) kernels += to_string(k) + "\n";
    j["kernels"] = std::move(kernels);
    j["decisions"] = report.decisions;
    j["deciding"] = report.deciding;
    j["host_reasons"] = report.host_reasons;
    j["host_numbers"] = report.host_numbers;
    std::string bytes;
    Json::to_cbor(j, bytes);
    return bytes;
}

Result<StoredProgram> unpack_program(std::string_view bytes, const std::string& source) {
    const Error foreign(Code::E0605, "these bytes are no program that this version stored");
    const Json j = Json::from_cbor(bytes, true, false);
    if (j.is_discarded()) return foreign;
    try {
        return Unpacking(j, source).run();
    } catch (const Misfit&) {
        return foreign;
    } catch (const Json::exception&) {
        return foreign;
    }
}

}  // namespace tessera
