#include "kernel/accelerator/check_program.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <set>
#include <unordered_map>

#include "kernel/accelerator/accesses.h"

namespace tessera::accelerator {

namespace {

using Clock = std::array<int32_t, 3>;  // instructions of each unit that have ended, counted from 1

struct Touched {
    int32_t write = 0;  // the last one: the writer's number in its unit, 0 for none
    Unit writer = Unit::Load;
    Clock reads{};  // the last one of each unit
};

// Only the store unit writes memory, and only the load unit reads it.
struct TouchedPage {
    static constexpr uint64_t kBytes = 4096;
    std::array<int32_t, kBytes> stored{}, loaded{};
};

class Checker {
  public:
    Checker(const Machine& machine, std::span<const Instruction> program, std::span<const uint8_t> memory)
        : m_(machine), program_(program), memory_(memory), uops_(size_t(machine.uops)) {
        for (Scratchpad s : {Scratchpad::Inp, Scratchpad::Wgt, Scratchpad::Acc, Scratchpad::Uop})
            rows_[size_t(s)].resize(size_t(machine.rows(s)));
        for (size_t i = 0; i < program.size(); ++i)
            if (!std::holds_alternative<Finish>(program[i].op)) units_[size_t(program[i].unit())].push_back(i);
    }

    Result<ProgramCheck> run();

  private:
    struct Token {
        Clock clock;
        size_t push;
    };
    std::deque<Token>& queue(Unit from, Unit to) { return queues_[size_t(from)][size_t(to)]; }
    static Unit next(Unit u) { return Unit(size_t(u) + 1); }
    static Unit previous(Unit u) { return Unit(size_t(u) - 1); }

    Result<bool> step(Unit unit);
    void touch(const Load& l);
    void touch(const Store& s);
    void touch(const Gemm& g);
    void touch(const Alu& a);
    void touch(const Finish&) {}
    void read(Scratchpad s, uint32_t row);
    void write(Scratchpad s, uint32_t row);
    TouchedPage& page(uint64_t address) {
        auto& p = pages_[address / TouchedPage::kBytes];
        if (!p) p = std::make_unique<TouchedPage>();
        return *p;
    }
    void race(Unit other, int32_t number, std::string_view place, int64_t at, bool writes, bool other_writes);
    std::string name(size_t index) const {
        return fmt::format("instruction {} ({})", index, to_string(program_[index]));
    }
    void find(ProgramFinding::Kind kind, std::string message) {
        result_.findings.push_back({kind, now_, std::move(message)});
    }
    void find_end();

    const Machine m_;
    std::span<const Instruction> program_;
    std::span<const uint8_t> memory_;
    std::vector<Uop> uops_;
    std::array<std::vector<Touched>, 4> rows_;
    std::unordered_map<uint64_t, std::unique_ptr<TouchedPage>> pages_;
    std::array<std::vector<size_t>, 3> units_;  // instructions of each unit
    std::array<size_t, 3> at_{};
    std::array<Clock, 3> clocks_{};
    std::array<std::array<std::deque<Token>, 3>, 3> queues_;
    ProgramCheck result_;

    // The instruction that is executed.
    size_t now_ = 0;
    Unit unit_ = Unit::Load;
    Clock clock_{};
    std::set<std::pair<std::string_view, size_t>> found_;  // where, and the other instruction
};

void Checker::race(Unit other, int32_t number, std::string_view place, int64_t at, bool writes, bool other_writes) {
    const size_t index = units_[size_t(other)][size_t(number - 1)];
    if (!found_.emplace(place, index).second) return;
    find(ProgramFinding::Kind::Race,
         fmt::format("{} {} {}[{}], which {} {}: no token orders one after the other", name(now_),
                     writes ? "writes" : "reads", place, at, name(index), other_writes ? "writes" : "reads"));
}

void Checker::read(Scratchpad s, uint32_t row) {
    Touched& t = rows_[size_t(s)][row];
    if (t.write == 0) {
        if (found_.emplace(to_string(s), now_).second)
            find(ProgramFinding::Kind::Unwritten,
                 fmt::format("{} reads {}[{}], which nothing has written", name(now_), to_string(s), row));
    } else if (t.writer != unit_ && t.write > clock_[size_t(t.writer)]) {
        race(t.writer, t.write, to_string(s), row, false, true);
    }
    t.reads[size_t(unit_)] = clock_[size_t(unit_)];
}

void Checker::write(Scratchpad s, uint32_t row) {
    Touched& t = rows_[size_t(s)][row];
    if (t.write > 0 && t.writer != unit_ && t.write > clock_[size_t(t.writer)])
        race(t.writer, t.write, to_string(s), row, true, true);
    for (Unit u : {Unit::Load, Unit::Compute, Unit::Store})
        if (u != unit_ && t.reads[size_t(u)] > clock_[size_t(u)])
            race(u, t.reads[size_t(u)], to_string(s), row, true, false);
    t.write = clock_[size_t(unit_)];
    t.writer = unit_;
}

void Checker::touch(const Load& l) {
    const int64_t bytes = m_.row_bytes(l.to, l.element);
    const int32_t stores = clock_[size_t(Unit::Store)], mine = clock_[size_t(Unit::Load)];
    for_each_row(l, [&](uint32_t row, int64_t address) {
        write(l.to, row);
        if (l.to == Scratchpad::Uop) uops_[row] = address < 0 ? Uop{} : decode_uop(memory_.data() + address);
        for (int64_t b = address; address >= 0 && b < address + bytes; ++b) {
            TouchedPage& p = page(uint64_t(b));
            const size_t in_page = uint64_t(b) % TouchedPage::kBytes;
            if (p.stored[in_page] > stores) race(Unit::Store, p.stored[in_page], "memory", b, false, true);
            p.loaded[in_page] = mine;
        }
    });
}

void Checker::touch(const Store& s) {
    const int64_t bytes = m_.row_bytes(Scratchpad::Acc, s.element);
    const int32_t loads = clock_[size_t(Unit::Load)], mine = clock_[size_t(Unit::Store)];
    for_each_row(s, [&](uint32_t row, int64_t address) {
        read(Scratchpad::Acc, row);
        for (int64_t b = address; b < address + bytes; ++b) {
            TouchedPage& p = page(uint64_t(b));
            const size_t in_page = uint64_t(b) % TouchedPage::kBytes;
            if (p.loaded[in_page] > loads) race(Unit::Load, p.loaded[in_page], "memory", b, true, false);
            p.stored[in_page] = mine;
        }
    });
}

void Checker::touch(const Gemm& g) {
    for (uint32_t u = 0; u < g.loop.uops; ++u) read(Scratchpad::Uop, g.loop.uop + u);
    for_each_row(g, uops_.data(), [&](const GemmRows& r) {
        read(Scratchpad::Inp, r.inp);
        read(Scratchpad::Wgt, r.wgt);
        if (!r.starts) read(Scratchpad::Acc, r.acc);
        if (r.starts && g.from_bias) read(Scratchpad::Acc, g.bias);
        write(Scratchpad::Acc, r.acc);
    });
}

void Checker::touch(const Alu& a) {
    for (uint32_t u = 0; u < a.loop.uops; ++u) read(Scratchpad::Uop, a.loop.uop + u);
    for_each_row(a, uops_.data(), [&](const AluRows& r) {
        read(Scratchpad::Acc, r.a);
        if (a.b == SecondOperand::Row) read(Scratchpad::Acc, r.b);
        if (reads_destination(a)) read(Scratchpad::Acc, r.dst);
        write(Scratchpad::Acc, r.dst);
    });
}

// Executes the unit's next instruction; false if it has none, or waits for a token.
Result<bool> Checker::step(Unit unit) {
    const size_t u = size_t(unit);
    if (at_[u] == units_[u].size()) return false;
    const size_t index = units_[u][at_[u]];
    const Instruction& instruction = program_[index];
    const Tokens& k = instruction.tokens;
    if (k.pop_previous && queue(previous(unit), unit).empty()) return false;
    if (k.pop_next && queue(next(unit), unit).empty()) return false;
    TRY(check_accesses(m_, instruction, index, uops_.data(), memory_.size()));
    clock_ = clocks_[u];
    const auto pop = [&](Unit from) {
        const Token token = queue(from, unit).front();
        queue(from, unit).pop_front();
        for (size_t i = 0; i < clock_.size(); ++i) clock_[i] = std::max(clock_[i], token.clock[i]);
        result_.tokens.push_back({from, unit, token.push, index});
    };
    if (k.pop_previous) pop(previous(unit));
    if (k.pop_next) pop(next(unit));
    clock_[u] = int32_t(++at_[u]);
    now_ = index;
    unit_ = unit;
    found_.clear();
    std::visit([&](const auto& op) { touch(op); }, instruction.op);
    clocks_[u] = clock_;
    if (k.push_previous) queue(unit, previous(unit)).push_back({clock_, index});
    if (k.push_next) queue(unit, next(unit)).push_back({clock_, index});
    return true;
}

// What is left when no unit can go on.
void Checker::find_end() {
    for (Unit unit : {Unit::Load, Unit::Compute, Unit::Store}) {
        const size_t u = size_t(unit);
        if (at_[u] == units_[u].size()) continue;
        now_ = units_[u][at_[u]];
        const Tokens& k = program_[now_].tokens;
        const bool from_previous = k.pop_previous && queue(previous(unit), unit).empty();
        find(ProgramFinding::Kind::Deadlock, fmt::format("{} waits for a token from {} that never comes", name(now_),
                                                         to_string(from_previous ? previous(unit) : next(unit))));
    }
    for (Unit from : {Unit::Load, Unit::Compute, Unit::Store})
        for (Unit to : {Unit::Load, Unit::Compute, Unit::Store})
            if (const auto& q = queue(from, to); !q.empty()) {
                now_ = q.front().push;
                find(ProgramFinding::Kind::TokensLeft,
                     fmt::format("{} token{} from {} to {} nothing takes; {} adds the first", q.size(),
                                 q.size() > 1 ? "s" : "", to_string(from), to_string(to), name(now_)));
            }
}

Result<ProgramCheck> Checker::run() {
    if (program_.empty() || !std::holds_alternative<Finish>(program_.back().op))
        return Error(Code::E0407, "the program has {} instructions, and the last one is not finish", program_.size());
    for (bool advanced = true; advanced;) {
        advanced = false;
        for (Unit unit : {Unit::Load, Unit::Compute, Unit::Store})
            while (TRY(step(unit))) advanced = true;
    }
    find_end();
    return std::move(result_);
}

}  // namespace

std::string ProgramCheck::to_string() const {
    std::string out;
    for (const ProgramFinding& f : findings) out += f.message + "\n";
    return out;
}

Result<ProgramCheck> check_program(const Machine& machine, std::span<const Instruction> program,
                                   std::span<const uint8_t> memory) {
    return Checker(machine, program, memory).run();
}

}  // namespace tessera::accelerator
