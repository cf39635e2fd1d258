#include "kernel/written/scan_rows.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr int64_t kWarp = 32, kMostThreads = 256;
constexpr int64_t kMostPieces = 1024;

class Scanning {
  public:
    Scanning(KernelWriter& w, const RowScan& scan) : w_(w), scan_(scan) {
        const auto n = scan.n.as_int(), rows = scan.rows.as_int();
        if (n && *n <= kWarp * own_)
            threads_ = kWarp, own_ = ceil_pow2(std::max<int64_t>(1, (*n + kWarp - 1) / kWarp));
        else if (n)
            threads_ = std::min(kMostThreads, ceil_pow2((*n + own_ - 1) / own_));
        else
            own_ = 16;
        tile_ = threads_ * own_;
        pieces_ = ceil_div(scan.n, tile_);
        if (!n) return;
        const int64_t most =
            rows ? std::clamp((w.how().busy + *rows - 1) / std::max<int64_t>(*rows, 1), int64_t{1}, kMostPieces)
                 : kMostPieces;
        tiles_ = std::max<int64_t>(1, (*n + tile_ * most - 1) / (tile_ * most));
        pieces_ = Expr(std::max<int64_t>(1, (*n + tile_ * tiles_ - 1) / (tile_ * tiles_)));
    }

    Stmt write() {
        const bool several = !pieces_.is_int(1);
        if (several) totals_ = w_.scratch(scan_.dtype, {scan_.rows, pieces_});
        Stmt scanned = w_.blocks(scan_.rows, pieces_, [&](const Expr& row, const Expr& piece) {
            return in_block([&] { return seq({before(row, piece, several), tiles(row, piece)}); });
        });
        return several ? seq({add_up_pieces(), scanned}) : scanned;
    }

  private:
    using Made = std::function<Stmt()>;

    Expr with(const Expr& a, const Expr& b) const { return scan_.product ? a * b : a + b; }
    Expr nothing() const { return constant(scan_.product ? 1 : 0, scan_.dtype); }
    Expr element(const Expr& row, const Expr& i) const {
        return select(lt(i, scan_.n), scan_.element(row, i), nothing());
    }
    Stmt unrolled(int64_t count, const KernelWriter::Body& body) { return w_.loop(count, body, LoopKind::Unrolled); }
    // The first element of a tile.
    Expr first_of(const Expr& piece, const Expr& tile) const { return (piece * tiles_ + tile) * tile_; }

    Stmt in_block(const Made& body) {
        return w_.shared(scan_.dtype, {Expr(2), Expr(threads_)}, [&](const Elements& sums) {
            sums_ = sums;
            return w_.shared(scan_.dtype, {Expr(1)}, [&](const Elements& carry) {
                carry_ = carry;
                // One element more in a row, so that threads do not use one bank of memory.
                return w_.shared(scan_.dtype, {Expr(threads_), Expr(own_ + 1)}, [&](const Elements& kept) {
                    kept_ = kept;
                    return body();
                });
            });
        });
    }

    // Adds up `sums_[0]` of all threads; the first has the result.
    Stmt fold() {
        std::vector<Stmt> steps;
        for (int64_t half = threads_ / 2; half > 0; half /= 2)
            steps.push_back(w_.threads(half, [&](const Expr& t) {
                return sums_.set({Expr(0), t}, with(sums_.at({Expr(0), t}), sums_.at({Expr(0), t + half})));
            }));
        return seq(std::move(steps));
    }

    Stmt add_up_pieces() {
        return w_.blocks(scan_.rows, pieces_, [&](const Expr& row, const Expr& piece) {
            return w_.shared(scan_.dtype, {Expr(2), Expr(threads_)}, [&](const Elements& sums) {
                sums_ = sums;
                Stmt own = w_.threads(threads_, [&](const Expr& t) {
                    return w_.local(scan_.dtype, {}, [&](const Elements& total) {
                        Stmt add = w_.loop(tiles_, [&](const Expr& tile) {
                            return unrolled(own_, [&](const Expr& e) {
                                Expr next = element(row, first_of(piece, tile) + e * threads_ + t);
                                return total.set({}, with(total.at({}), next));
                            });
                        });
                        return seq({total.set({}, nothing()), add, sums_.set({Expr(0), t}, total.at({}))});
                    });
                });
                return seq({own, fold(), totals_.set({row, piece}, sums_.at({Expr(0), Expr(0)}))});
            });
        });
    }

    // What the pieces before this one add up to.
    Stmt before(const Expr& row, const Expr& piece, bool several) {
        if (!several) return carry_.set({Expr(0)}, nothing());
        Stmt own = w_.threads(threads_, [&](const Expr& t) {
            return w_.local(scan_.dtype, {}, [&](const Elements& total) {
                Stmt add = w_.loop(ceil_div(piece, threads_), [&](const Expr& k) {
                    Expr p = k * threads_ + t;
                    return if_then(lt(p, piece), total.set({}, with(total.at({}), totals_.at({row, p}))));
                });
                return seq({total.set({}, nothing()), add, sums_.set({Expr(0), t}, total.at({}))});
            });
        });
        return seq({own, fold(), carry_.set({Expr(0)}, sums_.at({Expr(0), Expr(0)}))});
    }

    Stmt tiles(const Expr& row, const Expr& piece) {
        if (tiles_ == 1) return one_tile(row, first_of(piece, 0), true);
        return w_.loop(tiles_, [&](const Expr& tile) { return one_tile(row, first_of(piece, tile), false); });
    }

    // Places in shared memory of element i of a tile, such that a thread's own lie side by side.
    std::vector<Expr> place(const Expr& i) const { return {floor_div(i, own_), mod(i, own_)}; }

    Stmt one_tile(const Expr& row, const Expr& first, bool last) {
        std::vector<Stmt> steps;
        steps.push_back(w_.threads(threads_, [&](const Expr& t) {
            return unrolled(own_, [&](const Expr& e) {
                Expr i = e * threads_ + t;
                return kept_.set(place(i), element(row, first + i));
            });
        }));
        steps.push_back(w_.threads(threads_, [&](const Expr& t) {
            return w_.local(scan_.dtype, {}, [&](const Elements& total) {
                return seq({total.set({}, nothing()),
                            unrolled(own_,
                                     [&](const Expr& e) {
                                         return total.set({}, with(total.at({}), kept_.at({t, e})));
                                     }),
                            sums_.set({Expr(0), t}, total.at({}))});
            });
        }));
        int64_t from = 0;
        for (int64_t step = 1; step < threads_; step *= 2, from = 1 - from)
            steps.push_back(w_.threads(threads_, [&](const Expr& t) {
                Expr here = sums_.at({Expr(from), t});
                Expr both = select(ge(t, step), with(sums_.at({Expr(from), t - step}), here), here);
                return sums_.set({Expr(1 - from), t}, both);
            }));
        steps.push_back(w_.threads(threads_, [&](const Expr& t) { return own_elements(t, from); }));
        steps.push_back(w_.threads(threads_, [&](const Expr& t) {
            return unrolled(own_, [&](const Expr& e) {
                Expr i = e * threads_ + t;
                return if_then(lt(first + i, scan_.n), scan_.keep(row, first + i, kept_.at(place(i))));
            });
        }));
        if (!last)
            steps.push_back(
                carry_.set({Expr(0)}, with(carry_.at({Expr(0)}), sums_.at({Expr(from), Expr(threads_ - 1)}))));
        return seq(std::move(steps));
    }

    Stmt own_elements(const Expr& t, int64_t from) {
        return w_.local(scan_.dtype, {}, [&](const Elements& total) {
            return w_.local(scan_.dtype, {}, [&](const Elements& here) {
                Expr before = select(gt(t, 0), sums_.at({Expr(from), t - 1}), nothing());
                Stmt each = unrolled(own_, [&](const Expr& e) {
                    Stmt grow = total.set({}, with(total.at({}), here.at({}))), keep = kept_.set({t, e}, total.at({}));
                    return seq(
                        {here.set({}, kept_.at({t, e})), scan_.exclusive ? keep : grow, scan_.exclusive ? grow : keep});
                });
                return seq({total.set({}, with(carry_.at({Expr(0)}), before)), each});
            });
        });
    }

    KernelWriter& w_;
    const RowScan& scan_;
    int64_t threads_ = kMostThreads, own_ = 8;  // elements of a thread in a tile
    int64_t tile_ = 0, tiles_ = 1;              // elements of a tile, tiles of a piece
    Expr pieces_;
    Elements totals_, sums_, carry_, kept_;
};

}  // namespace

Stmt scan_rows(KernelWriter& w, const RowScan& scan) { return Scanning(w, scan).write(); }

}  // namespace tessera
