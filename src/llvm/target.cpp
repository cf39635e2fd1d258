#include "llvm/target.h"

#include <link.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/CodeGen.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>
#include <llvm/TargetParser/Host.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <mutex>
#include <span>

#include "base/check.h"
#include "base/usable_cores.h"
#include "llvm/compile_kernels.h"

#if defined(__linux__) && defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace tessera {
namespace codegen {
namespace {

void initialize_llvm() {
    static std::once_flag once;
    std::call_once(once, [] {
        LLVMInitializeX86TargetInfo();
        LLVMInitializeX86Target();
        LLVMInitializeX86TargetMC();
        LLVMInitializeX86AsmPrinter();
        LLVMInitializeAArch64TargetInfo();
        LLVMInitializeAArch64Target();
        LLVMInitializeAArch64TargetMC();
        LLVMInitializeAArch64AsmPrinter();
        LLVMInitializeWebAssemblyTargetInfo();
        LLVMInitializeWebAssemblyTarget();
        LLVMInitializeWebAssemblyTargetMC();
        LLVMInitializeWebAssemblyAsmPrinter();
    });
}

constexpr std::string_view kAvx2 =
    "+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+movbe";
constexpr std::string_view kAvx512 = ",+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512cd,+evex512";

std::vector<std::string> host_features() {
    std::vector<std::string> out;
#if defined(__linux__) && defined(__aarch64__)
    const unsigned long one = getauxval(AT_HWCAP), two = getauxval(AT_HWCAP2);
    auto add = [&](unsigned long word, unsigned long bit, const char* name) {
        if (word & bit) out.push_back(fmt::format("+{}", name));
    };
    add(one, HWCAP_FP, "fp-armv8");
    add(one, HWCAP_ASIMD, "neon");
    add(one, HWCAP_ATOMICS, "lse");
    add(one, HWCAP_CRC32, "crc");
    add(one, HWCAP_ASIMDRDM, "rdm");
    add(one, HWCAP_ASIMDHP, "fullfp16");
    add(one, HWCAP_ASIMDFHM, "fp16fml");
    add(one, HWCAP_ASIMDDP, "dotprod");
    add(one, HWCAP_FCMA, "complxnum");
    add(one, HWCAP_JSCVT, "jsconv");
    add(one, HWCAP_LRCPC, "rcpc");
#ifdef HWCAP2_I8MM
    add(two, HWCAP2_I8MM, "i8mm");
#endif
#ifdef HWCAP2_BF16
    add(two, HWCAP2_BF16, "bf16");
#endif
    (void)two;
#else
    for (const auto& entry : llvm::sys::getHostCPUFeatures())
        if (entry.second) out.push_back(fmt::format("+{}", entry.first().str()));
    std::sort(out.begin(), out.end());
#endif
    return out;
}

// The size in bytes that /sys gives for the data cache of a level, 0 where it does not.
int64_t cache_bytes(int level) {
    for (int i = 0; i < 8; ++i) {
        const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", i);
        std::ifstream level_file(folder + "level"), type_file(folder + "type"), size_file(folder + "size");
        int found = 0;
        std::string type, size;
        if (!(level_file >> found) || !(type_file >> type) || !(size_file >> size)) continue;
        if (found != level || type == "Instruction") continue;
        int64_t bytes = std::atoll(size.c_str());
        if (size.ends_with("K")) bytes <<= 10;
        if (size.ends_with("M")) bytes <<= 20;
        return bytes;
    }
    return 0;
}

void fill_caches(Machine& m) {
    int64_t one = cache_bytes(1), two = cache_bytes(2), three = cache_bytes(3);
#ifdef _SC_LEVEL1_DCACHE_SIZE
    if (one <= 0) one = sysconf(_SC_LEVEL1_DCACHE_SIZE);
    if (two <= 0) two = sysconf(_SC_LEVEL2_CACHE_SIZE);
    if (three <= 0) three = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    if (one > 0) m.l1_bytes = one;
    if (two > 0) m.l2_bytes = two;
    if (three > 0) m.l3_bytes = three;
    m.cores = usable_cores();
}

// Registers and costs, from the instructions there are.
void describe_registers(const Target& target, Machine& m) {
    if (target.aarch64()) {
        m.vector_bytes = 16, m.vector_registers = 32, m.fma_pipes = 2, m.fma_latency = 4;
        m.lane_multiply = true;
        if (target.tune.starts_with("neoverse-v") || target.tune.starts_with("apple-")) m.fma_pipes = 4;
    } else if (target.x86() && target.has("avx512f")) {
        m.vector_bytes = 64, m.vector_registers = 32, m.fma_pipes = 2, m.fma_latency = 4;
        m.load_broadcast = m.masked = true;
    } else if (target.x86() && target.has("avx")) {
        m.vector_bytes = 32, m.vector_registers = 16, m.fma_pipes = 2, m.fma_latency = 4;
    } else if (target.x86()) {
        m.vector_bytes = 16, m.vector_registers = 16, m.fma_pipes = 2, m.fma_latency = 8;
    } else {
        m.vector_bytes = 16, m.vector_registers = 16, m.fma_pipes = 1, m.fma_latency = 8;
    }
}

Target host() {
    Target t;
    t.triple = llvm::sys::getDefaultTargetTriple();
    t.cpu = t.triple.starts_with("x86_64") ? "x86-64" : "generic";
    t.tune = llvm::sys::getHostCPUName().str();
    t.features = fmt::format("{}", fmt::join(host_features(), ","));
    t.machine.target = "host";
    describe_registers(t, t.machine);
    fill_caches(t.machine);
    return t;
}

struct Named {
    std::string_view name, triple, cpu, tune;
    std::string features;
    int64_t l1, l2, l3;
};

const std::vector<Named>& named_targets() {
    static const std::vector<Named> all{
        {"aarch64-neon", "aarch64-unknown-linux-gnu", "generic", "neoverse-n1", "+neon", 64 << 10, 1 << 20, 32 << 20},
        {"wasm32", "wasm32-unknown-unknown", "generic", "generic", "+simd128,+bulk-memory", 32 << 10, 256 << 10, 0},
        {"x86_64-avx2", "x86_64-unknown-linux-gnu", "x86-64", "haswell", std::string(kAvx2), 32 << 10, 256 << 10,
         8 << 20},
        {"x86_64-avx512", "x86_64-unknown-linux-gnu", "x86-64", "sapphirerapids",
         std::string(kAvx2) + std::string(kAvx512), 48 << 10, 2 << 20, 32 << 20},
        {"x86_64-sse4", "x86_64-unknown-linux-gnu", "x86-64", "nehalem", "+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16",
         32 << 10, 256 << 10, 8 << 20},
    };
    return all;
}

}  // namespace

bool Target::has(std::string_view feature) const {
    size_t at = 0;
    while (at < features.size()) {
        size_t end = std::min(features.find(',', at), features.size());
        if (end - at == feature.size() + 1 && features[at] == '+' &&
            std::string_view(features).substr(at + 1, feature.size()) == feature)
            return true;
        at = end + 1;
    }
    return false;
}

Result<Target> find_target(std::string_view name) {
    initialize_llvm();
    if (name == "host") {
        static const Target kHost = host();
        return kHost;
    }
    for (const Named& named : named_targets()) {
        if (named.name != name) continue;
        Target t{std::string(named.triple), std::string(named.cpu), std::string(named.tune), named.features, {}};
        describe_registers(t, t.machine);
        t.machine.target = named.name;
        t.machine.l1_bytes = named.l1, t.machine.l2_bytes = named.l2, t.machine.l3_bytes = named.l3;
        return t;
    }
    return Error(Code::E0603, "there is no target {}", name).hint("there are: {}", fmt::join(list_targets(), ", "));
}

std::unique_ptr<llvm::TargetMachine> make_target_machine(const Target& target, int level) {
    std::string message;
    const llvm::Target* found = llvm::TargetRegistry::lookupTarget(target.triple, message);
    CHECK(found, "{}", message);
    llvm::TargetOptions options;
    options.NoTrappingFPMath = true;
    const auto code_level = level <= 0   ? llvm::CodeGenOptLevel::None
                            : level == 1 ? llvm::CodeGenOptLevel::Less
                            : level == 2 ? llvm::CodeGenOptLevel::Default
                                         : llvm::CodeGenOptLevel::Aggressive;
    std::unique_ptr<llvm::TargetMachine> machine(found->createTargetMachine(
        target.triple, target.cpu, target.features, options, llvm::Reloc::PIC_, std::nullopt, code_level));
    machine->setGlobalISel(false);  // the same instruction selection at every level
    return machine;
}

}  // namespace codegen

void let_go_of_compiler() {
    codegen::initialize_llvm();
    std::string ignored;
    const void* theirs = llvm::TargetRegistry::lookupTarget(llvm::sys::getDefaultTargetTriple(), ignored);
    const void* ours = &codegen::kAvx2;
    std::array<uintptr_t, 2> inside = {reinterpret_cast<uintptr_t>(theirs), reinterpret_cast<uintptr_t>(ours)};
    auto each_library = [](dl_phdr_info* info, size_t, void* data) {
        const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
        const std::span segments(info->dlpi_phdr, info->dlpi_phnum);
        bool is_one = false;
        for (uintptr_t address : *static_cast<const std::array<uintptr_t, 2>*>(data))
            for (const auto& p : segments)
                is_one |= p.p_type == PT_LOAD && address - (info->dlpi_addr + p.p_vaddr) < p.p_memsz;
        if (!is_one) return 0;
        for (const auto& p : segments) {
            if (p.p_type != PT_LOAD || p.p_flags & PF_W) continue;  // what the linker wrote into must stay
            const uintptr_t begin = (info->dlpi_addr + p.p_vaddr + page - 1) / page * page;
            const uintptr_t end = (info->dlpi_addr + p.p_vaddr + p.p_filesz) / page * page;
            if (begin < end) (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
        }
        return 0;
    };
    dl_iterate_phdr(each_library, &inside);
}

Result<Machine> describe_target(std::string_view name) { return TRY(codegen::find_target(name)).machine; }

std::vector<std::string> list_targets() {
    std::vector<std::string> out{"host"};
    for (const codegen::Named& named : codegen::named_targets()) out.emplace_back(named.name);
    return out;
}

}  // namespace tessera
