// What an executable owns: the program with its code and weights, and the model for runs that the program does not
// support. A baseline also owns the executable that replaces it once compiled.
#pragma once

#include <atomic>
#include <mutex>

#include "api/background_compile.h"
#include "api/specialised.h"
#include "api/stages.h"
#include "base/protect.h"
#include "graph/text/print.h"
#include "llvm/compile_kernels.h"
#include "runtime/code_cache.h"
#include "runtime/loaded_program.h"
#include "runtime/stored_program.h"
#include "tessera/compile.h"

namespace tessera {

inline constexpr std::string_view kFull = "full", kFast = "fast", kAuto = "auto";  // tiers

Result<Executable> compile_model(std::optional<Model>& own, const CompileOptions& options);

struct Executable::State {
    using Loaded = std::shared_ptr<const LoadedProgram>;

    std::vector<Port> inputs, outputs;
    CompileReport report;
    CodegenOptions codegen;
    std::shared_ptr<LoadedProgram> loaded;     // null: for another machine, or a baseline that was replaced
    Program foreign;                           // for another machine
    std::optional<ProgramEntry> entry;         // of the cache or a file, that its weights are read from
    std::string packed;                        // without an entry: the program, where it can be stored
    std::optional<Model> origin;               // if the program cannot be stored: the model that it was compiled from
    std::unique_ptr<Specialised> specialised;  // where sizes decide how the model goes on

    // The file it was compiled from, and what model_key gave for it; empty where neither is known.
    std::string source, source_key;

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

    std::unique_ptr<BackgroundCompile> optimizing;  // of a baseline
    std::mutex replacing;                           // over `loaded` of a baseline
    std::atomic<bool> replaced = false;

    // The executable that answers: optimized code, once it is there.
    State& now() {
        const Executable* better = optimizing ? optimizing->ready() : nullptr;
        return better ? *better->state_ : *this;
    }
    // The same, which waits for optimized code. E0410, E0801 and others where it cannot be compiled.
    Result<State*> optimized() {
        if (optimizing) TRY(optimizing->wait());
        return &now();
    }
    Reproducer reproducer() {
        return {.text = [this] {
            if (model) return model->to_text();
            const Loaded loaded = running();
            if (loaded && loaded->complete()) return print(*loaded->program().graph);
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
    // The program that answers, kept for as long as a run needs it; null where it is another machine's. A baseline's is
    // counted, since it goes when it is replaced.
    Loaded running() {
        if (!optimizing) return Loaded(Loaded(), loaded.get());
        if (!replaced.load(std::memory_order_relaxed)) {
            std::shared_ptr<LoadedProgram> last;  // goes when the mutex is free
            const std::lock_guard lock(replacing);
            if (&now() == this) return loaded;
            last.swap(loaded);
            replaced = true;
        }
        return now().running();
    }
    Result<Loaded> here() {
        if (Loaded program = running()) return program;
        return Error(Code::E0603, "this was compiled for {}, and cannot run on this machine", codegen.target)
            .hint("compile for the host to run it here");
    }
    // The program for these inputs.
    Result<Loaded> here(const NamedData& inputs) {
        State& state = now();
        const Executable* own = state.specialised ? state.specialised->find(inputs) : nullptr;
        return own ? own->state_->here() : state.here();
    }
};

}  // namespace tessera
