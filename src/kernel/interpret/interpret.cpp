#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <optional>

#include "base/numeric.h"
#include "base/reports.h"
#include "graph/evaluate/strip/loops.h"
#include "kernel/interpret/flat_code.h"
#include "kernel/interpret/touch_log.h"
#include "kernel/ir/intrinsic.h"
#include "kernel/ir/text.h"

namespace tessera {
namespace {

using Op = FlatOp;

constexpr int64_t kMostThreads = 1 << 16;  // of a block

// The memory of one buffer.
struct Memory {
    DType dtype = DType::f32;
    void* data = nullptr;
    std::vector<int64_t> sizes = {}, strides = {};
    Tensor owner = {};
};

// Arithmetic of narrow floats is done in f32: operations on two of its values, done in f64 and rounded, are exact.
double rounded(DType dtype, double v) { return dtype == DType::f64 ? v : static_cast<double>(static_cast<float>(v)); }

// The strip engine's loops, over one lane.
FlatValue apply(const FlatInstruction& i, FlatValue a, FlatValue b) {
    FlatValue out{.integer = 0};
    strip::Reals x{&a.real, true}, y{&b.real, true};
    strip::Ints m{&a.integer, true}, n{&b.integer, true};
    const bool real = is_float(i.from), to_real = is_float(i.dtype);
    switch (i.kind) {
        case ExprKind::Cast:
        case ExprKind::CastSaturate: {
            const bool saturate = i.kind == ExprKind::CastSaturate;
            if (real && to_real)
                strip::cast_real_to_real(i.dtype, saturate, x, 1, &out.real);
            else if (real)
                strip::cast_real_to_int(i.dtype, saturate, x, 1, &out.integer);
            else if (to_real)
                strip::cast_int_to_real(i.from, i.dtype, saturate, m, 1, &out.real);
            else
                strip::cast_int_to_int(i.from, i.dtype, saturate, m, 1, &out.integer);
            return out;
        }
        case ExprKind::Lt:
        case ExprKind::Le:
        case ExprKind::Eq:
        case ExprKind::Ne:
            if (real)
                strip::real_compare(i.kind, x, y, 1, &out.integer);
            else
                strip::int_compare(i.kind, i.from, m, n, 1, &out.integer);
            return out;
        case ExprKind::Call:
            if (!real && is_dot(i.fn))
                strip::int_dot(i.fn, m, n, 1, &out.integer);
            else if (!real)
                strip::int_unary(i.kind, i.fn, i.from, m, 1, &out.integer);
            else if (i.dtype == DType::boolean)
                strip::real_test(i.fn, x, 1, &out.integer);
            else
                strip::real_call(i.fn, x, y, 1, &out.real);
            break;
        case ExprKind::Neg:
            if (real)
                out.real = -a.real;
            else
                strip::int_unary(i.kind, i.fn, i.from, m, 1, &out.integer);
            break;
        case ExprKind::Not:
        case ExprKind::BitNot: strip::int_unary(i.kind, i.fn, i.from, m, 1, &out.integer); break;
        default:
            if (real)
                strip::real_binary(i.kind, x, y, 1, &out.real);
            else
                strip::int_binary(i.kind, i.from, m, n, 1, &out.integer);
    }
    if (to_real) out.real = rounded(i.dtype, out.real);
    return out;
}

FlatValue same_bits(DType from, DType to, FlatValue v) {
    uint64_t bits = is_float(from) ? float_to_bits(from, v.real) : static_cast<uint64_t>(v.integer);
    if (const int width = dtype_bits(from); width < 64) bits &= (uint64_t{1} << width) - 1;
    FlatValue out{.integer = 0};
    if (is_float(to))
        out.real = float_from_bits(to, bits);
    else
        out.integer = int_wrap(to, static_cast<int64_t>(bits));
    return out;
}

void set_dense_strides(Memory& m) {
    int64_t stride = 1;
    m.strides.assign(m.sizes.size(), 0);
    for (size_t d = m.sizes.size(); d-- > 0;) {
        m.strides[d] = stride;
        stride *= m.sizes[d];
    }
}

// How many elements there must be: one more than the largest offset.
Result<int64_t> reach(const Memory& m, const Buffer& b) {
    int64_t count = 1, last = 0;
    for (size_t d = 0; d < m.sizes.size(); ++d) {
        int64_t step = 0;
        if (m.sizes[d] < 0 || m.strides[d] < 0 || __builtin_mul_overflow(m.sizes[d] - 1, m.strides[d], &step) ||
            __builtin_add_overflow(last, step, &last))
            return Error(Code::E0405, "invalid sizes {} and strides {} of {}", to_string(m.sizes), to_string(m.strides),
                         name_text(b.name));
        count = m.sizes[d] == 0 ? 0 : count;
    }
    return count == 0 ? 0 : last + 1;
}

class Interpreter {
  public:
    Interpreter(const Kernel& kernel, const FlatCode& code, const InterpretOptions& options)
        : kernel_(kernel),
          code_(code),
          backwards_(options.backwards),
          fault_(options.fault),
          registers_(code.registers) {
        memory_.resize(kernel.buffers.size());
        if (options.races == InterpretOptions::Races::Find) log_.emplace(kernel.buffers.size());
    }

    Status set_symbols(const SymbolValues& symbols) {
        for (const auto& [name, reg] : code_.symbols) {
            auto given = symbols.find(name);
            if (given == symbols.end()) return Error(Code::E0402, "no value for the size {}", name_text(name));
            registers_[static_cast<size_t>(reg)].integer = given->second;
        }
        return {};
    }

    Status bind(std::vector<Tensor>& tensors, const SymbolValues& symbols) {
        if (tensors.size() != kernel_.params)
            return Error(Code::E0402, "{} tensors for {} parameters", tensors.size(), kernel_.params);
        for (size_t i = 0; i < tensors.size(); ++i) {
            const Buffer& b = kernel_.buffers[i];
            Memory& m = memory_[i];
            m.dtype = b.dtype;
            if (tensors[i].dtype() != b.dtype)
                return Error(Code::E0403, "{} takes elements of type {}, not {}", name_text(b.name),
                             dtype_name(b.dtype), dtype_name(tensors[i].dtype()));
            for (const Expr& e : b.shape) m.sizes.push_back(evaluate_int(e, symbols).value_or(-1));
            TRY(element_count(m.sizes));
            set_dense_strides(m);
            for (size_t d = 0; d < b.strides.size(); ++d)
                m.strides[d] = evaluate_int(b.strides[d], symbols).value_or(-1);
            int64_t elements = TRY(reach(m, b));
            if (b.strides.empty() ? tensors[i].elements() != elements : tensors[i].elements() < elements)
                return Error(Code::E0405, "{} elements for {}, whose sizes are {}", tensors[i].elements(),
                             name_text(b.name), to_string(m.sizes));
            m.data = tensors[i].mutable_data();
        }
        return {};
    }

    Status run() {
        TRY(advance(code_.instructions.data()));
        return {};
    }

  private:
    // From here to the thread's next barrier, the end of its loops, or the end of all.
    Result<const FlatInstruction*> advance(const FlatInstruction* i) {
        const FlatInstruction* last = code_.instructions.data() + code_.instructions.size();
        FlatValue* r = registers_.data();
        for (; i < last; ++i) {
            switch (i->op) {
                case Op::AddInt: r[i->out].integer = wrapping_add(r[i->a].integer, r[i->b].integer); break;
                case Op::MulInt: r[i->out].integer = wrapping_mul(r[i->a].integer, r[i->b].integer); break;
                case Op::LtInt: r[i->out].integer = r[i->a].integer < r[i->b].integer; break;
                case Op::AddReal: r[i->out].real = rounded(i->dtype, r[i->a].real + r[i->b].real); break;
                case Op::SubReal: r[i->out].real = rounded(i->dtype, r[i->a].real - r[i->b].real); break;
                case Op::MulReal: r[i->out].real = rounded(i->dtype, r[i->a].real * r[i->b].real); break;
                case Op::Apply: r[i->out] = apply(*i, r[i->a], r[i->b]); break;
                case Op::Select: r[i->out] = r[i->a].integer ? r[i->b] : r[i->c]; break;
                case Op::Move: r[i->out] = r[i->a]; break;
                case Op::Jump: i += i->c; break;
                case Op::JumpUnless:
                    if (!r[i->a].integer) i += i->c;
                    break;
                case Op::LoopBegin:
                    r[i->out].integer = 0;
                    if (r[i->a].integer <= 0) i += i->c;
                    break;
                case Op::LoopEnd:
                    if (++r[i->out].integer < r[i->a].integer) i += i->c;
                    break;
                case Op::LoopBeginBack:
                    r[i->out].integer = r[i->a].integer - 1;
                    if (r[i->out].integer < 0) i += i->c;
                    break;
                case Op::LoopEndBack:
                    if (--r[i->out].integer >= 0) i += i->c;
                    break;
                case Op::Load: {
                    int64_t offset = 0;
                    if (!locate(i->b, offset)) return fault(i->b);
                    if (log_) TRY(log(i->b, offset, false));
                    r[i->out] = read(memory_of(i->b), offset);
                    break;
                }
                case Op::Store: {
                    int64_t offset = 0;
                    if (!locate(i->b, offset)) return fault(i->b);
                    if (log_) TRY(log(i->b, offset, true));
                    write(memory_of(i->b), offset, r[i->a]);
                    break;
                }
                case Op::Combine: {
                    int64_t offset = 0;
                    if (!locate(i->b, offset)) return fault(i->b);
                    if (log_) TRY(log(i->b, offset, true));
                    Memory& m = memory_of(i->b);
                    write(m, offset, apply(*i, read(m, offset), r[i->a]));
                    break;
                }
                case Op::Allocate: TRY(allocate(static_cast<size_t>(i->b))); break;
                case Op::Launch:
                    if (log_) log_->begin_launch(i->a ? "iteration" : "block");
                    break;
                case Op::Block:
                    if (log_) log_->begin_block(values(code_.nests[static_cast<size_t>(i->b)].vars));
                    break;
                case Op::Threads:
                    TRY(run_threads(i, code_.nests[static_cast<size_t>(i->b)]));
                    i += i->c;
                    break;
                case Op::Bits: r[i->out] = same_bits(i->from, i->dtype, r[i->a]); break;
                case Op::Report: report(code_.reports[static_cast<size_t>(i->b)]); break;
                case Op::ThreadsEnd:
                case Op::Barrier: return i;
            }
        }
        return last;
    }

    void report(const FlatReport& r) const {
        const std::vector<int64_t> held = values(r.values);
        tessera_report(r.number, held.data());
    }

    // What a thread has for itself while others run.
    struct Thread {
        std::vector<FlatValue> registers;
        std::vector<Memory> own;
        const FlatInstruction* at;
    };

    void exchange(Thread& t, const FlatNest& nest) {
        registers_.swap(t.registers);
        for (size_t i = 0; i < t.own.size(); ++i) std::swap(memory_[static_cast<size_t>(nest.buffers[i])], t.own[i]);
    }

    // Each runs to its next barrier, in their order, until all are at the end.
    Status run_threads(const FlatInstruction* begin, const FlatNest& nest) {
        std::vector<int64_t> extents = values(nest.extents);
        for (int64_t& e : extents) e = std::max<int64_t>(e, 0);
        const int64_t count = TRY(element_count(extents));
        if (count > kMostThreads)
            return Error(Code::E0601, "a block has {} threads, more than the interpreter runs", count);
        std::vector<Thread> threads;
        for (int64_t n = 0; n < count; ++n) {
            Thread& t = threads.emplace_back(Thread{registers_, std::vector<Memory>(nest.buffers.size()), begin + 1});
            int64_t rest = n;
            for (size_t d = extents.size(); d-- > 0; rest /= extents[d])
                t.registers[static_cast<size_t>(nest.vars[d])].integer = rest % extents[d];
        }
        if (log_) log_->begin_threads(extents);
        for (bool done = threads.empty(); !done;) {
            for (int64_t n = 0; n < count; ++n) {
                const int64_t number = backwards_ ? count - 1 - n : n;
                Thread& t = threads[static_cast<size_t>(number)];
                if (log_) log_->set_thread(number);
                exchange(t, nest);
                t.at = TRY(advance(t.at));
                exchange(t, nest);
            }
            const FlatInstruction* met = threads[0].at;
            for (Thread& t : threads)
                if (t.at++ != met) return Error(Code::E0601, "threads of a block wait at different barriers");
            done = met->op == Op::ThreadsEnd;
            if (log_) log_->pass_barrier();
        }
        if (log_) log_->end_threads();
        return {};
    }

    Status log(int number, int64_t offset, bool writes) {
        const FlatAccess& a = access(number);
        if (a.atomic) return {};
        const Scope scope = kernel_.buffers[static_cast<size_t>(a.buffer)].scope;
        if (scope != Scope::Global && scope != Scope::Shared) return {};
        auto race = log_->touch(static_cast<size_t>(a.buffer), scope == Scope::Shared, offset, writes);
        if (!race) return {};
        if (fault_) *fault_ = a.stmt;
        return Error(Code::E0601, "a race for element {} of {}: {}", to_string(values(a.indices)),
                     name_text(kernel_.buffers[static_cast<size_t>(a.buffer)].name), *race)
            .at("kernel " + name_text(kernel_.name))
            .note("{}", first_line(a.stmt, kernel_.buffers));
    }

    const Kernel& kernel_;
    const FlatCode& code_;
    const bool backwards_;
    Stmt* const fault_;
    std::vector<FlatValue> registers_;
    std::vector<Memory> memory_;
    std::optional<TouchLog> log_;

    std::vector<int64_t> values(const std::vector<int>& registers) const {
        std::vector<int64_t> out;
        for (int reg : registers) out.push_back(registers_[static_cast<size_t>(reg)].integer);
        return out;
    }

    static int64_t wrapping_add(int64_t a, int64_t b) {
        return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    }
    static int64_t wrapping_mul(int64_t a, int64_t b) {
        return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    }

    const FlatAccess& access(int number) const { return code_.accesses[static_cast<size_t>(number)]; }
    Memory& memory_of(int number) { return memory_[static_cast<size_t>(access(number).buffer)]; }

    bool locate(int number, int64_t& offset) const {
        const FlatAccess& a = access(number);
        const Memory& m = memory_[static_cast<size_t>(a.buffer)];
        for (size_t d = 0; d < a.indices.size(); ++d) {
            int64_t at = registers_[static_cast<size_t>(a.indices[d])].integer;
            if (static_cast<uint64_t>(at) >= static_cast<uint64_t>(m.sizes[d])) return false;
            offset += at * m.strides[d];
        }
        return true;
    }

    Error fault(int number) const {
        const FlatAccess& a = access(number);
        const Memory& m = memory_[static_cast<size_t>(a.buffer)];
        if (fault_) *fault_ = a.stmt;
        return Error(Code::E0406, "element {} of {} is out of bounds: its sizes are {}", to_string(values(a.indices)),
                     name_text(kernel_.buffers[static_cast<size_t>(a.buffer)].name), to_string(m.sizes))
            .at("kernel " + name_text(kernel_.name))
            .note("{}", first_line(a.stmt, kernel_.buffers));
    }

    static FlatValue read(const Memory& m, int64_t offset) {
        FlatValue v{.integer = 0};
        if (m.dtype == DType::f32)
            v.real = static_cast<const float*>(m.data)[offset];
        else if (is_float(m.dtype))
            v.real = read_real(m.dtype, m.data, offset);
        else
            v.integer = read_int(m.dtype, m.data, offset);
        return v;
    }

    // The one place where elements change. A mode for asynchronous copies would put a copy's writes aside here, and
    // carry them out where the thread waits for them: what reads too early then sees the old contents.
    static void write(Memory& m, int64_t offset, FlatValue v) {
        if (m.dtype == DType::f32)
            static_cast<float*>(m.data)[offset] = static_cast<float>(v.real);
        else if (is_float(m.dtype))
            write_real(m.dtype, m.data, offset, v.real);
        else
            write_int(m.dtype, m.data, offset, v.integer);
    }

    // Fresh memory holds NaNs, or a number that stands out, so that what depends on it shows.
    Status allocate(size_t slot) {
        Memory& m = memory_[slot];
        m.dtype = kernel_.buffers[slot].dtype;
        m.sizes = values(code_.sizes[slot]);
        TRY(element_count(m.sizes));
        set_dense_strides(m);
        for (size_t d = 0; d < code_.strides[slot].size(); ++d)
            m.strides[d] = registers_[static_cast<size_t>(code_.strides[slot][d])].integer;
        int64_t elements = TRY(reach(m, kernel_.buffers[slot]));
        if (!m.data || m.owner.elements() != elements) {
            m.owner = TRY(Tensor::zeros(m.dtype, {elements}));
            m.data = m.owner.mutable_data();
        }
        FlatValue unset{.integer = 85};
        if (is_float(m.dtype)) unset.real = std::numeric_limits<double>::quiet_NaN();
        for (int64_t i = 0; i < elements; ++i) write(m, i, unset);
        return {};
    }
};

}  // namespace

Status interpret(const Kernel& kernel, std::vector<Tensor>& buffers, const SymbolValues& symbols,
                 const InterpretOptions& options) {
    const bool refuse = options.races == InterpretOptions::Races::Refuse;
    TRY(refuse ? verify(kernel) : verify_statements(kernel));
    const Kernel written_out = expand_intrinsics(kernel);
    FlatCode code = TRY(flatten(written_out, options.backwards));
    Interpreter interpreter(written_out, code, options);
    TRY(interpreter.set_symbols(symbols));
    TRY(interpreter.bind(buffers, symbols));
    return interpreter.run();
}

}  // namespace tessera
