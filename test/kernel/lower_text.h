// Lowers a graph written as text in every way and compares what comes out with the evaluator, on random inputs.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "graph/text/parse.h"
#include "kernel/run_program.h"

namespace tessera::test {

inline std::shared_ptr<const Graph> graph_of(std::string_view text) {
    auto graph = parse(text);
    EXPECT_TRUE(graph.ok()) << graph.error().to_string();
    return std::shared_ptr<const Graph>(std::move(*graph));
}

inline Program lowered(std::string_view text, LowerOptions options = {}) {
    auto program = from_graph(graph_of(text), options);
    EXPECT_TRUE(program.ok()) << program.error().to_string();
    return std::move(*program);
}

inline Tensor random_tensor(DType t, const Sizes& sizes, std::mt19937& gen) {
    Tensor x = *Tensor::zeros(t, sizes);
    std::uniform_real_distribution<double> real(-2, 2);
    std::uniform_int_distribution<int64_t> whole(0, 3), byte(0, 255);
    for (int64_t i = 0; i < x.elements(); ++i) {
        if (is_float(t))
            x.set_real(i, real(gen));
        else if (t == DType::u8 || t == DType::i8)
            x.set_int(i, byte(gen) - (t == DType::i8 ? 128 : 0));
        else
            x.set_int(i, t == DType::boolean ? whole(gen) % 2 : whole(gen));
    }
    return x;
}

inline Inputs random_inputs(const Graph& graph, const SymbolValues& symbols, unsigned seed) {
    std::mt19937 gen(seed);
    Inputs inputs;
    for (const auto& v : graph.inputs()) {
        Sizes sizes;
        for (const Dim& d : v->type().tensor().shape) sizes.push_back(*evaluate_int(d, symbols));
        inputs[v->name()] = Datum(random_tensor(v->type().tensor().dtype, sizes, gen));
    }
    return inputs;
}

inline double tolerance_of(DType t) {
    if (is_int(t)) return 0;
    if (t == DType::f16) return 2e-3;
    if (t == DType::bf16) return 2e-2;
    return t == DType::f64 ? 1e-11 : 2e-4;
}

inline void expect_close(const Datum& got, const Datum& want) {
    ASSERT_TRUE(got.is_tensor() && want.is_tensor());
    ASSERT_EQ(got.tensor().sizes(), want.tensor().sizes());
    ASSERT_EQ(got.tensor().dtype(), want.tensor().dtype());
    const double tolerance = tolerance_of(want.tensor().dtype());
    for (int64_t i = 0; i < want.tensor().elements(); ++i) {
        double a = got.tensor().real_at(i), b = want.tensor().real_at(i);
        if (a == b || (std::isnan(a) && std::isnan(b))) continue;
        ASSERT_LE(std::fabs(a - b), tolerance * std::max(1.0, std::fabs(b))) << "element " << i;
    }
}

// Fused and not, scheduled and not.
inline void expect_as_evaluated(std::string_view text, const SymbolValues& symbols = {}, bool host_allowed = false) {
    SCOPED_TRACE(text);
    auto graph = graph_of(text);
    Inputs inputs = random_inputs(*graph, symbols, 7);
    auto want = evaluate(*graph, inputs);
    ASSERT_TRUE(want.ok()) << want.error().to_string();
    for (int way = 0; way < 4; ++way) {
        LowerOptions options;
        options.fuse = way & 1;
        options.schedule = way & 2;
        SCOPED_TRACE(
            fmt::format("{}, {}", options.fuse ? "fused" : "not fused", options.schedule ? "scheduled" : "plain"));
        auto program = from_graph(graph, options);
        ASSERT_TRUE(program.ok()) << program.error().to_string();
        if (!host_allowed)
            for (const Step& s : program->steps)
                if (auto* host = std::get_if<HostStep>(&s))
                    ADD_FAILURE() << host->node->op().name << " is left to the host: " << host->reason;
        auto got = run_program(*program, inputs);
        ASSERT_TRUE(got.ok()) << got.error().to_string();
        ASSERT_EQ(got->size(), want->size());
        for (size_t i = 0; i < want->size(); ++i) expect_close((*got)[i], (*want)[i]);
    }
}

// What the steps compute, in order: "conv+relu", "host top_k", "check gather", "sizes slice".
inline std::vector<std::string> step_labels(const Program& program) {
    std::vector<std::string> labels;
    for (const Step& s : program.steps) {
        if (auto* kernel = std::get_if<KernelStep>(&s))
            labels.push_back(kernel->label.substr(0, kernel->label.find(' ')));
        else
            labels.push_back(fmt::format("{} {}", kind_of(s), node_of(s)->op().name));
    }
    return labels;
}

}  // namespace tessera::test
