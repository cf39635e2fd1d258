#include "kernel/cpu/words.h"

#include <algorithm>
#include <array>

#include "kernel/cpu/contraction_tiles.h"

namespace tessera {
namespace {

constexpr int64_t kBytes = 4;                    // of a word
constexpr int64_t kMostTaps = 49;                // of a window that is written out
constexpr int64_t kFewTerms = 8, kFewTaps = 20;  // of a sum along one axis, of a window: not worth it
// What turns signed bytes into unsigned ones that are 128 more, and back.
constexpr int64_t kTopBits = 0x80;
constexpr uint32_t kAllTopBits = 0x80808080;

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
    if (!o.flipped) return o;
    const int64_t by = wanted ? -128 : 128;
    const bool known = o.zero.is(ExprKind::Const);
    o.zero = known ? int_const(o.zero.node().integer + by, DType::i32) : o.zero + int_const(by, DType::i32);
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
            const auto longer = [](const ReduceAxis& r) { return !r.extent.is_int(1); };
            const bool window = std::count_if(stage.reduce.begin(), stage.reduce.end(), longer) > 1;
            const int64_t least = window ? kFewTaps : kFewTerms;
            if (elements(stage.reduce).as_int().value_or(least) < least) continue;
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

    static ReduceAxis in_words(const ReduceAxis& axis) {
        const Expr extent = ceil_div(axis.extent, kBytes);
        return {index_var(axis.var.node().name, extent.as_int()), extent};
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

    // What an operand reads of one tensor, where it reads nothing else and the sum goes along one of its dimensions.
    struct OneTensor {
        Expr load;
        size_t along;
    };
    std::optional<OneTensor> one_tensor(const Operand& o, const ReduceAxis& from) const {
        Expr leaf = o.byte;
        while (leaf.is(ExprKind::Select) && !depends_on(leaf.arg(0), from.var) && !depends_on(leaf.arg(2), from.var))
            leaf = Expr(leaf.arg(1));
        if (!leaf.is(ExprKind::Load) || size_t(leaf.node().slot) >= compute_.params) return {};
        std::optional<size_t> along;
        for (size_t d = 0; d < leaf.args().size(); ++d) {
            if (!depends_on(leaf.arg(d), from.var)) continue;
            if (along || !leaf.arg(d).same(from.var)) return {};
            along = d;
        }
        const Buffer& read = compute_.buffers[size_t(leaf.node().slot)];
        if (!along || !read.shape[*along].same(from.extent)) return {};
        return OneTensor{leaf, *along};
    }

    // The operand with `load` in place of what it reads of the tensor, and f of what it has where it reads nothing.
    template <typename F>
    static Expr chosen(const Expr& byte, const Expr& load, const F& f) {
        if (!byte.is(ExprKind::Select)) return load;
        return select(byte.arg(0), chosen(byte.arg(1), load, f), f(byte.arg(2)));
    }

    Expr sum_of_word(const Expr& word, bool first) const {
        const Expr ones = int_const(0x01010101, DType::i32);
        if (both_signed_) return call(Fn::DotI8, {word, ones});
        return first ? call(Fn::DotU8I8, {word, ones}) : call(Fn::DotU8I8, {ones, word});
    }

    // The sum of one operand's bytes for an element of the product, and stages for it.
    Expr sum_of(const Stage& product, const Operand& o, size_t along, bool first, std::vector<Stage>& made) {
        Stage sums;
        sums.name = fresh(product.name + (first ? "_a_sum" : "_b_sum"));
        for (const ReduceAxis& a : product.axes)
            if (depends_on(o.byte, a.var)) sums.axes.push_back(a);
        const ReduceAxis& from = product.reduce[along];
        for (size_t i = 0; i < product.reduce.size(); ++i)
            if (i != along && depends_on(o.byte, product.reduce[i].var)) sums.reduce.push_back(product.reduce[i]);
        sums.store = vars(sums.axes);
        auto tensor = one_tensor(o, from);
        const int64_t taps = elements(sums.reduce).as_int().value_or(kMostTaps + 1);
        if (tensor && taps > 1 && taps <= kMostTaps) {
            // Along the words first, for each element of the tensor once; then over the taps of the window.
            sums.value = sum_of_taps(sum_along_words(o, *tensor, from, first, made), sums.reduce);
            sums.reduce.clear();
        } else {
            sums.reduce = product.reduce;
            sums.reduce[along] = in_words(from);
            sums.value = sum_of_word(word_along(o, from, sums.reduce[along].var), first);
        }
        sums.buffer = add_buffer(sums.name, sums.axes);
        const Expr read = load(sums.buffer, DType::i32, sums.store);
        made.push_back(std::move(sums));
        return read;
    }

    static Expr sum_of_taps(const Expr& value, const std::vector<ReduceAxis>& axes) {
        std::vector<Expr> taps{value};
        for (const ReduceAxis& axis : axes) {
            std::vector<Expr> more;
            for (const Expr& tap : taps)
                for (int64_t i = 0; i < *axis.extent.as_int(); ++i)
                    more.push_back(substitute(tap, {{axis.var.node().name, Expr(i)}}));
            taps = std::move(more);
        }
        Expr sum = taps[0];
        for (size_t i = 1; i < taps.size(); ++i) sum = sum + taps[i];
        return sum;
    }

    Expr sum_along_words(const Operand& o, const OneTensor& tensor, const ReduceAxis& from, bool first,
                         std::vector<Stage>& made) {
        const Buffer read = compute_.buffers[size_t(tensor.load.node().slot)];
        Stage sums;
        sums.name = fresh(read.name + "_sum");
        std::vector<Expr> at, where;
        for (size_t d = 0; d < read.shape.size(); ++d) {
            if (d == tensor.along) {
                sums.reduce.push_back(in_words(from));
                at.push_back(from.var);
                continue;
            }
            sums.axes.push_back({index_var(fmt::format("{}_{}", sums.name, d), read.shape[d].as_int()), read.shape[d]});
            at.push_back(sums.axes.back().var);
            where.push_back(tensor.load.arg(d));
        }
        const Operand all{load(tensor.load.node().slot, tensor.load.dtype(), at), o.zero, o.flipped};
        sums.value = sum_of_word(word_along(all, from, sums.reduce[0].var), first);
        sums.store = vars(sums.axes);
        sums.buffer = add_buffer(sums.name, sums.axes);
        const Expr taken = load(sums.buffer, DType::i32, where), terms = cast(from.extent, DType::i32);
        made.push_back(std::move(sums));
        return chosen(o.byte, taken, [&](const Expr& byte) {
            Expr one = cast(byte, DType::i32);
            if (o.flipped) one = one + int_const(byte.dtype() == DType::u8 ? -128 : 128, DType::i32);
            return one * terms;
        });
    }

    // A tensor whose bytes lie apart along `from` is made into words by itself, before what reads each of them several
    // times. Null where the operand is more than what is read of one.
    std::optional<Expr> words_apart(const Operand& o, const ReduceAxis& from, const Expr& to,
                                    std::vector<Stage>& made) {
        const auto tensor = one_tensor(o, from);
        if (!tensor || tensor->along + 1 == tensor->load.args().size()) return {};
        const size_t slot = size_t(tensor->load.node().slot);
        if (slot < compute_.known.size() && compute_.known[slot]) return {};
        const Buffer read = compute_.buffers[slot];
        Stage words;
        words.name = fresh(read.name + "_words");
        std::vector<Expr> at;
        for (size_t d = 0; d < read.shape.size(); ++d) {
            const Expr extent = d == tensor->along ? ceil_div(read.shape[d], kBytes) : read.shape[d];
            words.axes.push_back({index_var(fmt::format("{}_{}", words.name, d), extent.as_int()), extent});
            at.push_back(words.axes.back().var);
        }
        const Operand all{load(int(slot), tensor->load.dtype(), at), o.zero, o.flipped};
        words.value = word_along(all, {at[tensor->along], read.shape[tensor->along]}, at[tensor->along]);
        words.store = at;
        words.buffer = add_buffer(words.name, words.axes);
        std::vector<Expr> where = tensor->load.args();
        where[tensor->along] = to;
        const Expr taken = load(words.buffer, DType::i32, where);
        made.push_back(std::move(words));
        return chosen(o.byte, taken, [&](const Expr& byte) { return turned(o, word_of({byte, byte, byte, byte})); });
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
        const ReduceAxis axis = words.reduce[along] = in_words(stage.reduce[along]);
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
            Expr sum = sum_of(stage, b, along, false, made);
            if (!is_zero(b.zero)) sum = sum - terms * b.zero;
            out.value = out.value - a.zero * sum;
        }
        if (!is_zero(b.zero)) out.value = out.value - b.zero * sum_of(stage, a, along, true, made);
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

}  // namespace tessera
