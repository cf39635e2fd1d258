#include "kernel/written/select_rows.h"

#include <algorithm>

#include "kernel/written/sort_places.h"

namespace tessera {
namespace {

constexpr int64_t kFewest = 64, kPiece = 1024;  // elements of a piece
constexpr int64_t kMostMerges = 24;             // of merges, where n is open

// Entries of all rows, in runs of `length` of which each is in order.
struct Runs {
    Entries entries;
    Expr count;  // in a row
    Expr length;
};

// Where an entry's place is n, there is none; it comes last.
class Selecting {
  public:
    Selecting(KernelWriter& w, const RowSelection& s) : w_(w), s_(s) {
        const auto n = s.n.as_int(), k = s.k.as_int();
        piece_ = n ? std::clamp(ceil_pow2(std::max<int64_t>(*n, 1)), kFewest, kPiece) : kPiece;
        kept_ = k ? ceil_pow2(std::clamp<int64_t>(*k, 1, piece_)) : piece_;
        place_type_ = n && *n < INT32_MAX ? DType::i32 : DType::i64;
    }

    Stmt write() {
        const auto n = s_.n.as_int();
        Source all{s_.n, [&](const Expr& row, const Expr& i) { return s_.element(row, i); },
                   [&](const Expr&, const Expr& i) { return place(i); }};
        if (n && *n <= piece_) return select_pieces(all, nullptr);
        if (n && s_.k.as_int() && kept_ <= piece_ / 2) return select_again(all);
        return merge_pieces(all);
    }

  private:
    struct Source {
        Expr count;  // in a row
        std::function<Expr(const Expr&row, const Expr&i)> value, place;
    };

    Expr place(const Expr& i) const { return cast(i, place_type_); }
    Expr nowhere() const { return place(s_.n); }
    Expr run_length() const {
        auto k = s_.k.as_int();
        return k ? std::min(*k, piece_) : piece_;
    }
    Expr comes_first(const Expr& value, const Expr& at, const Expr& other, const Expr& other_at) const {
        const Expr equal = logical_not(s_.better(other, value));
        const Expr in_order = logical_or(s_.better(value, other), logical_and(equal, lt(at, other_at)));
        return logical_and(lt(at, nowhere()), logical_or(ge(other_at, nowhere()), in_order));
    }

    Entries scratch(const Expr& in_row) {
        return {w_.scratch(s_.dtype, {s_.rows, in_row}), w_.scratch(place_type_, {s_.rows, in_row})};
    }

    // One launch: the first of each piece, in order, as runs or, of the only piece, as results.
    Stmt select_pieces(const Source& from, const Runs* to) {
        const Expr pieces = to ? to->count : Expr(1);
        return w_.blocks(s_.rows, pieces, [&](const Expr& row, const Expr& piece) {
            return w_.shared(s_.dtype, {Expr(piece_)}, [&](const Elements& values) {
                return w_.shared(place_type_, {Expr(piece_)}, [&](const Elements& places) {
                    here_ = {values, places};
                    std::vector<Stmt> steps = {bring(from, row, piece)};
                    sort_runs(steps);
                    keep_best(steps);
                    steps.push_back(give(row, piece, to));
                    return seq(std::move(steps));
                });
            });
        });
    }

    Stmt bring(const Source& from, const Expr& row, const Expr& piece) {
        const int64_t threads = piece_ / 2;
        return w_.threads(threads, [&](const Expr& t) {
            return w_.loop(
                2,
                [&](const Expr& half) {
                    const Expr at = half * threads + t, i = piece * piece_ + at, is_there = lt(i, from.count);
                    return seq({here_.values.set({at}, select(is_there, from.value(row, i), constant(0, s_.dtype))),
                                here_.places.set({at}, select(is_there, from.place(row, i), nowhere()))});
                },
                LoopKind::Unrolled);
        });
    }

    Stmt give(const Expr& row, const Expr& piece, const Runs* to) {
        const int64_t threads = piece_ / 2, most = run_length().as_int().value_or(piece_);
        return w_.threads(std::min(threads, most), [&](const Expr& t) {
            std::vector<Stmt> all;
            for (int64_t first = 0; first < most; first += threads) {
                const Expr e = first + t, value = here_.values.at({e}), at = here_.places.at({e});
                Stmt one = to ? seq({to->entries.values.set({row, piece * to->length + e}, value),
                                     to->entries.places.set({row, piece * to->length + e}, at)})
                              : s_.give(row, e, value, cast(at, DType::i64));
                all.push_back(if_then(lt(e, to ? to->length : s_.k), std::move(one)));
            }
            return seq(std::move(all));
        });
    }

    Expr first_of(const Expr& i, const Expr& j) const {
        return comes_first(here_.values.at({i}), here_.places.at({i}), here_.values.at({j}), here_.places.at({j}));
    }

    // The one that comes first to i, the other to j.
    Stmt exchange(const Expr& i, const Expr& j) {
        return if_then(first_of(j, i), w_.local(s_.dtype, {}, [&](const Elements& value) {
            return w_.local(place_type_, {}, [&](const Elements& at) {
                return seq({value.set({}, here_.values.at({i})), at.set({}, here_.places.at({i})),
                            here_.values.set({i}, here_.values.at({j})), here_.places.set({i}, here_.places.at({j})),
                            here_.values.set({j}, value.at({})), here_.places.set({j}, at.at({}))});
            });
        }));
    }

    // Runs of `length` that rise and fall, from multiples of `apart` on, each into order.
    void straighten(std::vector<Stmt>& steps, int64_t length, int64_t apart) {
        for (int64_t stride = length / 2; stride > 0; stride /= 2)
            steps.push_back(w_.threads(piece_ / apart * (length / 2), [&](const Expr& t) {
                const Expr u = mod(t, length / 2);
                const Expr i = floor_div(t, length / 2) * apart + u + floor_div(u, stride) * stride;
                return exchange(i, i + stride);
            }));
    }

    // The whole piece, in runs as long as what is kept. A run and the next, turned around, rise and fall.
    void sort_runs(std::vector<Stmt>& steps) {
        for (int64_t length = 2; length <= kept_; length *= 2) {
            const int64_t half = length / 2;
            steps.push_back(w_.threads(piece_ / 2, [&](const Expr& t) {
                const Expr first = floor_div(t, half) * length, r = mod(t, half);
                return exchange(first + r, first + (length - 1 - r));
            }));
            straighten(steps, half, half);
        }
    }

    // Of two runs the better half of their elements, until one run is left.
    void keep_best(std::vector<Stmt>& steps) {
        for (int64_t apart = 2 * kept_; apart <= piece_; apart *= 2) {
            steps.push_back(w_.threads(piece_ / apart * kept_, [&](const Expr& t) {
                const Expr first = floor_div(t, kept_) * apart, e = mod(t, kept_);
                const Expr i = first + e, j = first + (apart / 2 + kept_ - 1 - e);
                return if_then(first_of(j, i), seq({here_.values.set({i}, here_.values.at({j})),
                                                    here_.places.set({i}, here_.places.at({j}))}));
            }));
            straighten(steps, kept_, apart);
        }
    }

    // Few are kept of each piece: those are rows to select from again.
    Stmt select_again(const Source& all) {
        std::vector<Stmt> steps;
        const int64_t length = *run_length().as_int();
        auto pieces_of = [&](int64_t count) { return (count + piece_ - 1) / piece_; };
        Source from = all;
        for (int64_t count = *s_.n.as_int();;) {
            const int64_t pieces = pieces_of(count);
            if (pieces == 1) break;
            count = pieces * length;
            const Runs to{scratch(count), pieces, length};
            steps.push_back(select_pieces(from, &to));
            from = source_of(to.entries, count);
        }
        steps.push_back(select_pieces(from, nullptr));
        return seq(std::move(steps));
    }

    static Source source_of(const Entries& e, const Expr& count) {
        return {count,
                [e](const Expr& row, const Expr& i) {
                    return e.values.at({row, i});
                },
                [e](const Expr& row, const Expr& i) {
                    return e.places.at({row, i});
                }};
    }

    // Two runs become one, launch by launch. Where n is open there are as many launches as the largest needs, and the
    // last are empty.
    Stmt merge_pieces(const Source& all) {
        const auto n = s_.n.as_int(), k = s_.k.as_int();
        Runs from{scratch(ceil_div(s_.n, piece_) * (2 * piece_)), ceil_div(s_.n, piece_), run_length()};
        Entries other = scratch(ceil_div(s_.n, piece_) * (2 * piece_));
        const Entries even = from.entries, odd = other;
        std::vector<Stmt> steps = {select_pieces(all, &from)};
        int64_t width = piece_;
        Expr merges = 0;
        for (int64_t level = 0; n ? width < *n : level < kMostMerges; ++level, width *= 2) {
            const int64_t twice = 2 * *from.length.as_int();
            Runs to{other, ceil_div(s_.n, 2 * width), k ? std::min(twice, std::max<int64_t>(*k, 1)) : twice};
            steps.push_back(merge(from, to, lt(width, s_.n)));
            merges = merges + select(lt(width, s_.n), 1, 0);
            other = from.entries;
            from = std::move(to);
        }
        const Expr is_odd = eq(mod(merges, 2), 1);
        steps.push_back(w_.parallel(s_.rows * s_.k, [&](const Expr& i) {
            const Expr row = floor_div(i, s_.k), e = mod(i, s_.k);
            auto give_from = [&](const Entries& from) {
                return s_.give(row, e, from.values.at({row, e}), cast(from.places.at({row, e}), DType::i64));
            };
            return if_then(is_odd, give_from(odd), give_from(even));
        }));
        return seq(std::move(steps));
    }

    // Each element of a new run finds how many of those before it come from the first of the two.
    Stmt merge(const Runs& from, const Runs& to, const Expr& wanted) {
        const int64_t length = *from.length.as_int();
        const Expr in_row = to.count * to.length;
        return w_.parallel(select(wanted, s_.rows * in_row, 0), [&](const Expr& i) {
            const Expr row = floor_div(i, in_row), at = mod(i, in_row);
            const Expr run = floor_div(at, to.length), p = mod(at, to.length);
            const Expr first = run * (2 * length), second = first + length;
            const Expr in_second = select(lt(run * 2 + 1, from.count), length, 0);
            auto value = [&](const Expr& e) { return from.entries.values.at({row, e}); };
            auto where = [&](const Expr& e) { return from.entries.places.at({row, e}); };
            auto second_is_first = [&](const Expr& b, const Expr& a) {
                return comes_first(value(second + b), where(second + b), value(first + a), where(first + a));
            };
            auto put = [&](const Expr& v, const Expr& place) {
                return seq({to.entries.values.set({row, at}, v), to.entries.places.set({row, at}, place)});
            };
            return w_.local(DType::i64, {}, [&](const Elements& low) {
                return w_.local(DType::i64, {}, [&](const Elements& high) {
                    const Expr a = low.at({}), b = p - a, middle = floor_div(a + high.at({}), 2);
                    Stmt halve =
                        if_then(second_is_first(p - 1 - middle, middle), high.set({}, middle), low.set({}, middle + 1));
                    const int64_t rounds = std::bit_width(uint64_t(length)) + 1;
                    auto from_first = [&] { return put(value(first + a), where(first + a)); };
                    auto from_second = [&] { return put(value(second + b), where(second + b)); };
                    Stmt both = if_then(second_is_first(b, a), from_second(), from_first());
                    Stmt no_second = if_then(lt(a, length), from_first(), put(constant(0, s_.dtype), nowhere()));
                    return seq({low.set({}, max(p - in_second, 0)), high.set({}, min(p, length)),
                                w_.loop(rounds, [&](const Expr&) { return if_then(lt(a, high.at({})), halve); }),
                                if_then(lt(b, in_second), if_then(lt(a, length), both, from_second()), no_second)});
                });
            });
        });
    }

    KernelWriter& w_;
    const RowSelection& s_;
    int64_t piece_ = kPiece, kept_ = kPiece;  // elements of a piece, and of its run
    DType place_type_ = DType::i64;
    Entries here_;  // the block's
};

}  // namespace

Stmt select_rows(KernelWriter& w, const RowSelection& selection) { return Selecting(w, selection).write(); }

}  // namespace tessera
