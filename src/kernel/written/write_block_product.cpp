#include "kernel/written/write_block_product.h"

#include "graph/ops/block_product.h"

namespace tessera {
namespace {

constexpr int64_t kLowHalves = 0x0F0F0F0F, kWordsAtOnce = 4;

// Some panels of columns are a task. In it, tiles of rows go over all blocks, with their sums in registers; a block's
// own sum is scaled when it is done.
class BlockProduct {
  public:
    explicit BlockProduct(KernelWriter& w)
        : w_(w),
          bytes_(w.op().dtype(0) == DType::i8),
          one_zero_(w.op().shape(3)[0].is_int(1) && w.op().shape(3)[1].is_int(1) && w.op().shape(3)[2].is_int(1)),
          n_(w.op().integer("n")),
          panels_(w.op().integer("panels")),
          tile_(w.op().integer("tile")) {
        const Shape &x = w.op().shape(0), &words = w.op().shape(1);
        m_ = elements_between(x, 0, x.rank() - 2);
        blocks_ = words[1];
        words_of_block_ = *words[2].as_int();
        size_ = words_of_block_ * kNibblesOfWord;
        x_ = w.in(0, {m_, blocks_, Expr(size_)});
        words_ = w.in(1), scales_ = w.in(2), zeros_ = w.in(3);
        if (bytes_) x_scales_ = w.in(4, {m_, blocks_}), x_sums_ = w.in(5, {m_, blocks_});
        y_ = w.out(0, {m_, Expr(n_)});
    }

    Stmt write() {
        const Expr tasks = floor_div(w_.op().shape(1)[0], panels_);
        return w_.parallel(tasks, [&](const Expr& task) {
            std::vector<Stmt> tiles;
            Expr first = 0;
            for (int64_t rows = tile_; rows >= 1; rows /= 2) {
                const Expr count = floor_div(rows == tile_ ? m_ : mod(m_, 2 * rows), rows);
                if (count.is_int(0)) continue;
                const int64_t wide = std::min(panels_, tile_ / rows);
                tiles.push_back(w_.loop(count, [&](const Expr& t) {
                    return w_.loop(panels_ / wide, [&](const Expr& p) {
                        return tile(first + t * rows, rows, task * panels_ + p * wide, wide);
                    });
                }));
                first = first + count * rows;
            }
            return seq(std::move(tiles));
        });
    }

  private:
    using Body = std::function<Stmt(const Expr&)>;

    Stmt unrolled(int64_t count, const Body& body) { return w_.loop(count, body, LoopKind::Unrolled); }
    Stmt lanes(const Body& body) { return w_.loop(kPanelColumns, body, LoopKind::Vector); }

    // For each row, panel and column of a tile.
    Stmt each(int64_t rows, int64_t panels, const std::function<Stmt(const Expr&, const Expr&, const Expr&)>& body) {
        return unrolled(panels, [&](const Expr& p) {
            return unrolled(rows, [&](const Expr& r) { return lanes([&](const Expr& l) { return body(r, p, l); }); });
        });
    }

    Stmt sums(DType dtype, int64_t rows, int64_t panels, const std::function<Stmt(const Elements&)>& body) {
        return w_.local(dtype, {Expr(rows), Expr(panels), Expr(kPanelColumns)}, body);
    }

    Stmt tile(const Expr& row, int64_t rows, const Expr& panel, int64_t panels) {
        return sums(DType::f32, rows, panels, [&](const Elements& sum) {
            return seq({
                each(rows, panels,
                     [&](const Expr& r, const Expr& p, const Expr& l) {
                         return sum.set({r, p, l}, real_const(0));
                     }),
                w_.loop(blocks_, [&](const Expr& b) { return block(sum, row, rows, panel, panels, b); }),
                each(rows, panels,
                     [&](const Expr& r, const Expr& p, const Expr& l) {
                         const Expr column = (panel + p) * kPanelColumns + l;
                         return if_then(lt(column, n_), y_.set({row + r, column}, sum.at({r, p, l})));
                     }),
            });
        });
    }

    Stmt block(const Elements& sum, const Expr& row, int64_t rows, const Expr& panel, int64_t panels, const Expr& b) {
        const DType t = bytes_ ? DType::i32 : DType::f32;
        return sums(t, rows, panels, [&](const Elements& own) {
            const int64_t at_once = words_of_block_ % kWordsAtOnce == 0 ? kWordsAtOnce : words_of_block_;
            return seq({
                each(rows, panels,
                     [&](const Expr& r, const Expr& p, const Expr& l) {
                         const Expr zero =
                             bytes_ ? -(zero_at(panel + p, b, l) * x_sums_.at({row + r, b})) : real_const(0);
                         return own.set({r, p, l}, zero);
                     }),
                w_.loop(words_of_block_ / at_once,
                        [&](const Expr& some) {
                            return unrolled(at_once, [&](const Expr& word) {
                                return products(own, row, rows, panel, panels, b, some * at_once + word);
                            });
                        }),
                each(rows, panels,
                     [&](const Expr& r, const Expr& p, const Expr& l) {
                         Expr scale = scales_.at({panel + p, b, l});
                         if (bytes_) scale = scale * x_scales_.at({row + r, b});
                         return sum.add({r, p, l}, cast(own.at({r, p, l}), DType::f32) * scale);
                     }),
            });
        });
    }

    // Those of a word of each column.
    Stmt products(const Elements& own, const Expr& row, int64_t rows, const Expr& panel, int64_t panels, const Expr& b,
                  const Expr& word) {
        std::vector<Stmt> all;
        const Fn dot = w_.op().integer("signed_words") != 0 ? Fn::DotI8 : Fn::DotU8I8;
        for (int64_t i = 0; i < (bytes_ ? 2 : kNibblesOfWord); ++i)
            all.push_back(each(rows, panels, [&](const Expr& r, const Expr& p, const Expr& l) {
                const Expr w = words_.at({panel + p, b, word, l});
                const int64_t shift = bytes_ ? 4 * i : nibble_shift(i);
                const Expr shifted = shift ? bit(ExprKind::Shr, w, int_const(shift, DType::i32)) : w;
                const Expr taken = bit(ExprKind::BitAnd, shifted, int_const(bytes_ ? kLowHalves : 15, DType::i32));
                if (bytes_)
                    return own.add({r, p, l},
                                   call(dot, {taken, four_bytes(row + r, b, word * kNibblesOfWord + 4 * i)}));
                const Expr x = x_.at({row + r, b, word * kNibblesOfWord + i});
                return own.add({r, p, l}, x * (cast(taken, DType::f32) - zero_at(panel + p, b, l)));
            }));
        return seq(std::move(all));
    }

    // As one word: code generation reads them at once.
    Expr four_bytes(const Expr& row, const Expr& b, const Expr& first) const {
        Expr word;
        for (int64_t i = 0; i < 4; ++i) {
            Expr byte = cast(cast(x_.at({row, b, first + i}), DType::u8), DType::i32);
            if (i) byte = bit(ExprKind::Shl, byte, int_const(8 * i, DType::i32));
            word = i ? bit(ExprKind::BitOr, word, byte) : byte;
        }
        return word;
    }

    Expr zero_at(const Expr& panel, const Expr& b, const Expr& l) const {
        return one_zero_ ? zeros_.at({Expr(0), Expr(0), Expr(0)}) : zeros_.at({panel, b, l});
    }

    KernelWriter& w_;
    const bool bytes_, one_zero_;
    const int64_t n_, panels_;
    const int64_t tile_;  // rows times panels whose sums are in registers
    Expr m_, blocks_;
    int64_t words_of_block_ = 0, size_ = 0;
    Elements x_, words_, scales_, zeros_, x_scales_, x_sums_, y_;
};

}  // namespace

Stmt write_block_product(KernelWriter& w) { return BlockProduct(w).write(); }

}  // namespace tessera
