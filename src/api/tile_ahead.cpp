#include "api/tile_ahead.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "api/bundle_text.h"
#include "backends/backend.h"
#include "kernel/from_tile/from_tile.h"
#include "kernel/ir/tile_calls.h"
#include "llvm/compile_kernels.h"
#include "tile/program.h"

namespace tessera::tile {
namespace {

constexpr std::string_view kHeader = R"(/* The tile kernel {0}, compiled by Tessera for {1}. */
#ifndef {2}_H
#define {2}_H

#include <stdint.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {{
#endif

void {3}(void* const* buffers, const int64_t* symbols, int64_t begin, int64_t end, char* scratch);

/* Runs one of `parts_` parts of the grid: parts may run at the same time, on threads of their own. A pointer comes with
 * how many elements may be touched from there on. Arrays that are written share no memory with others. 0: done; 1: an
 * argument makes no sense; 2: there is no memory for the {4} bytes that a part works in. */
static inline int {0}_part({5}, int64_t part_, int64_t parts_) {{
    void* const buffers_[] = {{{6}}};
    const int64_t symbols_[] = {{{7}}};
    const int64_t extent_ = {8};
    char* memory_;
    if ({9}parts_ < 1 || part_ < 0 || part_ >= parts_) return 1;
    memory_ = (char*)malloc((size_t){4} + 64);
    if (!memory_) return 2;
    {3}(buffers_, symbols_, extent_ * part_ / parts_, extent_ * (part_ + 1) / parts_,
        memory_ + (64 - (uintptr_t)memory_ % 64) % 64);
    free(memory_);
    return 0;
}}

/* Runs all of it. */
static inline int {0}({5}) {{ return {0}_part({10}, 0, 1); }}

#ifdef __cplusplus
}}
#endif
#endif
)";

// Kernels may call their parameters what C keeps for itself.
std::string name_in_c(const std::string& name) {
    static const std::set<std::string_view> kept = {
        "auto",     "bool",     "case",     "char",  "const",    "default", "delete",  "do",     "double",
        "enum",     "extern",   "float",    "goto",  "inline",   "int",     "long",    "new",    "private",
        "public",   "register", "restrict", "short", "signed",   "sizeof",  "static",  "struct", "switch",
        "template", "this",     "typedef",  "union", "unsigned", "void",    "volatile"};
    return kept.count(name) ? name + "_" : name;
}

// An expression of sizes that are not negative, in C.
Result<std::string> in_c(const Expr& e) {
    if (auto number = e.as_int()) return fmt::format("INT64_C({})", *number);
    if (e.is(ExprKind::Var)) return name_in_c(e.node().name);
    std::vector<std::string> parts;
    for (const Expr& arg : e.args()) parts.push_back(TRY(in_c(arg)));
    if (e.is(ExprKind::Add)) return fmt::format("({})", fmt::join(parts, " + "));
    if (e.is(ExprKind::Mul)) return fmt::format("({})", fmt::join(parts, " * "));
    return Error(Code::E0604, "the grid {} cannot be expressed in C", to_string(e));
}

struct Signature {
    std::vector<std::string> parameters, names, buffers, symbols, wrong;

    void number(const std::string& name) {
        parameters.push_back("int64_t " + name);
        names.push_back(name);
        symbols.push_back(name);
        wrong.push_back(fmt::format("{} < 0 || ", name));
    }
};

Result<Signature> signature_of(const Program& program, const std::vector<Argument>& arguments) {
    Signature all;
    for (const char* axis : {"grid_x", "grid_y", "grid_z"}) all.number(axis);
    const ProgramData& data = program.data();
    for (size_t i = 0; i < arguments.size(); ++i) {
        const std::string name = name_in_c(data.parameters[i].name);
        const DType dtype = data.types[static_cast<size_t>(data.parameters[i].value)].dtype;
        const std::string type = dtype_bytes(dtype) == 1 && !is_int(dtype) ? "uint8_t" : c_type(dtype);
        if (arguments[i].as == Argument::As::Shared || arguments[i].as == Argument::As::Anywhere)
            return Error(Code::E0604, "{} shares the memory of another parameter", name)
                .hint("compile the kernel for arrays of their own");
        if (arguments[i].as == Argument::As::Size) {
            all.number(name);
            continue;
        }
        const bool array = arguments[i].as == Argument::As::Array;
        all.parameters.push_back(fmt::format("{}{} {}", type, array ? "*" : "", name));
        all.names.push_back(name);
        all.buffers.push_back(fmt::format("(void*){}{}", array ? "" : "&", name));
        if (array) all.number("elements_" + name);
    }
    return all;
}

}  // namespace

Result<AheadOfTime> compile_ahead(const Program& program, const std::vector<Argument>& arguments, int grid_rank,
                                  std::string_view target) {
    const Backend& backend = *TRY(find_backend(target));
    if (!backend.makes_objects())
        return Error(Code::E0604, "{} has no object files for C programs", target)
            .hint("emit its {} instead", backend.assembly());
    const Machine machine = TRY(backend.machine(target));
    TileKernel made = TRY(from_tile(program, arguments, grid_rank, machine));
    const Kernel& kernel = made.kernel;
    if (made.by_address) return Error(Code::E0604, "{} accesses memory by raw addresses", kernel.name);
    if (has_reports(kernel.body))
        return Error(Code::E0604, "{} prints or asserts, which needs Tessera when it runs", kernel.name);
    const std::vector<CompiledKernel> launches = TRY(list_launches({kernel}));
    if (launches[0].launches.size() != 1) return Error(Code::E0604, "{} needs more than one launch", kernel.name);
    const KernelLaunch& launch = launches[0].launches[0];
    const Signature signature = TRY(signature_of(program, arguments));
    std::string guard = kernel.name;
    std::transform(guard.begin(), guard.end(), guard.begin(), [](unsigned char c) { return std::toupper(c); });
    CodegenOptions codegen;
    codegen.target = target;
    AheadOfTime result;
    result.object = TRY(emit_object({kernel}, codegen));
    result.header = fmt::format(kHeader, kernel.name, target, guard, launch.symbol, TRY(in_c(launch.scratch_bytes)),
                                fmt::join(signature.parameters, ", "),
                                signature.buffers.empty() ? "0" : fmt::format("{}", fmt::join(signature.buffers, ", ")),
                                fmt::join(signature.symbols, ", "), TRY(in_c(launch.extent)),
                                fmt::join(signature.wrong, ""), fmt::join(signature.names, ", "));
    return result;
}

}  // namespace tessera::tile
