// A graph written as text on every back end: what the evaluator gives, the kernels give as they are written, those for a
// processor and those for blocks of threads, and so does machine code on one thread and on two; what the evaluator
// refuses, they refuse in the same words.
#pragma once

#include "kernel/lower_text.h"
#include "llvm/compile_kernels.h"
#include "tessera/compile.h"

namespace tessera::test {

using Fill = std::function<void(Inputs&, std::mt19937&)>;

inline std::string kernels_text(const Program& program) {
    std::string text;
    for (const Kernel& k : program.kernels) text += to_string(k) + "\n";
    return text;
}

inline void expect_everywhere(std::string_view text, const SymbolValues& symbols = {}, const Fill& fill = {}) {
    SCOPED_TRACE(text);
    auto graph = graph_of(text);
    std::mt19937 gen(11);
    Inputs inputs = random_inputs(*graph, symbols, 7);
    if (fill) fill(inputs, gen);
    auto want = evaluate(*graph, inputs);
    auto same = [&](const Result<std::vector<Datum>>& got) {
        ASSERT_EQ(got.ok(), want.ok()) << (got.ok() ? want.error() : got.error()).to_string();
        if (!want.ok()) {
            EXPECT_EQ(got.error().code(), want.error().code());
            EXPECT_EQ(got.error().message(), want.error().message());
            return;
        }
        ASSERT_EQ(got->size(), want->size());
        for (size_t i = 0; i < want->size(); ++i) expect_close((*got)[i], (*want)[i]);
    };
    auto program = from_graph(graph, {});
    ASSERT_TRUE(program.ok()) << program.error().to_string();
    auto again = parse_kernels(kernels_text(*program));
    EXPECT_TRUE(again.ok()) << again.error().to_string();
    for (const Step& s : program->steps)
        if (auto* host = std::get_if<HostStep>(&s))
            ADD_FAILURE() << host->node->op().name << " is left to the host: " << host->reason;
    {
        SCOPED_TRACE("interpreted");
        same(run_program(*program, inputs));
    }
    {
        SCOPED_TRACE("as blocks of threads, interpreted");
        LowerOptions blocks;
        blocks.machine = *describe_target("sm_90");
        auto for_gpu = from_graph(graph, blocks);
        ASSERT_TRUE(for_gpu.ok()) << for_gpu.error().to_string();
        same(run_program(*for_gpu, inputs));
    }
    for (int threads : {1, 2}) {
        SCOPED_TRACE(fmt::format("compiled, {} threads", threads));
        auto executable = compile(Model(graph->clone()), {.threads = threads, .cache = ""});
        ASSERT_TRUE(executable.ok()) << executable.error().to_string();
        same(executable->run(inputs));
    }
}

// An input of these values, over and over.
inline Fill with(const std::string& name, std::vector<double> values) {
    return [=](Inputs& inputs, std::mt19937&) {
        const Tensor& old = inputs.at(name).tensor();
        Tensor t = *Tensor::zeros(old.dtype(), old.sizes());
        for (int64_t i = 0; i < t.elements(); ++i) t.set_real(i, values[size_t(i) % values.size()]);
        inputs[name] = Datum(t);
    };
}

}  // namespace tessera::test
