// Sets and maps of nodes by address, for walks over expressions: most are small, and live on the stack.
#pragma once

#include <array>
#include <vector>

#include "expr/expr.h"

namespace tessera {

// Addresses with a number each, 0 where none is given. Open addressing, at most half full.
class NodeTable {
   public:
    // The node's number, to be read or set, and whether it was there already.
    std::pair<uint32_t*, bool> at(const ExprNode* node) {
        if (2 * (count_ + 1) > mask_ + 1) grow();
        Slot* slot = find_slot(node);
        if (slot->node) return {&slot->number, true};
        slot->node = node;
        slot->number = 0;
        ++count_;
        return {&slot->number, false};
    }
    const uint32_t* find(const ExprNode* node) const {
        const Slot* slot = const_cast<NodeTable*>(this)->find_slot(node);
        return slot->node ? &slot->number : nullptr;
    }

   private:
    struct Slot {
        const ExprNode* node = nullptr;
        uint32_t number = 0;
    };

    Slot* slots() { return large_.empty() ? small_.data() : large_.data(); }
    Slot* find_slot(const ExprNode* node) {
        Slot* all = slots();
        size_t i = (reinterpret_cast<uintptr_t>(node) * 0x9e3779b97f4a7c15ull >> 32) & mask_;
        while (all[i].node && all[i].node != node) i = (i + 1) & mask_;
        return &all[i];
    }
    void grow() {
        const size_t size = mask_ + 1;
        std::vector<Slot> old = large_.empty() ? std::vector<Slot>(small_.begin(), small_.end()) : std::move(large_);
        large_.assign(4 * size, {});
        mask_ = 4 * size - 1;
        for (const Slot& s : old)
            if (s.node) *find_slot(s.node) = s;
    }

    std::array<Slot, 32> small_;
    std::vector<Slot> large_;
    size_t mask_ = 31, count_ = 0;
};

// What expressions became, by the node they were. The first entry of a node stays.
class RebuiltExprs {
   public:
    const Expr* find(const ExprNode* node) const {
        const uint32_t* number = table_.find(node);
        return number ? &exprs_[*number] : nullptr;
    }
    void emplace(const ExprNode* node, Expr e) {
        auto [number, there] = table_.at(node);
        if (there) return;
        *number = static_cast<uint32_t>(exprs_.size());
        exprs_.push_back(std::move(e));
    }

   private:
    NodeTable table_;
    std::vector<Expr> exprs_;
};

}  // namespace tessera
