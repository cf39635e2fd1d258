#include "kernel/cpu/words.h"

#include <algorithm>
#include <array>

#include "kernel/cpu/contraction.h"

namespace tessera {
namespace {

constexpr int64_t kBytes = 4;      // of a word
constexpr int64_t kFewTerms = 20;  // not worth it
// What turns signed bytes into unsigned ones that are 128 more, and back.
constexpr int64_t kTopBits = 0x80;
constexpr uint32_t kAllTopBits = 0x80808080;

// i32(byte) - zero.
struct Centered {
    Expr byte, zero;
};

std::optional<Centered> match_centered(const Expr& e) {
    if (e.dtype() != DType::i32) return {};
    const bool less = e.is(ExprKind::Sub);
    const Expr& from = less ? e.arg(0) : e;
    if (!from.is(ExprKind::Cast)) return {};
    const DType t = from.arg(0).dtype();
    if (t != DType::i8 && t != DType::u8) return {};
    return Centered{from.arg(0), less ? e.arg(1) : int_const(0, DType::i32)};
}

bool depends_on_any(const Expr& e, const std::vector<ReduceAxis>& axes) {
    return std::any_of(axes.begin(), axes.end(), [&](const ReduceAxis& a) { return depends_on(e, a.var); });
}

bool is_zero(const Expr& e) { return e.is(ExprKind::Const) && e.node().integer == 0; }

// The word of four bytes, the first in the lowest bits. Choices by one condition are made once.
Expr word_of(const std::array<Expr, kBytes>& bytes) {
    const Expr& first = bytes[0];
    auto all = [&](auto&& holds) { return std::all_of(bytes.begin(), bytes.end(), holds); };
    if (all([](const Expr& b) { return b.is(ExprKind::Const); })) {
        uint32_t word = 0;
        for (size_t i = 0; i < kBytes; ++i) word |= uint32_t{uint8_t(bytes[i].node().integer)} << (8 * i);
        return int_const(int32_t(word), DType::i32);
    }
    if (all([&](const Expr& b) { return b.is(ExprKind::Select) && b.arg(0) == first.arg(0); })) {
        auto branch = [&](size_t which) {
            return word_of({bytes[0].arg(which), bytes[1].arg(which), bytes[2].arg(which), bytes[3].arg(which)});
        };
        return select(first.arg(0), branch(1), branch(2));
    }
    Expr word = cast(cast(first, DType::u8), DType::i32);
    for (size_t i = 1; i < kBytes; ++i) {
        Expr byte = cast(cast(bytes[i], DType::u8), DType::i32);
        word = bit(ExprKind::BitOr, word, bit(ExprKind::Shl, byte, int_const(int64_t(8 * i), DType::i32)));
    }
    return word;
}

// Bytes as those of the sign that is wanted, and by how much they grew.
struct Operand {
    Expr byte, zero;
    bool flipped = false;
};

Operand as_signed(const Centered& c, bool wanted) {
    Operand o{c.byte, c.zero, (c.byte.dtype() == DType::i8) != wanted};
    if (o.flipped) o.zero = o.zero + int_const(wanted ? -128 : 128, DType::i32);
    return o;
}

class InWords {
  public:
    InWords(Compute compute, bool both_signed) : compute_(std::move(compute)), both_signed_(both_signed) {}

    Compute apply() {
        for (size_t s = 0; s < compute_.stages.size(); ++s) {
            const Stage stage = compute_.stages[s];
            if (stage.fold || !stage.value.is(ExprKind::Mul)) continue;
            const auto c = match_contraction(stage);
            if (!c || is_one_row(stage, *c)) continue;
            auto a = match_centered(stage.value.arg(0)), b = match_centered(stage.value.arg(1));
            if (!a || !b || depends_on_any(a->zero, stage.reduce) || depends_on_any(b->zero, stage.reduce)) continue;
            if (elements(stage.reduce).as_int().value_or(kFewTerms) < kFewTerms) continue;
            s += rewrite_sum(s, stage, as_signed(*a, both_signed_), as_signed(*b, true));
        }
        return std::move(compute_);
    }

  private:
    // One row of something that is not known has no use for words: each would be made for one product.
    bool is_one_row(const Stage& stage, const Contraction& c) const {
        for (int i : c.rows)
            if (!stage.axes[size_t(i)].extent.is_int(1)) return false;
        for (int slot : loaded_slots(stage.value.arg(size_t(c.b))))
            if (size_t(slot) >= compute_.known.size() || !compute_.known[size_t(slot)]) return true;
        return false;
    }

    static Expr elements(const std::vector<ReduceAxis>& axes) {
        Expr n = 1;
        for (const ReduceAxis& a : axes) n = n * a.extent;
        return n;
    }

    // The axis along which words are made: one along which a lies, of whole words, or else the longest.
    static size_t choose_axis(const Stage& stage, const Expr& a) {
        size_t best = 0;
        int64_t most = -1;
        for (size_t i = 0; i < stage.reduce.size(); ++i) {
            const ReduceAxis& axis = stage.reduce[i];
            const int64_t extent = axis.extent.as_int().value_or(64);
            bool along = false;
            visit(a, [&](const Expr& x) {
                if (!x.is(ExprKind::Load) || x.args().empty()) return;
                auto step = step_of(x.args().back(), axis.var);
                along |= step && step->is_int(1);
            });
            const bool whole = mod(axis.extent, kBytes).is_int(0);
            const int64_t worth =
                (whole ? 4096 : 0) + (along && extent >= 2 * kBytes ? 8192 : 0) + std::min<int64_t>(extent, 4095);
            if (worth > most) most = worth, best = i;
        }
        return best;
    }

    int add_buffer(const std::string& name, const std::vector<ReduceAxis>& axes) {
        Buffer made{.name = name, .dtype = DType::i32, .shape = {}};
        for (const ReduceAxis& a : axes) made.shape.push_back(a.extent);
        compute_.buffers.push_back(std::move(made));
        return int(compute_.buffers.size()) - 1;
    }

    static std::vector<Expr> vars(const std::vector<ReduceAxis>& axes) {
        std::vector<Expr> out;
        for (const ReduceAxis& a : axes) out.push_back(a.var);
        return out;
    }

    std::string fresh(const std::string& name) const {
        auto taken = [&](const std::string& n) {
            return std::any_of(compute_.stages.begin(), compute_.stages.end(),
                               [&](const Stage& s) { return s.name == n; }) ||
                   std::any_of(compute_.buffers.begin(), compute_.buffers.end(),
                               [&](const Buffer& b) { return b.name == n; });
        };
        std::string made = name;
        for (int i = 1; taken(made); ++i) made = name + "_" + std::to_string(i);
        return made;
    }

    // A stage with the sum of one operand's bytes, and the load of what it has for an element of the product.
    std::pair<Stage, Expr> sum_of(const Stage& product, const Operand& o, const char* which) {
        Stage made;
        made.name = fresh(product.name + which);
        for (const ReduceAxis& a : product.axes)
            if (depends_on(o.byte, a.var)) made.axes.push_back(a);
        made.reduce = product.reduce;
        made.value = cast(o.byte, DType::i32);
        if (o.flipped) made.value = made.value + int_const(o.byte.dtype() == DType::u8 ? -128 : 128, DType::i32);
        made.store = vars(made.axes);
        made.buffer = add_buffer(made.name, made.axes);
        Expr read = load(made.buffer, DType::i32, made.store);
        return {std::move(made), std::move(read)};
    }

    // A tensor whose bytes lie apart along `from` is made into words by itself, before what reads each of them several
    // times. Null where the operand is more than what is read of one.
    std::optional<Expr> words_apart(const Operand& o, const ReduceAxis& from, const Expr& to,
                                    std::vector<Stage>& made) {
        Expr leaf = o.byte;
        while (leaf.is(ExprKind::Select) && leaf.arg(2).is(ExprKind::Const) && !depends_on(leaf.arg(0), from.var))
            leaf = Expr(leaf.arg(1));
        if (!leaf.is(ExprKind::Load) || size_t(leaf.node().slot) >= compute_.params || leaf.args().size() < 2)
            return {};
        if (size_t slot = size_t(leaf.node().slot); slot < compute_.known.size() && compute_.known[slot]) return {};
        std::optional<size_t> along;
        for (size_t d = 0; d < leaf.args().size(); ++d) {
            if (!depends_on(leaf.arg(d), from.var)) continue;
            if (along || !leaf.arg(d).same(from.var)) return {};
            along = d;
        }
        const Buffer read = compute_.buffers[size_t(leaf.node().slot)];
        if (!along || *along + 1 == leaf.args().size() || !read.shape[*along].same(from.extent)) return {};
        Stage words;
        words.name = fresh(read.name + "_words");
        std::vector<Expr> at;
        for (size_t d = 0; d < read.shape.size(); ++d) {
            const Expr extent = d == *along ? ceil_div(read.shape[d], kBytes) : read.shape[d];
            words.axes.push_back({index_var(words.name + "_" + std::to_string(d), extent.as_int()), extent});
            at.push_back(words.axes.back().var);
        }
        const Operand all{load(leaf.node().slot, leaf.dtype(), at), o.zero, o.flipped};
        const ReduceAxis dimension{at[*along], read.shape[*along]};
        words.value = word_along(all, dimension, at[*along]);
        words.store = at;
        words.buffer = add_buffer(words.name, words.axes);
        std::vector<Expr> where = leaf.args();
        where[*along] = to;
        const Expr taken = load(words.buffer, DType::i32, where);
        made.push_back(std::move(words));
        return chosen(o, o.byte, taken);
    }

    // The choices of a byte, made of words.
    static Expr chosen(const Operand& o, const Expr& byte, const Expr& word) {
        if (!byte.is(ExprKind::Select)) return word;
        const Expr& other = byte.arg(2);
        return select(byte.arg(0), chosen(o, byte.arg(1), word), turned(o, word_of({other, other, other, other})));
    }

    static Expr turned(const Operand& o, const Expr& word) {
        if (!o.flipped) return word;
        if (word.is(ExprKind::Const))
            return int_const(int32_t(uint32_t(word.node().integer) ^ kAllTopBits), DType::i32);
        return bit(ExprKind::BitXor, word, int_const(int32_t(kAllTopBits), DType::i32));
    }

    static Expr word_along(const Operand& o, const ReduceAxis& from, const Expr& to) {
        std::array<Expr, kBytes> bytes;
        const bool whole = mod(from.extent, kBytes).is_int(0);
        for (int64_t i = 0; i < kBytes; ++i) {
            const Expr at = to * kBytes + i;
            bytes[size_t(i)] = substitute(o.byte, {{from.var.node().name, at}});
        }
        if (whole) return turned(o, word_of(bytes));
        // The last may reach past the end, where all bytes are zero.
        std::array<Expr, kBytes> some = bytes;
        for (int64_t i = 0; i < kBytes; ++i) {
            Expr byte = cast(bytes[size_t(i)], DType::u8);
            if (o.flipped) byte = bit(ExprKind::BitXor, byte, int_const(kTopBits, DType::u8));
            some[size_t(i)] = select(lt(to * kBytes + i, from.extent), byte, int_const(0, DType::u8));
        }
        return select(lt(to * kBytes + (kBytes - 1), from.extent), turned(o, word_of(bytes)), word_of(some));
    }

    // Gives the number of stages that were added.
    size_t rewrite_sum(size_t s, const Stage& stage, const Operand& a, const Operand& b) {
        const size_t along = choose_axis(stage, a.byte);
        Stage words = stage;
        ReduceAxis& axis = words.reduce[along];
        const Expr extent = ceil_div(axis.extent, kBytes);
        axis = {index_var(axis.var.node().name, extent.as_int()), extent};
        std::vector<Stage> made;
        auto operand = [&](const Operand& o) {
            auto apart = words_apart(o, stage.reduce[along], axis.var, made);
            return apart ? *apart : word_along(o, stage.reduce[along], axis.var);
        };
        const Expr left = operand(a), right = operand(b);
        words.value = call(both_signed_ ? Fn::DotI8 : Fn::DotU8I8, {left, right});
        if (is_zero(a.zero) && is_zero(b.zero)) {
            compute_.stages[s] = std::move(words);
            compute_.stages.insert(compute_.stages.begin() + std::ptrdiff_t(s), made.begin(), made.end());
            return made.size();
        }
        words.name = fresh(stage.name + "_words");
        words.buffer = add_buffer(words.name, stage.axes);
        words.store = vars(stage.axes);
        Stage out = stage;
        out.reduce.clear();
        out.value = load(words.buffer, DType::i32, words.store);
        const Expr terms = cast(elements(stage.reduce), DType::i32);
        if (!is_zero(a.zero)) {
            auto [sums, read] = sum_of(stage, b, "_b_sum");
            if (!is_zero(b.zero)) read = read - terms * b.zero;
            out.value = out.value - a.zero * read;
            made.push_back(std::move(sums));
        }
        if (!is_zero(b.zero)) {
            auto [sums, read] = sum_of(stage, a, "_a_sum");
            out.value = out.value - b.zero * read;
            made.push_back(std::move(sums));
        }
        made.push_back(std::move(words));
        compute_.stages[s] = std::move(out);
        compute_.stages.insert(compute_.stages.begin() + std::ptrdiff_t(s), made.begin(), made.end());
        return made.size();
    }

    Compute compute_;
    const bool both_signed_;
};

}  // namespace

Compute with_words(Compute compute, const Machine& machine) {
    if (!machine.multiplies_bytes()) return compute;
    return InWords(std::move(compute), machine.has("dotprod")).apply();
}

bool makes_words(const Compute& compute, const Stage& stage) {
    if (!stage.reduce.empty() || compute.buffers[size_t(stage.buffer)].dtype != DType::i32) return false;
    return std::any_of(compute.stages.begin(), compute.stages.end(), [&](const Stage& reader) {
        const std::vector<int> read = loaded_slots(reader.value);
        return sums_words(reader) && std::count(read.begin(), read.end(), stage.buffer) > 0;
    });
}

bool sums_words(const Stage& stage) { return is_product(stage.value) && !stage.value.is(ExprKind::Mul); }

}  // namespace tessera
