#include "accelerator/token_order.h"

#include <algorithm>
#include <map>

#include "kernel/accelerator/accesses.h"

namespace tessera::accelerator_test {

using namespace accelerator;

namespace {

using Access = std::pair<size_t, bool>;  // instruction, whether it writes
// By scratchpad and row, or 4 and byte of memory.
using Places = std::map<std::pair<int, int64_t>, std::vector<Access>>;

Places all_accesses(const Machine& m, const std::vector<Instruction>& program, const std::vector<uint8_t>& memory) {
    Places places;
    std::vector<Uop> uops(size_t(m.uops));
    for (size_t n = 0; n < program.size(); ++n) {
        const auto touch = [&](int room, int64_t at, bool writes) {
            auto& list = places[{room, at}];
            if (list.empty() || list.back() != Access(n, writes)) list.push_back({n, writes});
        };
        const auto bytes = [&](int64_t at, int count, bool writes) {
            for (int b = 0; b < count; ++b) touch(4, at + b, writes);
        };
        if (const Load* l = std::get_if<Load>(&program[n].op))
            for_each_row(*l, [&](uint32_t row, int64_t at) {
                touch(int(l->to), row, true);
                if (l->to == Scratchpad::Uop) uops[row] = at < 0 ? Uop{} : decode_uop(&memory[size_t(at)]);
                if (at >= 0) bytes(at, m.row_bytes(l->to, l->element), false);
            });
        if (const Store* s = std::get_if<Store>(&program[n].op))
            for_each_row(*s, [&](uint32_t row, int64_t at) {
                touch(int(Scratchpad::Acc), row, false);
                bytes(at, m.row_bytes(Scratchpad::Acc, s->element), true);
            });
        if (const Gemm* g = std::get_if<Gemm>(&program[n].op)) {
            for (int u = 0; u < g->loop.uops; ++u) touch(int(Scratchpad::Uop), g->loop.uop + u, false);
            for_each_row(*g, uops.data(), [&](const GemmRows& r) {
                touch(int(Scratchpad::Inp), r.inp, false);
                touch(int(Scratchpad::Wgt), r.wgt, false);
                if (r.starts && g->from_bias) touch(int(Scratchpad::Acc), g->bias, false);
                touch(int(Scratchpad::Acc), r.acc, true);
            });
        }
        if (const Alu* a = std::get_if<Alu>(&program[n].op)) {
            for (int u = 0; u < a->loop.uops; ++u) touch(int(Scratchpad::Uop), a->loop.uop + u, false);
            for_each_row(*a, uops.data(), [&](const AluRows& r) {
                touch(int(Scratchpad::Acc), r.a, false);
                if (a->b == SecondOperand::Row) touch(int(Scratchpad::Acc), r.b, false);
                touch(int(Scratchpad::Acc), r.dst, true);
            });
        }
    }
    return places;
}

}  // namespace

Conflicts all_conflicts(const Machine& machine, const std::vector<Instruction>& program,
                        const std::vector<uint8_t>& memory) {
    std::set<std::vector<Access>> lists;  // most places share theirs with others
    for (auto& [place, list] : all_accesses(machine, program, memory)) lists.insert(list);
    Conflicts conflicts;
    for (const std::vector<Access>& list : lists)
        for (size_t a = 0; a < list.size(); ++a)
            for (size_t b = a + 1; b < list.size(); ++b) {
                const auto [i, i_writes] = list[a];
                const auto [j, j_writes] = list[b];
                if (program[i].unit() != program[j].unit() && (i_writes || j_writes)) conflicts.emplace(i, j);
            }
    return conflicts;
}

std::vector<std::vector<bool>> order_without(const std::vector<Instruction>& program,
                                             const std::vector<TokenPair>& tokens, size_t removed) {
    const size_t n = program.size();
    std::vector<std::vector<size_t>> after(n);
    std::array<size_t, 3> last{n, n, n};
    for (size_t i = 0; i < n; ++i) {
        size_t& l = last[size_t(program[i].unit())];
        if (l < n) after[l].push_back(i);
        l = i;
    }
    for (size_t t = 0; t < tokens.size(); ++t)
        if (t != removed) after[tokens[t].push].push_back(tokens[t].pop);
    std::vector<std::vector<bool>> reached(n, std::vector<bool>(n));
    for (size_t from = 0; from < n; ++from) {
        std::vector<size_t> todo{from};
        while (!todo.empty()) {
            const size_t i = todo.back();
            todo.pop_back();
            for (size_t next : after[i])
                if (!reached[from][next]) {
                    reached[from][next] = true;
                    todo.push_back(next);
                }
        }
    }
    return reached;
}

bool everything_ordered(const Conflicts& conflicts, const std::vector<std::vector<bool>>& before) {
    return std::all_of(conflicts.begin(), conflicts.end(),
                       [&](const auto& c) { return before[c.first][c.second] || before[c.second][c.first]; });
}

}  // namespace tessera::accelerator_test
