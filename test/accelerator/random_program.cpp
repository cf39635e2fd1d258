#include "accelerator/random_program.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "base/check.h"
#include "base/random.h"
#include "kernel/accelerator/accesses.h"

namespace tessera::accelerator {

namespace {

constexpr uint32_t kInputs = 0, kInputBytes = 1 << 16, kOutputs = kInputBytes, kOutputBytes = 1 << 15;
constexpr uint32_t kMemoryBytes = 1 << 17;
constexpr uint32_t kUops = kOutputs + kOutputBytes;  // the micro-ops in memory; the program follows them

struct RowRange {  // of a scratchpad: the rows that the program uses
    uint32_t first = 0, count = 0;
};

struct Generator {
    Generator(const Machine& machine, uint64_t seed) : m(machine), random(seed, "program") {}

    const Machine& m;
    RandomStream random;
    uint64_t drawn = 0;
    RandomProgram made;
    std::array<RowRange, 4> windows;  // by Scratchpad
    std::vector<Uop> uops;            // the scratchpad's content, by entry; the first of the window is all 0

    // What is known to have ended when an instruction starts, and ends with it: instructions of each unit, from 1.
    using Clock = std::array<int64_t, 3>;
    struct Placed {
        size_t index;
        Clock at_end;
    };
    std::array<std::vector<Placed>, 3> placed;
    struct Last {
        int64_t write = 0, write_unit = -1;
        Clock reads{};
    };
    std::unordered_map<uint64_t, Last> last;  // by scratchpad and row, or by byte of memory
    std::vector<Clock> needs;                 // of each instruction: the last ones that it conflicts with
    struct Token {
        size_t push, pop;
    };
    std::vector<Token> tokens;

    uint64_t below(uint64_t n) { return random.bits(drawn++) % n; }
    int64_t between(int64_t low, int64_t high) { return low + int64_t(below(uint64_t(high - low + 1))); }
    bool chance(int percent) { return below(100) < uint64_t(percent); }
    RowRange& window(Scratchpad s) { return windows[size_t(s)]; }

    // ---- Conflicts
    template <typename Read, typename Write>
    void accesses(const Instruction& i, Read&& read, Write&& write) {
        const auto key = [](Scratchpad s, uint64_t row) { return uint64_t(s) << 32 | row; };
        const auto memory = [](int64_t address, int bytes, auto&& f) {
            for (int64_t b = address; b < address + bytes; ++b) f(uint64_t(4) << 32 | uint64_t(b));
        };
        const auto loop = [&](const Loop& l) {
            for (uint32_t u = l.uop; u < uint32_t(l.uop) + l.uops; ++u) read(key(Scratchpad::Uop, u));
        };
        if (const Load* l = std::get_if<Load>(&i.op))
            for_each_row(*l, [&](uint32_t row, int64_t address) {
                write(key(l->to, row));
                if (address >= 0) memory(address, m.row_bytes(l->to, l->element), read);
            });
        if (const Store* s = std::get_if<Store>(&i.op))
            for_each_row(*s, [&](uint32_t row, int64_t address) {
                read(key(Scratchpad::Acc, row));
                memory(address, m.row_bytes(Scratchpad::Acc, s->element), write);
            });
        if (const Gemm* g = std::get_if<Gemm>(&i.op)) {
            loop(g->loop);
            if (g->from_bias) read(key(Scratchpad::Acc, g->bias));
            for_each_row(*g, uops.data(), [&](const GemmRows& r) {
                read(key(Scratchpad::Inp, r.inp));
                read(key(Scratchpad::Wgt, r.wgt));
                write(key(Scratchpad::Acc, r.acc));
            });
        }
        if (const Alu* a = std::get_if<Alu>(&i.op)) {
            loop(a->loop);
            for_each_row(*a, uops.data(), [&](const AluRows& r) {
                read(key(Scratchpad::Acc, r.a));
                if (a->b == SecondOperand::Row) read(key(Scratchpad::Acc, r.b));
                write(key(Scratchpad::Acc, r.dst));
            });
        }
    }

    // The last instructions of the other units that this one conflicts with.
    Clock conflicts(const Instruction& i) {
        const int unit = int(i.unit());
        Clock needed{};
        const auto after = [&](int other, int64_t count) {
            if (other >= 0 && other != unit) needed[size_t(other)] = std::max(needed[size_t(other)], count);
        };
        accesses(
            i, [&](uint64_t k) { after(int(last[k].write_unit), last[k].write); },
            [&](uint64_t k) {
                after(int(last[k].write_unit), last[k].write);
                for (int u = 0; u < 3; ++u) after(u, last[k].reads[size_t(u)]);
            });
        return needed;
    }

    // ---- Tokens
    // Appends an instruction, with tokens for what it needs of other units.
    void append(Instruction i) {
        const size_t unit = size_t(i.unit()), compute = size_t(Unit::Compute);
        const Clock conflicting = conflicts(i);
        Clock needed = conflicting;
        if (unit != compute) {  // load and store meet at the compute unit
            const size_t far = 2 - unit;
            if (needed[far] > clock_of(unit)[far]) {
                relay(far, needed[far]);
                needed[compute] = std::max(needed[compute], int64_t(placed[compute].size()));
            }
        }
        put(i, needed, conflicting);
    }

    Clock clock_of(size_t unit) const { return placed[unit].empty() ? Clock{} : placed[unit].back().at_end; }

    void put(Instruction& i, const Clock& needed, const Clock& conflicting) {
        const size_t unit = size_t(i.unit());
        Clock clock = clock_of(unit);
        for (size_t other = 0; other < 3; ++other)
            if ((other == unit + 1 || unit == other + 1) && needed[other] > clock[other])
                join(clock, take_token(i, unit, other, needed[other]));
        ++clock[unit];
        accesses(
            i, [&](uint64_t k) { last[k].reads[unit] = clock[unit]; },
            [&](uint64_t k) {
                last[k].write = clock[unit];
                last[k].write_unit = int64_t(unit);
            });
        placed[unit].push_back({made.program.size(), clock});
        needs.push_back(conflicting);
        made.program.push_back(i);
    }

    static void join(Clock& a, const Clock& b) {
        for (size_t u = 0; u < 3; ++u) a[u] = std::max(a[u], b[u]);
    }

    // A token from the other unit's instruction `needed`, or a later one.
    Clock take_token(Instruction& i, size_t unit, size_t other, int64_t needed) {
        auto& theirs = placed[other];
        const int64_t from = chance(70) ? int64_t(theirs.size()) : between(needed, int64_t(theirs.size()));
        const Placed& p = theirs[size_t(from - 1)];
        Tokens& t = made.program[p.index].tokens;
        (other < unit ? t.push_next : t.push_previous) = true;
        (other < unit ? i.tokens.pop_previous : i.tokens.pop_next) = true;
        tokens.push_back({p.index, made.program.size()});
        return p.at_end;
    }

    // An instruction of the compute unit that comes after `needed` of a unit beside it.
    void relay(size_t from, int64_t needed) {
        const uint16_t row = uint16_t(window(Scratchpad::Acc).first), uop = uint16_t(window(Scratchpad::Uop).first);
        Instruction i;
        if (m.alu) {
            Alu alu;
            alu.loop.uop = uop;
            alu.dst.base = alu.a.base = row;
            i.op = alu;
        } else {
            Gemm gemm;
            gemm.loop.uop = uop;
            gemm.acc.base = row;
            gemm.inp.base = uint16_t(window(Scratchpad::Inp).first);
            gemm.wgt.base = uint16_t(window(Scratchpad::Wgt).first);
            i.op = gemm;
        }
        const Clock conflicting = conflicts(i);
        Clock after = conflicting;
        after[from] = std::max(after[from], needed);
        put(i, after, conflicting);
    }

    // A later token can make an earlier one redundant: removes tokens until each of those that are left orders a
    // conflict that nothing else orders.
    void remove_redundant_tokens() {
        for (size_t t = 0; t < tokens.size();)
            if (orders_conflicts_without(t)) {
                mark(tokens[t], false);
                tokens.erase(tokens.begin() + std::ptrdiff_t(t));
            } else {
                ++t;
            }
    }

    void mark(const Token& t, bool on) {
        Instruction &push = made.program[t.push], &pop = made.program[t.pop];
        const bool down = push.unit() < pop.unit();
        (down ? push.tokens.push_next : push.tokens.push_previous) = on;
        (down ? pop.tokens.pop_previous : pop.tokens.pop_next) = on;
    }

    bool orders_conflicts_without(size_t removed) const {
        std::vector<Clock> at_end(made.program.size());
        std::vector<std::array<size_t, 2>> pushes(made.program.size(), {~size_t(0), ~size_t(0)});
        for (size_t t = 0; t < tokens.size(); ++t)
            if (t != removed) {
                auto& [first, second] = pushes[tokens[t].pop];
                (first == ~size_t(0) ? first : second) = tokens[t].push;
            }
        std::array<Clock, 3> clocks{};
        for (size_t n = 0; n < made.program.size(); ++n) {
            const size_t unit = size_t(made.program[n].unit());
            Clock& clock = clocks[unit];
            for (size_t push : pushes[n])
                if (push != ~size_t(0)) join(clock, at_end[push]);
            for (size_t u = 0; u < 3; ++u)
                if (u != unit && clock[u] < needs[n][u]) return false;
            ++clock[unit];
            at_end[n] = clock;
        }
        return true;
    }

    // ---- Instructions
    // A row range of a window without its first row, which is the relays'.
    RowRange part(Scratchpad s, uint64_t most) {
        const RowRange& w = window(s);
        const uint64_t count = 1 + below(std::min<uint64_t>(most, w.count - 1));
        return {uint32_t(w.first + 1 + below(w.count - count)), uint32_t(count)};
    }

    Load load(Scratchpad to, RowRange rows) {
        Load l;
        l.to = to;
        l.row = uint16_t(rows.first);
        if (to == Scratchpad::Acc) l.element = Element(below(3));
        l.pad_value = uint8_t(below(256));
        // Factor the rows as z planes of lines of rows, the last of each possibly padding.
        uint32_t width = 1 + uint32_t(below(std::min<uint32_t>(rows.count, 24)));
        uint32_t height = 1 + uint32_t(below(rows.count / width));
        l.z = uint16_t(rows.count / (width * height));
        const auto pads = [&](uint32_t total, uint8_t& low, uint8_t& high) {
            if (chance(60)) return total;
            low = uint8_t(below(std::min(total + 1, 4u)));
            high = uint8_t(below(std::min(total - low + 1, 4u)));
            return total - low - high;
        };
        l.x = uint16_t(pads(width, l.left, l.right));
        l.y = uint16_t(pads(height, l.top, l.bottom));
        const uint32_t bytes = uint32_t(m.row_bytes(to, l.element));
        l.x_stride = chance(60) ? bytes : uint32_t(below(4 * bytes));
        l.y_stride = chance(60) ? l.x_stride * l.x : uint32_t(below(1024));
        l.z_stride = chance(60) ? l.y_stride * l.y : uint32_t(below(4096));
        place(l, bytes);
        return l;
    }

    template <typename T>
    void place(T& t, uint32_t bytes) {
        constexpr bool kIsStore = std::is_same_v<T, Store>;
        const auto extent = [&] {
            const uint64_t x = std::max<uint64_t>(t.x, 1), y = std::max<uint64_t>(t.y, 1);
            return (x - 1) * t.x_stride + (y - 1) * t.y_stride + (t.z - 1) * uint64_t(t.z_stride) + bytes;
        };
        const bool outputs = kIsStore || chance(15);
        const uint32_t first = outputs ? kOutputs : kInputs, size = outputs ? kOutputBytes : kInputBytes;
        while (extent() > size) t.x_stride /= 2, t.y_stride /= 2, t.z_stride /= 2;
        t.address = first + uint32_t(below(size - extent() + 1));
        if (chance(50)) t.address &= ~uint32_t(15);
    }

    Store store() {
        Store s;
        s.element = Element(below(3));
        const RowRange rows = part(Scratchpad::Acc, 48);
        s.x = uint16_t(1 + below(rows.count));
        s.y = uint16_t(1 + below(rows.count / s.x));
        s.y_pitch = chance(70) ? s.x : uint16_t(below(s.x + 1u));
        s.z = uint16_t(1 + below(2));
        s.z_pitch = chance(50) ? uint16_t(s.x * s.y) : 0;
        if (uint32_t(s.x) * s.y * s.z > rows.count) s.z_pitch = 0;
        s.row = uint16_t(rows.first);
        const uint32_t bytes = uint32_t(m.row_bytes(Scratchpad::Acc, s.element));
        s.x_stride = chance(70) ? bytes : bytes + uint32_t(below(64));
        s.y_stride = s.x_stride * s.x + (chance(70) ? 0 : uint32_t(below(64)));
        s.z_stride = s.y_stride * s.y;
        place(s, bytes);
        return s;
    }

    Loop loop() {
        Loop l;
        const RowRange& w = window(Scratchpad::Uop);
        l.uops = uint16_t(1 + below(std::min<uint32_t>(w.count, chance(50) ? 2 : 9)));
        l.uop = uint16_t(w.first + below(w.count - l.uops + 1));
        l.outer = uint16_t(1 + below(8));
        l.inner = uint16_t(1 + below(8));
        return l;
    }

    // An operand all of whose rows are within the window. Strides may be negative.
    Operand operand(Scratchpad s, const Loop& l, uint16_t Uop::*offset) {
        const RowRange& w = window(s);
        int64_t most = 0;
        for (uint32_t u = l.uop; u < uint32_t(l.uop) + l.uops; ++u) most = std::max<int64_t>(most, uops[u].*offset);
        int64_t outer = between(-4, 8), inner = between(-2, 3);
        if (chance(20)) outer = 0;
        if (chance(20)) inner = 0;
        for (;;) {
            const int64_t i = outer * (l.outer - 1), j = inner * (l.inner - 1);
            const int64_t low = std::min<int64_t>(i, 0) + std::min<int64_t>(j, 0);
            const int64_t high = std::max<int64_t>(i, 0) + std::max<int64_t>(j, 0) + most;
            const int64_t room = int64_t(w.count) - 2 - (high - low);
            if (room >= 0) return {uint16_t(w.first + 1 - low + between(0, room)), uint16_t(outer), uint16_t(inner)};
            outer /= 2;
            inner /= 2;
        }
    }

    Gemm gemm() {
        Gemm g;
        g.loop = loop();
        g.acc = operand(Scratchpad::Acc, g.loop, &Uop::acc);
        g.inp = operand(Scratchpad::Inp, g.loop, &Uop::inp);
        g.wgt = operand(Scratchpad::Wgt, g.loop, &Uop::wgt);
        g.init = Init(below(4));
        g.from_bias = g.init != Init::Never && chance(40);
        if (g.from_bias) g.bias = uint16_t(part(Scratchpad::Acc, 1).first);
        g.unsigned_inp = chance(30);
        return g;
    }

    uint32_t some_float() {
        if (chance(5)) return uint32_t(random.bits(drawn++));
        const uint32_t bits = uint32_t(random.bits(drawn++));
        return (bits & 0x807fffff) | uint32_t(between(110, 135)) << 23;
    }

    Alu alu() {
        Alu a;
        a.op = AluOp(below(14));
        a.loop = loop();
        a.dst = operand(Scratchpad::Acc, a.loop, &Uop::acc);
        a.a = chance(40) ? a.dst : operand(Scratchpad::Acc, a.loop, &Uop::inp);
        if (a.a == a.dst)
            for (uint32_t u = a.loop.uop; u < uint32_t(a.loop.uop) + a.loop.uops; ++u)
                if (uops[u].inp > uops[u].acc) a.a = operand(Scratchpad::Acc, a.loop, &Uop::inp);
        const bool sums = a.op == AluOp::Add || a.op == AluOp::Sub || a.op == AluOp::Min || a.op == AluOp::Max ||
                          a.op == AluOp::FloatAdd;
        a.b = SecondOperand(below(sums ? 3 : 2));
        if (a.b == SecondOperand::Row) {
            uint16_t most = 0;
            for (uint32_t u = a.loop.uop; u < uint32_t(a.loop.uop) + a.loop.uops; ++u)
                most = std::max(most, uops[u].wgt);
            const RowRange& w = window(Scratchpad::Acc);
            a.row = uint16_t(w.first + 1 + below(w.count - 1 - most));
        } else if (a.b == SecondOperand::Immediate) {
            a.immediate = is_float(a.op) ? some_float() : uint32_t(between(-300, 300));
        }
        a.addend = chance(50) ? int16_t(between(-2048, 2047)) : int16_t(0);
        a.clip = chance(40);
        if (a.clip) {
            a.low = int16_t(between(-300, 100));
            a.high = int16_t(between(a.low, 30000));
        }
        return a;
    }

    // ---- The program
    void make_memory() {
        made.memory.resize(kMemoryBytes);
        for (uint32_t at = 0; at < kUops; at += 4) {
            const uint64_t kind = below(4);
            const uint32_t word = kind == 0   ? some_float()
                                  : kind == 1 ? uint32_t(between(-5000, 5000))
                                              : uint32_t(random.bits(drawn++));
            std::memcpy(&made.memory[at], &word, 4);
        }
    }

    void load_windows() {
        for (Scratchpad s : {Scratchpad::Uop, Scratchpad::Wgt, Scratchpad::Inp, Scratchpad::Acc}) {
            const uint32_t most = s == Scratchpad::Wgt ? 12 : s == Scratchpad::Uop ? 20 : 90;
            RowRange& w = window(s);
            w.count = uint32_t(between(most / 2, most));
            w.first = uint32_t(below(uint64_t(m.rows(s)) - w.count + 1));
            Load l;
            l.to = s;
            l.row = uint16_t(w.first);
            l.x = uint16_t(w.count);
            l.x_stride = uint32_t(m.row_bytes(s));
            l.address = s == Scratchpad::Uop ? kUops : uint32_t(below(kInputBytes - w.count * l.x_stride));
            if (s == Scratchpad::Uop) make_uops(w);
            append({{}, l});
        }
    }

    void make_uops(const RowRange& w) {
        uops.resize(size_t(m.uops));
        for (uint32_t u = 1; u < w.count; ++u)
            uops[w.first + u] = {uint16_t(below(16)), uint16_t(below(16)), uint16_t(below(4))};
        for (uint32_t u = 0; u < w.count; ++u) {
            const auto bytes = encode(uops[w.first + u]);
            std::memcpy(&made.memory[kUops + u * kUopBytes], bytes.data(), bytes.size());
        }
    }

    RandomProgram run() {
        make_memory();
        load_windows();
        const int64_t count = between(10, 70);
        for (int64_t n = 0; n < count; ++n) {
            const uint64_t kind = below(100);
            if (kind < 35) {
                const Scratchpad to = Scratchpad(below(3));
                append({{}, load(to, part(to, to == Scratchpad::Wgt ? 4 : 40))});
            } else if (kind < 60 || (kind < 80 && !m.alu)) {
                append({{}, gemm()});
            } else if (kind < 80) {
                append({{}, alu()});
            } else {
                append({{}, store()});
            }
        }
        remove_redundant_tokens();
        made.program.push_back({{}, Finish{}});
        made.program_address = kUops + 4096;
        const std::vector<uint8_t> bytes = encode(made.program);
        CHECK(made.program_address + bytes.size() <= made.memory.size());
        std::copy(bytes.begin(), bytes.end(), made.memory.begin() + made.program_address);
        return std::move(made);
    }
};

}  // namespace

RandomProgram random_program(const Machine& machine, uint64_t seed) { return Generator(machine, seed).run(); }

}  // namespace tessera::accelerator
