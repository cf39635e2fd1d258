#include "kernel/ir/renamed_copy.h"
#include "kernel/passes/clean_up.h"

namespace tessera {
void drop_unused_buffers(Kernel& kernel) {
    std::vector<bool> used(kernel.buffers.size());
    for (size_t i = 0; i < kernel.params; ++i) used[i] = true;
    visit(kernel.body, [&](const Stmt& s) {
        if (const Alloc* a = s->as<Alloc>()) used[static_cast<size_t>(a->buffer)] = true;
    });
    std::vector<int> slots(kernel.buffers.size(), -1);
    std::vector<Buffer> kept;
    for (size_t i = 0; i < used.size(); ++i) {
        if (!used[i]) continue;
        slots[i] = static_cast<int>(kept.size());
        kept.push_back(kernel.buffers[i]);
    }
    if (kept.size() == kernel.buffers.size()) return;
    kernel.buffers = std::move(kept);
    kernel.body = with_slots(kernel.body, [&](int slot) { return slots[static_cast<size_t>(slot)]; });
}

}  // namespace tessera
