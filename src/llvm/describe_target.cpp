#include <link.h>
#include <llvm/MC/TargetRegistry.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <span>

#include "llvm/compile_kernels.h"
#include "llvm/targets/target.h"

namespace tessera {

Result<Machine> describe_target(std::string_view name) { return TRY(codegen::find_target(name)).machine; }

std::vector<std::string> list_targets() {
    std::vector<std::string> out = codegen::target_names();
    out.insert(out.begin(), "host");
    return out;
}

void let_go_of_compiler() {
    static const char ours = 0;
    std::string ignored;
    const auto host = codegen::find_target("host");
    const void* theirs = llvm::TargetRegistry::lookupTarget(host->triple, ignored);
    std::array<uintptr_t, 2> inside = {reinterpret_cast<uintptr_t>(theirs), reinterpret_cast<uintptr_t>(&ours)};
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

}  // namespace tessera
