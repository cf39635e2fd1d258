// Every unit looks at the others as they were at the end of the cycle before, as registers do: what happens in cycle t
// is visible from t + 1 on. So units are stepped in any order, at the cycles in which something has become visible.
#include "kernel/accelerator/simulate.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <optional>
#include <queue>

#include "kernel/accelerator/accesses.h"
#include "kernel/accelerator/execute.h"

namespace tessera::accelerator {

namespace {

enum class Wait : uint8_t { Fetch, Previous, Next, Room };

// A number whose changes become visible at a later cycle.
class Counter {
  public:
    int64_t at(int64_t cycle) {
        while (!changes_.empty() && changes_.top().first <= cycle) {
            value_ += changes_.top().second;
            changes_.pop();
        }
        return value_;
    }
    void change(int64_t cycle, int64_t by) { changes_.emplace(cycle, by); }

  private:
    using Change = std::pair<int64_t, int64_t>;
    int64_t value_ = 0;
    std::priority_queue<Change, std::vector<Change>, std::greater<>> changes_;
};

struct TokenQueue {
    Counter available, occupied;  // occupied: also by tokens that a started instruction will add
};

struct UnitState {
    std::deque<std::pair<size_t, int64_t>> queue;  // instruction, and the cycle from which it is visible
    Counter occupied;
    int64_t free = 0;  // the first cycle in which it may start the next instruction
    int64_t waiting_since = 0;
    Wait reason = Wait::Fetch;
};

class Simulator {
  public:
    Simulator(const Machine& machine, std::span<const Instruction> program, std::span<uint8_t> memory,
              const SimulateOptions& options)
        : m_(machine),
          program_(program),
          executor_(machine, memory),
          options_(options),
          written_at_(size_t(machine.acc_rows), -1000) {}

    Result<Simulation> run();

  private:
    void wake(int64_t cycle) { wakes_.push(cycle); }
    void change(Counter& counter, int64_t cycle, int64_t by) {
        counter.change(cycle, by);
        wake(cycle);
    }
    UnitState& state(Unit unit) { return units_[size_t(unit)]; }
    UnitStatistics& statistics(Unit unit) { return result_.units[size_t(unit)]; }
    int queue_depth(Unit unit) const {
        return unit == Unit::Load ? m_.load_queue : unit == Unit::Compute ? m_.compute_queue : m_.store_queue;
    }
    TokenQueue& tokens_to_next(Unit from) { return tokens_[from == Unit::Load ? 0 : 2]; }
    TokenQueue& tokens_to_previous(Unit from) { return tokens_[from == Unit::Compute ? 1 : 3]; }
    TokenQueue& tokens_from_previous(Unit to) { return tokens_[to == Unit::Compute ? 0 : 2]; }
    TokenQueue& tokens_from_next(Unit to) { return tokens_[to == Unit::Load ? 1 : 3]; }

    void step_fetch(int64_t t);
    void step_dispatch(int64_t t);
    Status step_load_start(int64_t t);
    void step_load_request(int64_t t);
    void finish_load();
    Status step_compute(int64_t t);
    Status step_store(int64_t t);
    bool can_start(Unit unit, int64_t t);
    void take_tokens(Unit unit, const Tokens& tokens, int64_t t);
    void give_tokens(Unit unit, const Tokens& tokens, int64_t visible);
    int64_t read(int64_t t, int64_t beats, int64_t not_before);
    int64_t beats(int64_t bytes) const { return std::max<int64_t>(1, bytes / m_.bytes_per_cycle); }
    int64_t compute_cycles(const Instruction& instruction, int64_t start);
    void record(Unit unit, int64_t start, int64_t end, size_t instruction, int64_t busy);
    Error deadlock();

    const Machine m_;
    std::span<const Instruction> program_;
    Executor executor_;
    const SimulateOptions options_;
    Simulation result_;
    std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> wakes_;
    std::array<UnitState, 3> units_;
    std::array<TokenQueue, 4> tokens_;  // load to compute, compute to load, compute to store, store to compute

    // The read channel serves requests in order. Each request's cycles follow from those before it when it is accepted.
    Counter outstanding_;
    int64_t channel_free_ = 0;
    bool fetch_requested_ = false;  // in this cycle: it goes first

    Counter fetch_reserved_;
    std::deque<int64_t> fetched_;  // the cycles from which the buffered instructions are visible
    size_t dispatched_ = 0;
    bool finished_ = false;
    int64_t last_event_ = 0;

    // The load unit: the instruction whose requests are sent, and the cycle of the last row that is written.
    struct Requests {
        size_t instruction;
        int64_t start, next = 0, count = 0, beats = 0;
    };
    std::optional<Requests> requests_;
    Counter loads_in_flight_;
    int64_t last_row_ = -1;

    std::vector<int64_t> written_at_;  // the cycle of the operand read of the last iteration that wrote a row of acc
};

void Simulator::step_fetch(int64_t t) {
    fetch_requested_ = !finished_ && fetch_reserved_.at(t) + m_.fetch_burst <= m_.fetch_buffer;
    if (!fetch_requested_ || outstanding_.at(t) >= m_.outstanding_reads) return;
    const int64_t each = beats(kInstructionBytes), last = read(t, each * m_.fetch_burst, 0);
    for (int i = 0; i < m_.fetch_burst; ++i) {
        const int64_t visible = last - each * (m_.fetch_burst - 1 - i) + 1;
        fetched_.push_back(visible);
        wake(visible);
    }
    change(fetch_reserved_, t + 1, m_.fetch_burst);
    result_.fetch_bytes += int64_t(m_.fetch_burst) * kInstructionBytes;
}

// The cycle of the last beat of a request that is accepted in cycle t and whose first beat is taken at `not_before`.
int64_t Simulator::read(int64_t t, int64_t beats, int64_t not_before) {
    const int64_t last = std::max({t + m_.latency, channel_free_, not_before}) + beats - 1;
    channel_free_ = last + 1;
    change(outstanding_, t + 1, 1);
    change(outstanding_, last + 1, -1);
    return last;
}

void Simulator::step_dispatch(int64_t t) {
    if (finished_ || fetched_.empty() || fetched_.front() > t || dispatched_ == program_.size()) return;
    const Instruction& instruction = program_[dispatched_];
    if (std::holds_alternative<Finish>(instruction.op)) {
        finished_ = true;
        last_event_ = std::max(last_event_, t + 1);
        return;
    }
    const Unit unit = instruction.unit();
    UnitState& u = state(unit);
    if (u.occupied.at(t) >= queue_depth(unit)) return;
    change(u.occupied, t + 1, 1);
    change(fetch_reserved_, t + 1, -1);
    u.queue.emplace_back(dispatched_++, t + 1);
    fetched_.pop_front();
}

// Whether the unit's next instruction starts in this cycle; counts what it waited for.
bool Simulator::can_start(Unit unit, int64_t t) {
    UnitState& u = state(unit);
    if (t < u.free) return false;
    const auto blocked_by = [&]() -> std::optional<Wait> {
        if (u.queue.empty() || u.queue.front().second > t) return Wait::Fetch;
        const Tokens& k = program_[u.queue.front().first].tokens;
        if (k.pop_previous && tokens_from_previous(unit).available.at(t) == 0) return Wait::Previous;
        if (k.pop_next && tokens_from_next(unit).available.at(t) == 0) return Wait::Next;
        if (k.push_previous && tokens_to_previous(unit).occupied.at(t) >= m_.tokens) return Wait::Room;
        if (k.push_next && tokens_to_next(unit).occupied.at(t) >= m_.tokens) return Wait::Room;
        if (unit == Unit::Load && loads_in_flight_.at(t) >= kLoadsInFlight) return Wait::Room;
        return {};
    }();
    UnitStatistics& s = statistics(unit);
    const int64_t since = std::max(u.waiting_since, u.free);
    switch (u.reason) {
        case Wait::Fetch: s.wait_fetch += t - since; break;
        case Wait::Previous: s.wait_previous += t - since; break;
        case Wait::Next: s.wait_next += t - since; break;
        case Wait::Room: s.wait_room += t - since; break;
    }
    u.waiting_since = t;
    u.reason = blocked_by.value_or(Wait::Fetch);
    return !blocked_by;
}

// When the instruction starts: pops, and room for what it will push.
void Simulator::take_tokens(Unit unit, const Tokens& k, int64_t t) {
    const auto pop = [&](TokenQueue& q) {
        change(q.available, t + 1, -1);
        change(q.occupied, t + 1, -1);
    };
    if (k.pop_previous) pop(tokens_from_previous(unit));
    if (k.pop_next) pop(tokens_from_next(unit));
    if (k.push_previous) change(tokens_to_previous(unit).occupied, t + 1, 1);
    if (k.push_next) change(tokens_to_next(unit).occupied, t + 1, 1);
}

void Simulator::give_tokens(Unit unit, const Tokens& k, int64_t visible) {
    if (k.push_previous) change(tokens_to_previous(unit).available, visible, 1);
    if (k.push_next) change(tokens_to_next(unit).available, visible, 1);
    last_event_ = std::max(last_event_, visible);
}

void Simulator::record(Unit unit, int64_t start, int64_t end, size_t instruction, int64_t busy) {
    statistics(unit).busy += busy;
    ++statistics(unit).instructions;
    if (options_.timeline) result_.timeline.push_back({unit, start, end, instruction});
}

Status Simulator::step_load_start(int64_t t) {
    if (requests_ || !can_start(Unit::Load, t)) return {};
    UnitState& u = state(Unit::Load);
    const size_t index = u.queue.front().first;
    const Instruction& instruction = program_[index];
    const Load& l = std::get<Load>(instruction.op);
    if (options_.compute || l.to == Scratchpad::Uop)
        TRY(executor_.execute(instruction, index));
    else
        TRY(check_accesses(m_, instruction, index, executor_.uops(), executor_.memory_bytes()));
    u.queue.pop_front();
    change(u.occupied, t + 1, -1);
    take_tokens(Unit::Load, instruction.tokens, t);
    change(loads_in_flight_, t + 1, 1);
    u.free = t + 1;
    wake(t + 1);
    last_row_ = std::max(last_row_, t);
    const int64_t row_bytes = m_.row_bytes(l.to, l.element), lines = int64_t(l.y) * l.z;
    Requests r{index, t};
    r.beats = beats(row_bytes);
    r.count = l.x == 0 ? 0 : l.x_stride == uint32_t(row_bytes) ? lines : lines * l.x;
    if (r.count == lines) r.beats *= l.x;
    result_.load_bytes += lines * l.x * row_bytes;
    requests_ = r;
    if (r.count == 0) finish_load();
    return {};
}

// Padding rows take a cycle each, in the order of rows.
void Simulator::step_load_request(int64_t t) {
    if (!requests_ || t <= requests_->start || fetch_requested_ || outstanding_.at(t) >= m_.outstanding_reads) return;
    const Load& l = std::get<Load>(program_[requests_->instruction].op);
    const int64_t per_line = requests_->count / (int64_t(l.y) * l.z), at = requests_->next;
    const int64_t width = int64_t(l.left) + l.x + l.right, line = at / per_line;
    int64_t padding = 0;
    if (at % per_line == 0) {
        const bool first_of_plane = line % l.y == 0;
        padding = l.left + (line > 0 ? l.right : 0) + (first_of_plane ? width * l.top : 0);
        if (first_of_plane && line > 0) padding += width * l.bottom;
    }
    last_row_ = read(t, requests_->beats, last_row_ + padding + 1);
    wake(t + 1);
    if (++requests_->next == requests_->count) {
        state(Unit::Load).free = t + 1;
        finish_load();
    }
}

// All of its requests are accepted.
void Simulator::finish_load() {
    const Instruction& instruction = program_[requests_->instruction];
    const Load& l = std::get<Load>(instruction.op);
    const int64_t width = int64_t(l.left) + l.x + l.right, height = int64_t(l.top) + l.y + l.bottom;
    last_row_ += requests_->count ? l.right + width * l.bottom : width * height * l.z;
    const int64_t padding = width * height * l.z - int64_t(l.x) * l.y * l.z;
    record(Unit::Load, requests_->start, last_row_ + 1, requests_->instruction,
           padding + requests_->count * requests_->beats);
    give_tokens(Unit::Load, instruction.tokens, last_row_ + 1);
    change(loads_in_flight_, last_row_ + 1, -1);
    requests_.reset();
}

// Cycles from the start of an instruction to that of the next: one for each row, and those in which an operand is not
// yet written.
int64_t Simulator::compute_cycles(const Instruction& instruction, int64_t start) {
    int64_t at = start;  // when the operands of the last row were read
    if (const Gemm* g = std::get_if<Gemm>(&instruction.op)) {
        const int64_t rows = int64_t(g->loop.uops) * g->loop.outer * g->loop.inner;
        for_each_row(*g, executor_.uops(), [&](const GemmRows& r) { written_at_[r.acc] = ++at; });
        result_.matrix_cycles += rows;
        return rows;
    }
    const Alu& alu = std::get<Alu>(instruction.op);
    int64_t rows = 0;
    for_each_row(alu, executor_.uops(), [&](const AluRows& r) {
        at = std::max(at + 1, written_at_[r.a] + kRowLatency);
        if (alu.b == SecondOperand::Row) at = std::max(at, written_at_[r.b] + kRowLatency);
        written_at_[r.dst] = at;
        ++rows;
    });
    result_.alu_cycles += rows;
    result_.alu_stalls += at - start - rows;
    return at - start;
}

Status Simulator::step_compute(int64_t t) {
    if (!can_start(Unit::Compute, t)) return {};
    UnitState& u = state(Unit::Compute);
    const size_t index = u.queue.front().first;
    const Instruction& instruction = program_[index];
    if (options_.compute)
        TRY(executor_.execute(instruction, index));
    else
        TRY(check_accesses(m_, instruction, index, executor_.uops(), executor_.memory_bytes()));
    u.queue.pop_front();
    take_tokens(Unit::Compute, instruction.tokens, t);
    u.free = t + compute_cycles(instruction, t);
    change(u.occupied, u.free, -1);
    record(Unit::Compute, t, u.free + kRowLatency, index, u.free - t);
    give_tokens(Unit::Compute, instruction.tokens, u.free + kRowLatency);
    return {};
}

Status Simulator::step_store(int64_t t) {
    if (!can_start(Unit::Store, t)) return {};
    UnitState& u = state(Unit::Store);
    const size_t index = u.queue.front().first;
    const Instruction& instruction = program_[index];
    const Store& s = std::get<Store>(instruction.op);
    if (options_.compute)
        TRY(executor_.execute(instruction, index));
    else
        TRY(check_accesses(m_, instruction, index, executor_.uops(), executor_.memory_bytes()));
    u.queue.pop_front();
    take_tokens(Unit::Store, instruction.tokens, t);
    const int64_t rows = int64_t(s.x) * s.y * s.z, bytes = m_.row_bytes(Scratchpad::Acc, s.element);
    u.free = t + rows * beats(bytes);
    change(u.occupied, t + (rows - 1) * beats(bytes) + 1, -1);
    wake(u.free);
    record(Unit::Store, t, u.free + 1, index, u.free - t);
    give_tokens(Unit::Store, instruction.tokens, u.free + 1);
    result_.store_bytes += rows * bytes;
    return {};
}

Error Simulator::deadlock() {
    std::string waits;
    for (Unit unit : {Unit::Load, Unit::Compute, Unit::Store}) {
        const UnitState& u = state(unit);
        if (u.queue.empty()) continue;
        const size_t index = u.queue.front().first;
        const auto name = [](Unit other) { return to_string(other); };
        std::string what;
        switch (u.reason) {
            case Wait::Fetch: continue;
            case Wait::Previous: what = fmt::format("a token from {}", name(Unit(int(unit) - 1))); break;
            case Wait::Next: what = fmt::format("a token from {}", name(Unit(int(unit) + 1))); break;
            case Wait::Room: what = fmt::format("room in a queue of {} tokens", m_.tokens); break;
        }
        waits += fmt::format("{}{} waits for {} at instruction {} ({})", waits.empty() ? "" : "; ", name(unit), what,
                             index, to_string(program_[index]));
    }
    if (!finished_ && dispatched_ < program_.size())
        waits += fmt::format("; instruction {} ({}) finds its unit's queue full", dispatched_,
                             to_string(program_[dispatched_]));
    return Error(Code::E0407, "the program deadlocks: {}", waits)
        .hint("every pop needs a push of the other unit that comes early enough in the program");
}

Result<Simulation> Simulator::run() {
    if (program_.empty() || !std::holds_alternative<Finish>(program_.back().op))
        return Error(Code::E0407, "the program has {} instructions, and the last one is not finish", program_.size());
    TRY(check_accesses(m_, program_.back(), program_.size() - 1, executor_.uops(), executor_.memory_bytes()));
    wake(0);
    while (!wakes_.empty()) {
        const int64_t t = wakes_.top();
        while (!wakes_.empty() && wakes_.top() == t) wakes_.pop();
        step_fetch(t);
        step_load_request(t);
        TRY(step_load_start(t));
        TRY(step_compute(t));
        TRY(step_store(t));
        step_dispatch(t);
    }
    for (const UnitState& u : units_)
        if (!finished_ || !u.queue.empty()) return deadlock();
    result_.cycles = last_event_;
    std::stable_sort(result_.timeline.begin(), result_.timeline.end(),
                     [](const TimelineRecord& a, const TimelineRecord& b) { return a.start < b.start; });
    return std::move(result_);
}

}  // namespace

Result<Simulation> simulate(const Machine& machine, std::span<const Instruction> program, std::span<uint8_t> memory,
                            const SimulateOptions& options) {
    return Simulator(machine, program, memory, options).run();
}

}  // namespace tessera::accelerator
