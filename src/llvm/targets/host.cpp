// This machine as a target: its features from the operating system, its caches from /sys.
#include <llvm/ADT/StringMap.h>
#include <llvm/TargetParser/Host.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/usable_cores.h"
#include "llvm/targets/host.h"
#include "llvm/targets/target_code.h"

#if defined(__linux__) && defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#endif

namespace tessera::codegen {
namespace {

#if !(defined(__linux__) && defined(__aarch64__))
// Linux gives a process AMX's registers when it asks for them.
bool may_use_tiles() {
#if defined(__linux__) && defined(__x86_64__)
    constexpr int kRequestState = 0x1023, kTileData = 18;  // of arch_prctl
    return syscall(SYS_arch_prctl, kRequestState, kTileData) == 0;
#else
    return false;
#endif
}
#endif

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
        if (entry.second && (!entry.first().starts_with("amx-") || may_use_tiles()))
            out.push_back(fmt::format("+{}", entry.first().str()));
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

}  // namespace

Target describe_host() {
    Target t;
    t.triple = llvm::sys::getDefaultTargetTriple();
    t.code = &code_for(t.triple);
    t.cpu = t.code->baseline();
    t.tune = llvm::sys::getHostCPUName().str();
    t.features = fmt::format("{}", fmt::join(host_features(), ","));
    t.machine.target = "host";
    fill_caches(t.machine);
    return t;
}

}  // namespace tessera::codegen
