#include "llvm/targets/target.h"

#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/CodeGen.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>

#include <algorithm>
#include <charconv>
#include <mutex>
#include <optional>

#include "base/check.h"
#include "llvm/targets/host.h"
#include "llvm/targets/target_code.h"

namespace tessera::codegen {
namespace {

// LLVM would end the process where it meets what it cannot do.
void on_llvm_fault(void*, const char* reason, bool) { check_failed("LLVM", 0, "code generation", reason); }

void initialize_llvm() {
    static std::once_flag once;
    std::call_once(once, [] {
        llvm::install_fatal_error_handler(on_llvm_fault);
        for (const TargetCode* family : target_families()) family->initialize();
    });
}

// The machine's features are those of the list that are on; registers and costs follow from them.
Target with_machine(Target t) {
    for (size_t at = 0; at < t.features.size();) {
        const size_t end = std::min(t.features.find(',', at), t.features.size());
        if (t.features[at] == '+') t.machine.features.push_back(t.features.substr(at + 1, end - at - 1));
        at = end + 1;
    }
    t.code->describe(t.machine, t.tune);
    return t;
}

// "sm_90a:114" is sm_90a with 114 SMs.
std::pair<std::string_view, std::optional<int>> split_target(std::string_view name) {
    const size_t at = name.find(':');
    if (at == std::string_view::npos) return {name, {}};
    const std::string_view digits = name.substr(at + 1);
    int count = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), count);
    if (read.ec != std::errc() || read.ptr != digits.data() + digits.size() || count < 1) return {name, {}};
    return {name.substr(0, at), count};
}

// What computes is in proportion to its SMs; memory is not.
void take_multiprocessors(Machine& m, std::string_view name, int count) {
    const double ratio = double(count) / double(m.cores);
    m.target = name;
    m.cores = count;
    m.flops *= ratio;
}

}  // namespace

Result<Target> find_target(std::string_view name) {
    initialize_llvm();
    if (name == "host") {
        static const Target kHost = with_machine(describe_host());
        return kHost;
    }
    const auto [base, multiprocessors] = split_target(name);
    for (const TargetCode* family : target_families())
        for (const NamedTarget& named : family->named()) {
            if (named.name != base || (multiprocessors && !family->has_blocks())) continue;
            Target t{std::string(named.triple),
                     std::string(family->has_blocks() ? named.tune : family->baseline()),
                     std::string(named.tune),
                     named.features,
                     {},
                     family};
            t.machine.target = named.name;
            t.machine.l1_bytes = named.l1, t.machine.l2_bytes = named.l2, t.machine.l3_bytes = named.l3;
            t = with_machine(std::move(t));
            if (multiprocessors) take_multiprocessors(t.machine, name, *multiprocessors);
            return t;
        }
    return Error(Code::E0603, "there is no target {}", name)
        .hint("there are: host, {}", fmt::join(target_names(), ", "));
}

std::vector<std::string> target_names() {
    std::vector<std::string> out;
    for (const TargetCode* family : target_families())
        for (const NamedTarget& named : family->named()) out.emplace_back(named.name);
    std::sort(out.begin(), out.end());
    return out;
}

std::unique_ptr<llvm::TargetMachine> make_target_machine(const Target& target, int level) {
    std::string message;
    const llvm::Target* found = llvm::TargetRegistry::lookupTarget(target.triple, message);
    CHECK(found, "{}", message);
    llvm::TargetOptions options;
    options.NoTrappingFPMath = true;
    // Fast instruction selection and register allocation take half the time of those of the level above.
    const auto code_level = level <= 1   ? llvm::CodeGenOptLevel::None
                            : level == 2 ? llvm::CodeGenOptLevel::Default
                                         : llvm::CodeGenOptLevel::Aggressive;
    std::unique_ptr<llvm::TargetMachine> machine(found->createTargetMachine(
        target.triple, target.cpu, target.features, options, llvm::Reloc::PIC_, std::nullopt, code_level));
    machine->setGlobalISel(false);  // the same instruction selection at every level
    return machine;
}

}  // namespace tessera::codegen
