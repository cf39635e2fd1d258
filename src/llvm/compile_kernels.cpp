#include "llvm/compile_kernels.h"

#include <algorithm>
#include <cstring>

#include "base/cancel_scope.h"
#include "base/in_parallel.h"
#include "llvm/compile_module.h"
#include "llvm/link_objects.h"
#include "llvm/targets/target_code.h"

namespace tessera {
namespace {

using namespace codegen;

// Kernels are spread over modules by how much there is to compile, whatever the number of threads, so that the same
// kernels make the same objects.
constexpr size_t kStatementsPerModule = 40;

std::vector<std::span<const PlannedKernel>> into_modules(const std::vector<PlannedKernel>& kernels) {
    std::vector<std::span<const PlannedKernel>> out;
    size_t first = 0, statements = 0;
    for (size_t i = 0; i < kernels.size(); ++i) {
        visit(kernels[i].kernel->body, [&](const Stmt&) { ++statements; });
        if (statements < kStatementsPerModule && i + 1 < kernels.size()) continue;
        out.emplace_back(kernels.data() + first, i + 1 - first);
        first = i + 1;
        statements = 0;
    }
    return out;
}

Result<std::vector<std::string>> compile_all(const std::vector<PlannedKernel>& kernels, const Target& target,
                                             const CodegenOptions& options) {
    const auto modules = into_modules(kernels);
    std::vector<std::optional<Result<std::string>>> objects(modules.size());
    // The largest first: none is left when the others are done.
    std::vector<size_t> order(modules.size()), sizes(modules.size());
    for (size_t i = 0; i < modules.size(); ++i) {
        order[i] = i;
        for (const PlannedKernel& k : modules[i]) visit(k.kernel->body, [&](const Stmt&) { ++sizes[i]; });
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
    const std::atomic<bool>* cancelled = CancelScope::current();
    in_parallel(order.size(), options.threads, [&](size_t i) {
        const CancelScope scope(cancelled);
        objects[order[i]] = compile_module(modules[order[i]], target, options,
                                           target.code->makes_objects() ? Form::Object : Form::Assembly);
    });
    std::vector<std::string> out;
    for (auto& object : objects) out.push_back(TRY(std::move(*object)));
    return out;
}

// Several object files in one string: a mark, their number, and each with its length before it.
constexpr std::string_view kMark = "tessera-objects-1\n";

void put_number(std::string& out, uint64_t n) {
    for (int i = 0; i < 8; ++i) out += static_cast<char>(n >> (8 * i));
}

std::string pack(const std::vector<std::string>& objects) {
    std::string out(kMark);
    put_number(out, objects.size());
    for (const std::string& o : objects) {
        put_number(out, o.size());
        out += o;
    }
    return out;
}

Result<std::vector<std::string_view>> unpack(std::string_view bytes) {
    const Error malformed(Code::E0605, "not an object that this version wrote");
    auto number = [&]() -> std::optional<uint64_t> {
        if (bytes.size() < 8) return {};
        uint64_t n = 0;
        for (int i = 0; i < 8; ++i) n |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
        bytes.remove_prefix(8);
        return n;
    };
    if (!bytes.starts_with(kMark)) return malformed;
    bytes.remove_prefix(kMark.size());
    const auto count = number();
    if (!count || *count > bytes.size()) return malformed;
    std::vector<std::string_view> out;
    for (uint64_t i = 0; i < *count; ++i) {
        const auto size = number();
        if (!size || *size > bytes.size()) return malformed;
        out.push_back(bytes.substr(0, *size));
        bytes.remove_prefix(*size);
    }
    if (!bytes.empty()) return malformed;
    return out;
}

std::vector<CompiledKernel> describe(const std::vector<PlannedKernel>& kernels) {
    std::vector<CompiledKernel> out;
    for (const PlannedKernel& planned : kernels) {
        CompiledKernel& kernel = out.emplace_back();
        for (size_t i = 0; i < planned.launches.size(); ++i) {
            const LaunchPlan& plan = planned.launches[i];
            kernel.launches.push_back({planned.symbols[i], nullptr, nullptr,
                                       plan.parallel ? plan.parallel->extent : Expr(1), plan.scratch_bytes,
                                       plan.parallel != nullptr, plan.shape});
        }
    }
    return out;
}

class LoadedModule : public CompiledModule {
  public:
    static Result<std::shared_ptr<CompiledModule>> load(std::vector<CompiledKernel> kernels, std::string object) {
        auto made = std::make_shared<LoadedModule>();
        made->object_ = std::move(object);
        made->kernels_ = std::move(kernels);
        std::vector<std::string> symbols;
        for (const CompiledKernel& k : made->kernels_)
            for (const KernelLaunch& l : k.launches) symbols.push_back(l.symbol);
        made->code_ = TRY(link_objects(TRY(unpack(made->object_)), symbols));
        size_t next = 0;
        for (CompiledKernel& k : made->kernels_)
            for (KernelLaunch& l : k.launches)
                l.function = reinterpret_cast<LaunchFunction>(made->code_->addresses[next++]);
        return std::shared_ptr<CompiledModule>(std::move(made));
    }
    const std::string& object() const override { return object_; }

  private:
    std::string object_;
    std::unique_ptr<LinkedCode> code_;
};

// For a device that loads it.
class AssemblyModule : public CompiledModule {
  public:
    static Result<std::shared_ptr<CompiledModule>> make(std::vector<CompiledKernel> kernels, std::string object) {
        auto made = std::make_shared<AssemblyModule>();
        made->object_ = std::move(object);
        made->kernels_ = std::move(kernels);
        made->parts_ = TRY(unpack(made->object_));
        return std::shared_ptr<CompiledModule>(std::move(made));
    }
    const std::string& object() const override { return object_; }
    std::vector<std::string_view> assembly() const override { return parts_; }

  private:
    std::string object_;
    std::vector<std::string_view> parts_;
};

Result<std::string> emit_whole(const std::vector<Kernel>& kernels, const CodegenOptions& options, Form form) {
    const Target target = TRY(find_target(options.target));
    return compile_module(TRY(plan_kernels(kernels, target.machine)), target, options, form);
}

}  // namespace

Result<std::vector<CompiledKernel>> list_launches(const std::vector<Kernel>& kernels, const Machine& machine) {
    return describe(TRY(plan_kernels(kernels, machine)));
}

Result<std::shared_ptr<CompiledModule>> compile_kernels(const std::vector<Kernel>& kernels,
                                                        const CodegenOptions& options) {
    const Target target = TRY(find_target(options.target));
    const std::vector<PlannedKernel> planned = TRY(plan_kernels(kernels, target.machine));
    std::string object = pack(TRY(compile_all(planned, target, options)));
    if (!target.code->makes_objects()) return AssemblyModule::make(describe(planned), std::move(object));
    return LoadedModule::load(describe(planned), std::move(object));
}

Result<std::shared_ptr<CompiledModule>> load_object(const std::vector<Kernel>& kernels, std::string object,
                                                    const CodegenOptions& options) {
    const Target target = TRY(find_target(options.target));
    std::vector<CompiledKernel> launches = TRY(list_launches(kernels, target.machine));
    if (!target.code->makes_objects()) return AssemblyModule::make(std::move(launches), std::move(object));
    return LoadedModule::load(std::move(launches), std::move(object));
}

Result<std::string> emit_object(const std::vector<Kernel>& kernels, const CodegenOptions& options) {
    if (!TRY(find_target(options.target)).code->makes_objects())
        return Error(Code::E0604, "there are no object files for {}", options.target)
            .hint("its assembly is what a device loads");
    return emit_whole(kernels, options, Form::Object);
}
Result<std::string> emit_llvm(const std::vector<Kernel>& kernels, const CodegenOptions& options) {
    return emit_whole(kernels, options, Form::Text);
}
Result<std::string> emit_assembly(const std::vector<Kernel>& kernels, const CodegenOptions& options) {
    return emit_whole(kernels, options, Form::Assembly);
}

}  // namespace tessera
