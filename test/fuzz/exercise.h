// Does with a model's bytes all that a user could: load, print, parse back, write, optimize, run on random inputs under
// limits.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/memory.h"
#include "graph/evaluate/evaluate.h"
#include "graph/graph.h"
#include "graph/verify.h"
#include "kernel/ir/kernel.h"
#include "rewrite/rule.h"
#include "tessera/tessera.h"

namespace tessera {

inline constexpr int64_t kFuzzMemory = int64_t{256} << 20;
inline constexpr int64_t kFuzzWork = 2'000'000;

[[noreturn]] inline void broken(const Model& model, const char* what, const std::string& why) {
    fprintf(stderr, "%s: %s\n%s\n", what, why.c_str(), model.to_text().c_str());
    abort();
}

// Bit by bit, except that a NaN may have others.
inline bool same_values(const Datum& a, const Datum& b) {
    if (a.kind() != b.kind() || a.items().size() != b.items().size()) return false;
    for (size_t i = 0; i < a.items().size(); ++i)
        if (!same_values(a.items()[i], b.items()[i])) return false;
    if (!a.is_tensor() || a.tensor().same_bits(b.tensor())) return true;
    const Tensor &x = a.tensor(), &y = b.tensor();
    if (x.dtype() != y.dtype() || x.sizes() != y.sizes() || !is_float(x.dtype())) return false;
    for (int64_t i = 0; i < x.elements(); ++i)
        if (!(std::isnan(x.real_at(i)) && std::isnan(y.real_at(i))) &&
            (x.real_at(i) != y.real_at(i) || std::signbit(x.real_at(i)) != std::signbit(y.real_at(i))))
            return false;
    return true;
}

// Whether the model says of every value what it turns out to be: the optimizer believes it. (And draws no random
// numbers.)
inline bool is_honest(const Graph& graph, const NamedData& inputs) {
    bool honest = true;
    SymbolValues symbols;
    EvaluateOptions options;
    options.max_work = kFuzzWork;
    options.observe = [&](const Value& v, const Datum& d) { honest &= binds(v.type(), type_of(d), symbols); };
    std::vector<const Graph*> open = {&graph};
    while (!open.empty()) {
        const Graph* g = open.back();
        open.pop_back();
        for (const auto& node : g->nodes()) {
            honest &= !node->is(Trait::Random);
            for (const auto& [_, attr] : node->attrs())
                if (auto* nested = std::get_if<GraphPtr>(&attr)) open.push_back(nested->get());
        }
    }
    for (const auto& v : graph.inputs())
        if (auto it = inputs.find(v->name()); it != inputs.end()) binds(v->type(), type_of(it->second), symbols);
    return evaluate(graph, inputs, options).ok() && honest;
}

// Whether the model ran to the end; anything but a crash, a hang or a failed CHECK is fine.
inline bool exercise(const Model& model) {
    (void)model.summary();
    if (auto list = violations(model.graph()); !list.empty()) broken(model, "the graph breaks an invariant", list[0]);
    std::string difference;
    auto again = Model::parse(model.to_text());
    if (!again.ok()) broken(model, "printed text does not parse", again.error().to_string());
    if (!identical(model.graph(), again->graph(), &difference))
        broken(model, "printed text is another graph", difference);
    // Not always an identical graph: ONNX wants a name for every graph, and an older form leaves defaults out.
    if (auto written = model.to_onnx(); written.ok())
        if (auto read = Model::from_onnx(*written); !read.ok())
            broken(model, "written ONNX does not load", read.error().to_string());
    auto inputs = model.random_inputs(1);
    (void)optimize(model, {.precision = "fast", .verify = true});
    auto optimized = optimize(model, {.precision = "strict", .verify = true});
    if (!optimized.ok() && optimized.error().code() != Code::E0408)
        broken(model, "it cannot be optimized", optimized.error().to_string());
    if (!inputs.ok()) return false;
    RunOptions options;
    options.max_work = kFuzzWork;
    auto outputs = model.run(*inputs, options);
    if (!outputs.ok() || !optimized.ok() || !is_honest(model.graph(), *inputs)) return outputs.ok();
    auto again_outputs = optimized->model.run(*inputs, options);
    if (!again_outputs.ok()) broken(model, "the optimized model fails", again_outputs.error().to_string());
    for (size_t i = 0; i < outputs->size(); ++i)
        if (!same_values((*outputs)[i], (*again_outputs)[i]))
            broken(model, "the optimized model computes something else", model.outputs()[i].name);
    return true;
}

inline bool exercise_onnx(std::string_view bytes) {
    set_memory_limit(kFuzzMemory);
    auto model = Model::from_onnx(bytes);
    return model.ok() && exercise(*model);
}

inline bool exercise_text(std::string_view text) {
    set_memory_limit(kFuzzMemory);
    auto model = Model::parse(text);
    return model.ok() && exercise(*model);
}

// Rules through the reader and the printer. False where they cannot be read.
inline bool exercise_rules(std::string_view text) {
    Result<Rules> rules = read_rules(text, "fuzz.rules");
    if (!rules.ok()) return false;
    for (const Rule& rule : *rules) {
        Result<Rules> again = read_rules(to_string(rule), "again.rules");
        CHECK(again.ok() && again->size() == 1 && to_string(again->front()) == to_string(rule), "{}", to_string(rule));
    }
    return true;
}

// Kernels through the reader, the verifier and the printer. False where they cannot be read.
inline bool exercise_kernels(std::string_view text) {
    Result<std::vector<Kernel>> kernels = parse_kernels(text, "fuzz.tsk");
    if (!kernels.ok()) return false;
    for (const Kernel& kernel : *kernels) {
        (void)verify(kernel);
        std::string printed = to_string(kernel);
        Result<std::vector<Kernel>> again = parse_kernels(printed, "again.tsk");
        CHECK(again.ok() && again->size() == 1 && to_string(again->front()) == printed, "{}", printed);
    }
    return true;
}

}  // namespace tessera
