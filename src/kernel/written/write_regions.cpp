// Pooling over regions of interest, whose number of elements is only known with the data: loops that run as far as an
// element says. As the reference does, all in f64.
#include "kernel/written/write_kernel.h"

namespace tessera {
namespace {

Expr real(double v) { return real_const(v); }
Expr real(const Expr& e) { return cast(e, DType::f64); }
Expr whole(const Expr& e) { return cast(e, DType::i64); }
Expr rounded_down(const Expr& e) { return call(Fn::Floor, {e}); }

// The larger, or the first where one is NaN.
Expr larger(const Expr& a, const Expr& b) { return select(lt(a, b), b, a); }

// Along one side of a region: where its first bin starts, how large a bin is, how many samples are taken of it.
class Bins {
  public:
    Bins(const OpView& op, const Expr& from, const Expr& to, int64_t count) {
        const double scale = op.real("spatial_scale");
        const bool half_pixel = op.string("coordinate_transformation_mode") == "half_pixel";
        Expr first = from * real(scale), last = to * real(scale);
        if (half_pixel) first = first - real(0.5), last = last - real(0.5);
        Expr extent = last - first;
        if (!half_pixel) extent = larger(extent, real(1));
        start_ = first;
        size_ = extent / real(double(count));
        const int64_t ratio = op.integer("sampling_ratio");
        samples_ = ratio > 0 ? Expr(ratio) : max(whole(call(Fn::Ceil, {size_})), 0);
    }
    Stmt keep(const Elements& reals, const Elements& counts, int64_t side) const {
        return seq({reals.set({Expr(side), Expr(0)}, start_), reals.set({Expr(side), Expr(1)}, size_),
                    counts.set({Expr(side)}, samples_)});
    }

  private:
    Expr start_, size_, samples_;
};

class RoiAlign {
  public:
    explicit RoiAlign(KernelWriter& w)
        : w_(w), average_(w.op().string("mode") == "avg"), shape_(w.op().shape(0)), y_shape_(w.op().out().shape) {}

    Stmt write() {
        x_ = w_.in(0), rois_ = w_.in(1), batch_ = w_.in(2), y_ = w_.out(0);
        const Expr rows = y_shape_[2];
        return w_.parallel(y_shape_[0] * rows, [&](const Expr& both) {
            Expr r = floor_div(both, rows), h = mod(both, rows);
            return w_.local(DType::f64, {Expr(2), Expr(2)}, [&](const Elements& bins) {
                bins_ = bins;
                return w_.local(DType::i64, {Expr(2)}, [&](const Elements& samples) {
                    samples_ = samples;
                    return seq({geometry(r), w_.loop(y_shape_[3], [&](const Expr& w) { return element(r, h, w); })});
                });
            });
        });
    }

  private:
    Stmt geometry(const Expr& r) {
        auto corner = [&](int64_t i) { return real(rois_.at({r, Expr(i)})); };
        return seq({Bins(w_.op(), corner(1), corner(3), *y_shape_[2].as_int()).keep(bins_, samples_, 0),
                    Bins(w_.op(), corner(0), corner(2), *y_shape_[3].as_int()).keep(bins_, samples_, 1)});
    }

    Expr point(int64_t side, const Expr& bin, const Expr& sample) const {
        Expr start = bins_.at({Expr(side), Expr(0)}), size = bins_.at({Expr(side), Expr(1)});
        return start + real(bin) * size + (real(sample) + real(0.5)) * size / real(samples_.at({Expr(side)}));
    }

    // All channels of one place, sample by sample.
    Stmt element(const Expr& r, const Expr& h, const Expr& w) {
        const Expr channels = y_shape_[1];
        return w_.local(DType::f64, {channels}, [&](const Elements& total) {
            Expr count = samples_.at({Expr(0)}) * samples_.at({Expr(1)});
            Expr start = average_ ? real(0) : infinity(DType::f64, true);
            return seq({
                w_.loop(channels, [&](const Expr& c) { return total.set({c}, start); }),
                w_.loop(samples_.at({Expr(0)}),
                        [&](const Expr& i) {
                            return w_.loop(samples_.at({Expr(1)}), [&](const Expr& j) {
                                return sample(r, point(0, h, i), point(1, w, j), total);
                            });
                        }),
                w_.loop(channels,
                        [&](const Expr& c) {
                            Expr v = total.at({c});
                            Expr most = select(logical_and(call(Fn::IsInf, {v}), lt(v, real(0))), real(0), v);
                            return y_.set({r, c, h, w}, average_ ? v / real(max(count, 1)) : most);
                        }),
            });
        });
    }

    // The four elements around a point, by weight; weights of 0 where it is off the image.
    Stmt sample(const Expr& r, const Expr& y, const Expr& x, const Elements& total) {
        return w_.local(DType::i64, {Expr(2), Expr(2)}, [&](const Elements& place) {
            return w_.local(DType::f64, {Expr(2), Expr(2)}, [&](const Elements& weight) {
                Expr height = shape_[2], width = shape_[3];
                Expr inside = logical_and(logical_and(ge(y, real(-1)), le(y, real(height))),
                                          logical_and(ge(x, real(-1)), le(x, real(width))));
                Stmt set =
                    if_then(inside, seq({around(place, weight, 0, y, height), around(place, weight, 1, x, width)}),
                            seq({nowhere(place, weight, 0), nowhere(place, weight, 1)}));
                Expr image = clamp(batch_.at({r}), 0, shape_[0] - 1);
                Stmt add = w_.loop(y_shape_[1], [&](const Expr& c) {
                    std::vector<Stmt> all;
                    for (int64_t i : {0, 1})
                        for (int64_t j : {0, 1}) {
                            Expr at_y = clamp(place.at({Expr(0), Expr(i)}), 0, height - 1);
                            Expr at_x = clamp(place.at({Expr(1), Expr(j)}), 0, width - 1);
                            Expr v = weight.at({Expr(0), Expr(i)}) * weight.at({Expr(1), Expr(j)}) *
                                     real(x_.at({image, c, at_y, at_x}));
                            Expr old = total.at({c});
                            all.push_back(total.set({c}, average_ ? old + v : larger(old, v)));
                        }
                    return seq(std::move(all));
                });
                return seq({set, add});
            });
        });
    }

    static Stmt nowhere(const Elements& place, const Elements& weight, int64_t side) {
        std::vector<Stmt> all;
        for (int64_t i : {0, 1}) {
            all.push_back(place.set({Expr(side), Expr(i)}, Expr(0)));
            all.push_back(weight.set({Expr(side), Expr(i)}, real(0)));
        }
        return seq(std::move(all));
    }

    static Stmt around(const Elements& place, const Elements& weight, int64_t side, const Expr& at, const Expr& size) {
        Expr most = real(size - 1), inside = select(lt(at, real(0)), real(0), select(gt(at, most), most, at));
        Expr low = place.at({Expr(side), Expr(0)}), share = weight.at({Expr(side), Expr(1)});
        return seq({
            place.set({Expr(side), Expr(0)}, whole(inside)),
            place.set({Expr(side), Expr(1)}, min(low + 1, size - 1)),
            weight.set({Expr(side), Expr(1)}, inside - real(low)),
            weight.set({Expr(side), Expr(0)}, real(1) - share),
        });
    }

    KernelWriter& w_;
    const bool average_;
    const Shape shape_, y_shape_;
    Elements x_, rois_, batch_, y_, bins_, samples_;
};

Stmt write_roi_align(KernelWriter& w) { return RoiAlign(w).write(); }

// A corner of a region as an element's place: halves away from zero.
Expr corner(const Expr& at, double scale) {
    Expr x = at * real(scale), cut = call(Fn::Trunc, {x}), off = call(Fn::Abs, {x - cut});
    Expr near = select(ge(off, real(0.5)), cut + call(Fn::Sign, {x}), cut);
    Expr finite = logical_not(logical_or(call(Fn::IsNan, {near}), call(Fn::IsInf, {near})));
    Expr clamped = select(lt(near, real(-1e9)), real(-1e9), select(gt(near, real(1e9)), real(1e9), near));
    return select(finite, whole(clamped), Expr(0));
}

// The largest element of each bin of a region whose corners are elements; 0 where a bin is empty.
Stmt write_max_roi_pool(KernelWriter& w) {
    const OpView& op = w.op();
    const double scale = op.real("spatial_scale");
    const Shape x_shape = op.shape(0), y_shape = op.out().shape;
    Elements x = w.in(0), rois = w.in(1), y = w.out(0);
    // Elements [first, first + count) of bin b along an axis, into entries 2 * side and 2 * side + 1.
    auto edges = [&](const Elements& to, int64_t side, const Expr& r, const Expr& b) {
        auto at = [&](int64_t i) { return corner(real(rois.at({r, Expr(i)})), scale); };
        Expr from = at(side == 0 ? 2 : 1), until = at(side == 0 ? 4 : 3);
        Expr extent = real(max(until - from + 1, 1)) / real(y_shape[side + 2]);
        auto edge = [&](const Expr& e) { return clamp(from + whole(e), 0, x_shape[side + 2]); };
        Expr first = edge(rounded_down(real(b) * extent)), last = edge(call(Fn::Ceil, {real(b + 1) * extent}));
        return seq({to.set({Expr(2 * side)}, first), to.set({Expr(2 * side + 1)}, last - first)});
    };
    return w.parallel(y_shape[0] * y_shape[1], [&](const Expr& both) {
        Expr r = floor_div(both, y_shape[1]), c = mod(both, y_shape[1]);
        Expr image = clamp(whole(real(rois.at({r, Expr(0)}))), 0, x_shape[0] - 1);
        auto element = [&](const Expr& h, const Expr& v) {
            return w.local(DType::i64, {Expr(4)}, [&](const Elements& box) {
                return w.local(DType::f64, {}, [&](const Elements& most) {
                    Expr rows = box.at({Expr(1)}), columns = box.at({Expr(3)});
                    Expr some = logical_and(gt(rows, 0), gt(columns, 0));
                    return seq({
                        edges(box, 0, r, h),
                        edges(box, 1, r, v),
                        most.set({}, infinity(DType::f64, true)),
                        w.loop(rows,
                               [&](const Expr& i) {
                                   return w.loop(columns, [&](const Expr& j) {
                                       Expr at_y = clamp(box.at({Expr(0)}) + i, 0, x_shape[2] - 1);
                                       Expr at_x = clamp(box.at({Expr(2)}) + j, 0, x_shape[3] - 1);
                                       return most.set({}, larger(most.at({}), real(x.at({image, c, at_y, at_x}))));
                                   });
                               }),
                        y.set({r, c, h, v}, select(some, most.at({}), real(0))),
                    });
                });
            });
        };
        return w.loop(y_shape[2],
                      [&](const Expr& h) { return w.loop(y_shape[3], [&](const Expr& v) { return element(h, v); }); });
    });
}

}  // namespace

std::vector<KernelWriting> region_kernels() {
    return {{"roi_align", write_roi_align, {1, 2}}, {"max_roi_pool", write_max_roi_pool, {1}}};
}

}  // namespace tessera
