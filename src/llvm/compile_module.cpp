#include "llvm/compile_module.h"

#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/OptBisect.h>
#include <llvm/IR/PassInstrumentation.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

#include "base/cancel_scope.h"
#include "base/check.h"

namespace tessera::codegen {
namespace {

std::string symbol_name(const std::string& kernel, size_t index, size_t launch) {
    std::string out = "tessera_";
    for (char c : kernel.substr(0, 48)) out += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
    return fmt::format("{}_{}_{}", out, index, launch);
}

// What is left to do for IR that comes out of loops already unrolled and vectorised: registers for memory, common
// subexpressions, and what does not change moved out of loops. A third of the time of LLVM's own pipeline.
constexpr const char* kPasses =
    "function<eager-inv>(sroa<modify-cfg>,early-cse<memssa>,instcombine<max-iterations=1;no-verify-fixpoint>,"
    "simplifycfg,"
    "loop-mssa(licm),gvn,loop-mssa(licm),dse,instcombine<max-iterations=1;no-verify-fixpoint>,vector-combine,early-cse,"
    "simplifycfg)";

// For code that is soon there: registers for memory, and nothing computed twice.
constexpr const char* kFewPasses = "function(sroa,early-cse)";

// The emitter lets pointers move along with loops, and gives the rest as constant offsets: what loop strength reduction
// makes of that is no better, and takes as long as half of code generation. Once cancelled, no optional pass runs.
class WithoutStrengthReduction : public llvm::OptPassGate {
  public:
    bool shouldRunPass(llvm::StringRef pass, llvm::StringRef) override {
        return pass != "Loop Strength Reduction" && !CancelScope::cancelled();
    }
    bool isEnabled() const override { return true; }
};

void optimize(llvm::Module& module, llvm::TargetMachine& machine, int level) {
    if (level <= 0) return;
    llvm::PassInstrumentationCallbacks callbacks;
    callbacks.registerShouldRunOptionalPassCallback(
        [](llvm::StringRef, const llvm::Any&) { return !CancelScope::cancelled(); });
    llvm::PassBuilder builder(&machine, {}, {}, &callbacks);
    llvm::LoopAnalysisManager loops;
    llvm::FunctionAnalysisManager functions;
    llvm::CGSCCAnalysisManager graph;
    llvm::ModuleAnalysisManager modules;
    builder.registerModuleAnalyses(modules);
    builder.registerCGSCCAnalyses(graph);
    builder.registerFunctionAnalyses(functions);
    builder.registerLoopAnalyses(loops);
    builder.crossRegisterProxies(loops, functions, graph, modules);
    llvm::ModulePassManager passes;
    if (level < 3) {
        const bool known = !builder.parsePassPipeline(passes, level == 1 ? kFewPasses : kPasses);
        CHECK(known, "passes that LLVM does not have");
    } else {
        passes = builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3);
    }
    passes.run(module, modules);
}

Status unless_cancelled() {
    if (CancelScope::cancelled()) return Error(Code::E0410, "code generation was cancelled");
    return {};
}

}  // namespace

Result<std::vector<PlannedKernel>> plan_kernels(const std::vector<Kernel>& kernels, const Machine& machine) {
    std::vector<PlannedKernel> out;
    for (size_t i = 0; i < kernels.size(); ++i) {
        if (Decision d = can_compile(kernels[i], machine.blocks); !d)
            return Error(Code::E0604, "kernel {}: {}", kernels[i].name, d.reason());
        PlannedKernel planned{&kernels[i], TRY(plan_launches(kernels[i], machine)), {}};
        for (size_t j = 0; j < planned.launches.size(); ++j)
            planned.symbols.push_back(symbol_name(kernels[i].name, i, j));
        out.push_back(std::move(planned));
    }
    return out;
}

Result<std::string> compile_module(std::span<const PlannedKernel> kernels, const Target& target,
                                   const CodegenOptions& options, Form form,
                                   const std::function<void(llvm::Module&)>& add) {
    auto machine = make_target_machine(target, options.optimize);
    WithoutStrengthReduction gate;
    llvm::LLVMContext context;
    context.setOptPassGate(gate);
    llvm::Module module("tessera", context);
    module.setTargetTriple(target.triple);
    module.setDataLayout(machine->createDataLayout());
    for (const PlannedKernel& planned : kernels) {
        TRY(unless_cancelled());
        for (size_t i = 0; i < planned.launches.size(); ++i)
            TRY(Emitter(*planned.kernel, target, options, module).emit(planned.launches[i], planned.symbols[i]));
    }
    if (add) add(module);
    std::string problem;
    llvm::raw_string_ostream problems(problem);
    const bool broken = llvm::verifyModule(module, &problems);
    CHECK(!broken, "{}", problem);
    optimize(module, *machine, options.optimize);
    TRY(unless_cancelled());
    if (form == Form::Text) {
        std::string text;
        llvm::raw_string_ostream(text) << module;
        return text;
    }
    llvm::SmallVector<char, 0> bytes;
    llvm::raw_svector_ostream stream(bytes);
    llvm::legacy::PassManager codegen;
    const auto type = form == Form::Object ? llvm::CodeGenFileType::ObjectFile : llvm::CodeGenFileType::AssemblyFile;
    if (machine->addPassesToEmitFile(codegen, stream, nullptr, type))
        return Error(Code::E0604, "LLVM cannot emit this kind of file for target {}", target.triple);
    codegen.run(module);
    TRY(unless_cancelled());
    return std::string(bytes.begin(), bytes.end());
}

}  // namespace tessera::codegen
