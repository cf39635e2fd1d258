// What an executable holds: the program with its code and weights, and what a run that does not fit it falls back on.
#pragma once

#include <atomic>
#include <mutex>

#include "base/protect.h"
#include "graph/text/print.h"
#include "llvm/compile_kernels.h"
#include "runtime/code_cache.h"
#include "runtime/loaded_program.h"
#include "runtime/stored_program.h"
#include "specialised.h"
#include "stages.h"
#include "tessera/compile.h"

namespace tessera {

struct Executable::State {
    std::vector<Port> inputs, outputs;
    CompileReport report;
    CodegenOptions codegen;
    std::unique_ptr<LoadedProgram> loaded;     // null: for another machine
    Program foreign;                           // then
    std::optional<ProgramEntry> entry;         // of the cache or a file, that its weights are read from
    std::string packed;                        // without an entry: the program, where it can be stored
    std::optional<Model> origin;               // where it cannot: what it was compiled from
    std::unique_ptr<Specialised> specialised;  // where sizes decide how the model goes on

    CompileOptions options;
    // Of a model whose declared sizes a run may contradict: itself, and what was compiled where one did.
    std::optional<Model> model;
    std::mutex mutex;  // over what follows
    struct Relaxed {
        std::shared_ptr<Graph> graph;
        Executable executable;
    };
    std::vector<Relaxed> relaxed;  // each fits more sizes than the one before
    struct Fixed {
        std::vector<Sizes> sizes;  // of its inputs
        Executable executable;
    };
    std::vector<Fixed> fixed;  // where none of those does
    // Inputs of these sizes contradicted the model: what answered then answers from the start.
    struct Settled {
        std::vector<Sizes> sizes;
        Executable executable;
        std::optional<Warning> warning;
    };
    std::vector<Settled> settled;
    std::atomic<bool> any_settled = false;

    Reproducer reproducer() const {
        return {.text = [this] {
            if (model) return model->to_text();
            if (loaded && loaded->complete()) return print(*program().graph);
            auto all = kernels();  // its weights are not as the model had them any more
            return all.ok() ? print_kernels(*all) : std::string();
        }};
    }
    Result<std::string> emit(std::string_view what) const;
    static constexpr size_t kMostRelaxed = 3, kMostFixed = 8, kMostSettled = 16;
    std::vector<Sizes> sizes_of_inputs(const NamedData& given) const;
    std::optional<Settled> settled_for(const NamedData& inputs);
    void settle(const NamedData& inputs, const Executable& executable, std::optional<Warning> warning);
    Result<Executable> relaxed_for(size_t i, const NamedData& inputs);
    Result<Executable> fixed_for(const NamedData& inputs);
    Result<std::vector<Datum>> run_relaxed(const NamedData& inputs, const RunOptions& options, const Error& because);
    Result<std::vector<Kernel>> kernels() const {
        if (!entry) return program().kernels;
        return TRY(unpack_program(entry->program, {})).program.kernels;
    }
    const Program& program() const { return loaded ? loaded->program() : foreign; }
    Result<const LoadedProgram*> here() const {
        if (loaded) return loaded.get();
        return Error(Code::E0603, "this was compiled for {}, which this machine is not", codegen.target)
            .hint("compile for the host to run it here");
    }
    // The program for these inputs.
    Result<const LoadedProgram*> here(const NamedData& inputs) const {
        const Executable* own = specialised ? specialised->find(inputs) : nullptr;
        return own ? own->state_->here() : here();
    }
};

}  // namespace tessera
