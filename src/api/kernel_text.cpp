#include "api/kernel_text.h"

#include "backends/backend.h"
#include "base/protect.h"
#include "kernel/ir/check_bounds.h"
#include "onnx/file.h"

namespace tessera {
namespace {

Status add_computes(std::string_view text, const std::string& path, const LowerOptions& lower, TextStages& made) {
    const ScheduleOptions schedule = schedule_options(lower);
    std::vector<Choice> choices;
    for (const Compute& compute : TRY(parse_computes(text, path))) {
        TRY(verify(compute));
        TRY(check_bounds(compute));
        std::string traces;
        Lowered lowered = TRY(scheduling_of(lower).lower(compute, schedule, choices, &traces));
        made.stages.push_back({to_string(compute), std::move(traces)});
        made.kernels.push_back(std::move(lowered.kernel));
        if (lowered.prepare.body) made.kernels.push_back(std::move(lowered.prepare));
    }
    describe(choices, made.report);
    return {};
}

Status add_kernels(std::string_view text, const std::string& path, TextStages& made) {
    made.kernels = TRY(parse_kernels(text, path));
    for (const Kernel& kernel : made.kernels) TRY(verify(kernel));
    return {};
}

}  // namespace

Result<TextStages> compile_text(const std::string& path, const CompileOptions& options) {
    return protect("compile", {.file = path}, [&]() -> Result<TextStages> {
        auto file = TRY(onnx::MappedFile::open(path));
        const std::string_view text = file->bytes();
        const Precision precision = TRY(precision_named(options.precision));
        const LowerOptions lower = TRY(lower_options(options, precision, chosen_threads(options)));
        TextStages made;
        made.codegen = codegen_options(options, precision);
        made.has_computes = path.ends_with(kComputeSuffix);
        if (made.has_computes)
            TRY(add_computes(text, path, lower, made));
        else
            TRY(add_kernels(text, path, made));
        return made;
    });
}

Result<std::string> TextStages::emit(std::string_view what) const {
    if (what == "kernel") return print_kernels(kernels);
    if (what == "llvm") return emit_llvm(kernels, codegen);
    const Backend& backend = *TRY(find_backend(codegen.target));
    if (what == "asm" || what == backend.assembly()) return emit_assembly(kernels, codegen);
    if (has_computes && (what == "compute" || what == "schedule")) return print_stages(stages, what);
    return Error(Code::E0501, "the stage \"{}\" does not follow from this text", what)
        .hint("the stages are: {}kernel, llvm, asm", has_computes ? "compute, schedule, " : "");
}

}  // namespace tessera
