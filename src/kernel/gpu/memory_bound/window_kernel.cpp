#include "kernel/gpu/memory_bound/window_kernel.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernel/analyse/inline_maps.h"
#include "kernel/gpu/contraction_builder.h"
#include "kernel/gpu/device_size.h"
#include "kernel/gpu/gpu_kinds.h"
#include "kernel/gpu/gpu_loops.h"
#include "kernel/gpu/memory_bound/row_stages.h"

namespace tessera {
namespace {

constexpr int64_t kNeighbours = 8;  // outputs of a thread along x
constexpr int64_t kMostLines = 4;   // and along y
constexpr int64_t kChannelsAtOnce = 16;
constexpr int64_t kWindowThreads = 256, kMostWindowThreads = 512;
constexpr int64_t kWidestTile = 64;             // along x
constexpr int64_t kMostWindowBytes = 64 << 10;  // of shared memory
constexpr int64_t kMostUnrolledTaps = 8, kMostTapsAlongX = 32, kFewTaps = 16;
constexpr int64_t kVectorBytes = 16;
constexpr int64_t kLoadsInFlight = 16;

int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

// How a tile of the output is shared.
struct WindowTile {
    int64_t channels = 1, lines = 1;  // channels of a block; rows of a thread
    int64_t across = 1, down = 1;     // threads along x and y
    int64_t pitch = 0, plane = 0;     // elements between rows and channels of the image in shared memory
    bool channels_inside = false;     // channels are neighbours in the output
    int64_t width() const { return across * kNeighbours; }
    int64_t height() const { return down * lines; }
    int64_t threads() const { return channels * across * down; }
};

class WindowBuilder {
  public:
    WindowBuilder(const Compute& compute, SlidingWindow window, size_t channel, const WindowTile& tile)
        : c_(compute), w_(std::move(window)), channel_(channel), t_(tile) {
        kernel_.name = c_.name;
        kernel_.symbols = c_.symbols;
        kernel_.buffers.assign(c_.buffers.begin(), c_.buffers.begin() + std::ptrdiff_t(c_.params));
        kernel_.params = c_.params;
        for (size_t i = 0; i < w_.sum.axes.size(); ++i)
            if (i != w_.x.axis && i != channel_ && (!w_.has_y || i != w_.y.axis)) others_.push_back(i);
    }

    std::optional<Kernel> make() {
        if (!find_taps()) return {};
        const Expr across = ceil_div(w_.x.size, t_.width()), down = ceil_div(w_.y.size, t_.height());
        const Expr channels = ceil_div(extent(channel_), t_.channels);
        Expr rest = 1;
        for (size_t i : others_) rest = rest * extent(i);
        tile_ = loop_var("tile", across * down), part_ = loop_var("channels", channels),
        other_ = loop_var("other", rest);
        x0_ = mod(tile_, across) * t_.width(), y0_ = floor_div(tile_, across) * t_.height();
        c0_ = part_ * t_.channels;

        const Buffer& from = c_.buffers[size_t(w_.image)];
        image_ = add("image", from.dtype, {t_.channels, rows(), t_.pitch}, Scope::Shared);
        kernel_.buffers[size_t(image_)].strides = {t_.plane, t_.pitch, 1};
        std::vector<Stmt> steps{bring_image()};
        for (size_t i = 0; i < taps_.size(); ++i) steps.push_back(bring_taps(i));
        std::vector<int> shared{image_};
        shared.insert(shared.end(), tap_buffers_.begin(), tap_buffers_.end());
        if (t_.channels_inside) {
            sums_ = add("sums", sum_dtype(), {t_.height(), t_.width(), t_.channels}, Scope::Shared);
            shared.push_back(sums_);
        }
        steps.push_back(add_up());
        if (t_.channels_inside) steps.push_back(write_channels());
        Stmt body = seq(std::move(steps));
        for (int b : shared) body = alloc(b, std::move(body));
        body = loop_over(tile_, across * down, LoopKind::Bound, std::move(body), "block.x");
        body = loop_over(part_, channels, LoopKind::Bound, std::move(body), "block.y");
        kernel_.body = loop_over(other_, rest, LoopKind::Bound, std::move(body), "block.z");
        return std::move(kernel_);
    }

  private:
    struct Thread {
        Expr channel, across, down, number;
    };

    const Expr& extent(size_t axis) const { return w_.sum.axes[axis].extent; }
    DType sum_dtype() const { return c_.buffers[size_t(w_.sum.buffer)].dtype; }
    int64_t rows() const { return w_.y.reach(t_.height()); }

    int add(const std::string& name, DType dtype, std::vector<Expr> shape, Scope scope) {
        kernel_.buffers.push_back({.name = name, .dtype = dtype, .shape = std::move(shape), .scope = scope});
        return int(kernel_.buffers.size()) - 1;
    }
    Expr var(const std::string& name, const Expr& extent) {
        return loop_var(fmt::format("{}{}", name, number_++), extent);
    }

    template <typename F>
    Stmt in_threads(const F& body) {
        const Expr number = var("thread", t_.threads());
        Thread t{.number = number};
        if (t_.channels_inside) {
            t.channel = mod(number, t_.channels), t.across = mod(floor_div(number, t_.channels), t_.across);
            t.down = floor_div(number, t_.channels * t_.across);
        } else {
            t.across = mod(number, t_.across), t.down = mod(floor_div(number, t_.across), t_.down);
            t.channel = floor_div(number, t_.across * t_.down);
        }
        return loop_over(number, t_.threads(), LoopKind::Bound, body(t), "thread.x");
    }

    // The place of a sum, by axis.
    Bindings place(const Expr& channel, const Expr& y, const Expr& x) const {
        Bindings values;
        const auto set = [&](size_t axis, const Expr& at) {
            for (const Stage* stage : {&w_.sum, &w_.out})
                values.insert_or_assign(stage->axes[axis].var.node().name, at);
        };
        set(channel_, channel), set(w_.x.axis, x);
        if (w_.has_y) set(w_.y.axis, y);
        Expr left = other_;
        for (size_t i = others_.size(); i-- > 0;) {
            set(others_[i], i == 0 ? left : mod(left, extent(others_[i])));
            left = floor_div(left, extent(others_[i]));
        }
        return values;
    }

    // Elements `outer` by `inner`, of which each thread has one place along the inner and every so many of the outer.
    // What a thread loads comes before what it stores. `value` is asked for elements that are not there too.
    template <typename L, typename S>
    Stmt copied(const Thread& t, int64_t outer, int64_t inner, DType dtype, int pending, const L& value,
                const S& stored) {
        const int64_t threads = t_.threads(), beside = std::max<int64_t>(1, threads / inner);
        const int64_t in_flight = std::min(kLoadsInFlight, (outer + beside - 1) / beside);
        const int64_t turns = (outer + beside * in_flight - 1) / (beside * in_flight);
        const bool whole = turns * beside * in_flight == outer;
        // Where there are fewer threads than inner elements, each has several of those.
        const int64_t pieces = beside > 1 ? 1 : (inner + threads - 1) / threads;
        const Expr turn = var("turn", turns), piece = pieces > 1 ? var("piece", pieces) : Expr(0);
        const Expr number = piece * threads + t.number, at = mod(number, inner);
        const auto each = [&](const auto& one) {
            const Expr in = var("in", in_flight), o = (turn * in_flight + in) * beside + floor_div(number, inner);
            return loop_over(in, in_flight, LoopKind::Unrolled, one(o, in, whole ? Expr() : lt(o, outer)));
        };
        Stmt body = seq({each([&](const Expr& o, const Expr& in, const Expr& there) {
                             return store(pending, {in}, value(o, at, there));
                         }),
                         each([&](const Expr& o, const Expr& in, const Expr& there) {
                             Stmt kept = stored(o, at, load(pending, dtype, {in}));
                             return whole ? kept : if_then(there, std::move(kept));
                         })});
        body = loop_over(turn, turns, LoopKind::Serial, std::move(body));
        if (pieces * threads != beside * inner) body = if_then(lt(number, beside * inner), std::move(body));
        if (pieces > 1) body = loop_over(piece, pieces, LoopKind::Serial, std::move(body));
        return alloc(pending, std::move(body));
    }

    static Expr both(const Expr& a, const Expr& b) { return a.dtype() == DType::boolean ? logical_and(a, b) : b; }

    // The part of the image, with what is beside it.
    Stmt bring_image() {
        const Buffer& from = c_.buffers[size_t(w_.image)];
        const int64_t reach = w_.x.reach(t_.width());
        const int pending = add("pending", from.dtype, {kLoadsInFlight}, Scope::Register);
        struct At {
            Expr channel, y, x;
        };
        // Neighbouring threads read neighbours in memory.
        const auto at = [&](const Expr& outer, const Expr& inner) -> At {
            if (w_.image_along_x) return {floor_div(outer, rows()), mod(outer, rows()), inner};
            return {inner, floor_div(outer, reach), mod(outer, reach)};
        };
        const int64_t inner = w_.image_along_x ? reach : t_.channels;
        const int64_t outer = rows() * (w_.image_along_x ? t_.channels : reach);
        const Expr padding = cast(w_.fill, from.dtype);
        return in_threads([&](const Thread& t) {
            return copied(
                t, outer, inner, from.dtype, pending,
                [&](const Expr& o, const Expr& i, const Expr& there) {
                    const At p = at(o, i);
                    const Expr channel = c0_ + p.channel, y = y0_ * w_.y.every + p.y + w_.y.from,
                               x = x0_ * w_.x.every + p.x + w_.x.from;
                    const Bindings values = place(channel, 0, 0);
                    std::vector<Expr> where(from.shape.size(), 0);
                    for (size_t d = 0; d < w_.planes.size(); ++d)
                        where[w_.plane_dims[d]] = substitute(w_.sum.axes[w_.planes[d]].var, values) + w_.plane_from[d];
                    where[w_.x.dim] = x;
                    Expr inside = both(there, logical_and(ge(x, 0), lt(x, from.shape[w_.x.dim])));
                    if (w_.has_y) {
                        where[w_.y.dim] = y;
                        inside = logical_and(inside, logical_and(ge(y, 0), lt(y, from.shape[w_.y.dim])));
                    }
                    if (!divides(t_.channels, extent(channel_)))
                        inside = logical_and(inside, lt(channel, extent(channel_)));
                    return select(inside, load(w_.image, from.dtype, std::move(where)), padding);
                },
                [&](const Expr& o, const Expr& i, const Expr& value) {
                    const At p = at(o, i);
                    return store(image_, {p.channel, p.y, p.x}, value);
                });
        });
    }

    // What else the sum reads for each tap: the same for all places of a channel.
    bool find_taps() {
        bool ok = true;
        const std::function<void(const Expr&)> look = [&](const Expr& e) {
            if (e == w_.operand || !e.node().reads) return;
            if (reads_image(e)) {
                ok &= !e.is(ExprKind::Load);
                for (const Expr& a : e.args()) look(a);
                return;
            }
            for (int slot : loaded_slots(e)) ok &= size_t(slot) < c_.params;
            ok &= !depends_on(e, w_.sum.axes[w_.x.axis].var);
            ok &= !w_.has_y || !depends_on(e, w_.sum.axes[w_.y.axis].var);
            if (std::find(taps_.begin(), taps_.end(), e) == taps_.end()) taps_.push_back(e);
        };
        look(w_.sum.value);
        for (const Sliding* s : {&w_.x, &w_.y})
            if (s == &w_.x || w_.has_y) ok &= !used_beside(s->axis);
        return ok;
    }

    bool reads_image(const Expr& e) const {
        const std::vector<int> slots = loaded_slots(e);
        return std::find(slots.begin(), slots.end(), w_.image) != slots.end();
    }

    // Whether the value depends on an axis other than by what is read of the image.
    bool used_beside(size_t axis) const {
        bool found = false;
        const std::function<void(const Expr&)> look = [&](const Expr& e) {
            if (e == w_.operand || e.is(ExprKind::Load)) return;
            found |= e == w_.sum.axes[axis].var;
            for (const Expr& a : e.args()) look(a);
        };
        look(w_.sum.value);
        return found;
    }

    Bindings tap(const Expr& y, const Expr& x) const {
        Bindings values;
        if (w_.y.tap) values.insert_or_assign(w_.sum.reduce[*w_.y.tap].var.node().name, y);
        if (w_.x.tap) values.insert_or_assign(w_.sum.reduce[*w_.x.tap].var.node().name, x);
        return values;
    }

    Stmt bring_taps(size_t which) {
        const Expr read = taps_[which];
        const int64_t all = w_.y.taps * w_.x.taps;
        // An odd number of words between channels: neighbouring channels are in different banks.
        const int to =
            add(fmt::format("taps{}", which), read.dtype(), {t_.channels, all + (all + 1) % 2}, Scope::Shared);
        const int pending = add(fmt::format("pending_taps{}", which), read.dtype(), {kLoadsInFlight}, Scope::Register);
        tap_buffers_.push_back(to);
        return in_threads([&](const Thread& t) {
            return copied(
                t, t_.channels, all, read.dtype(), pending,
                [&](const Expr& o, const Expr& i, const Expr& there) {
                    const Expr channel = c0_ + o;
                    Bindings values = place(channel, 0, 0);
                    for (const auto& [name, at] : tap(floor_div(i, w_.x.taps), mod(i, w_.x.taps)))
                        values.insert_or_assign(name, at);
                    Expr value = substitute(read, values), inside = there;
                    if (!divides(t_.channels, extent(channel_))) inside = both(there, lt(channel, extent(channel_)));
                    return inside.dtype() == DType::boolean ? select(inside, value, constant(0, read.dtype())) : value;
                },
                [&](const Expr& o, const Expr& i, const Expr& value) {
                    return store(to, {o, i}, value);
                });
        });
    }

    // One output's part of a row of the window, for all neighbours of a thread.
    Stmt add_line(const Thread& t, int sums, int line, int64_t own, const Expr& tap_y) {
        const Expr tap_x = var("tap", w_.x.taps), n = var("n", kNeighbours);
        const DType read = w_.operand.dtype();
        Bindings values = place(c0_ + t.channel, 0, 0);
        for (const auto& [name, at] : tap(tap_y, tap_x)) values.insert_or_assign(name, at);
        const std::function<Expr(const Expr&)> made = [&](const Expr& e) -> Expr {
            if (e == w_.operand) return load(line, read, {n * w_.x.every + tap_x * std::max<int64_t>(w_.x.further, 1)});
            for (size_t i = 0; i < taps_.size(); ++i)
                if (e == taps_[i]) return load(tap_buffers_[i], e.dtype(), {t.channel, tap_y * w_.x.taps + tap_x});
            if (e.args().empty() || e.is(ExprKind::Load)) return substitute(e, values);
            std::vector<Expr> args;
            for (const Expr& a : e.args()) args.push_back(made(a));
            return with_args(e, std::move(args));
        };
        Stmt one = store(sums, {own * kNeighbours + n}, made(w_.sum.value), w_.sum.combine);
        one = loop_over(n, kNeighbours, LoopKind::Unrolled, std::move(one));
        return loop_over(tap_x, w_.x.taps, LoopKind::Unrolled, std::move(one));
    }

    Stmt add_up() {
        const DType dtype = sum_dtype(), read = w_.operand.dtype(), kept = c_.buffers[size_t(w_.image)].dtype;
        const int64_t unit = kVectorBytes / int64_t(dtype_bytes(kept));
        const int64_t reach = round_up(w_.x.reach(kNeighbours), unit), all = t_.lines * kNeighbours;
        const int sums = add("own_sums", dtype, {all}, Scope::Register),
                  line = add("line", read, {reach}, Scope::Register);
        return in_threads([&](const Thread& t) {
            const auto bring_line = [&](const Expr& row) {
                const Expr vector = var("vector", reach / unit), lane = var("lane", unit);
                Expr value = load(image_, kept,
                                  {t.channel, t.down * (t_.lines * w_.y.every) + row,
                                   t.across * (kNeighbours * w_.x.every) + vector * unit + lane});
                Stmt one = store(line, {vector * unit + lane}, read == kept ? value : cast(value, read));
                return loop_over(vector, reach / unit, LoopKind::Unrolled,
                                 loop_over(lane, unit, LoopKind::Vector, std::move(one)));
            };
            const Expr clear = var("clear", all);
            std::vector<Stmt> steps{
                loop_over(clear, all, LoopKind::Unrolled, store(sums, {clear}, identity(w_.sum.combine, dtype)))};
            if (t_.lines == 1 && w_.y.taps > kMostUnrolledTaps) {
                const Expr tap_y = var("row", w_.y.taps);
                steps.push_back(loop_over(tap_y, w_.y.taps, LoopKind::Serial,
                                          seq({bring_line(tap_y * w_.y.further), add_line(t, sums, line, 0, tap_y)})));
            } else {
                for (int64_t row = 0; row < w_.y.reach(t_.lines); ++row) {
                    std::vector<Stmt> uses;
                    for (int64_t own = 0; own < t_.lines; ++own)
                        for (int64_t k = 0; k < w_.y.taps; ++k)
                            if (own * w_.y.every + k * w_.y.further == row)
                                uses.push_back(add_line(t, sums, line, own, k));
                    if (uses.empty()) continue;
                    steps.push_back(bring_line(row));
                    steps.insert(steps.end(), uses.begin(), uses.end());
                }
            }
            steps.push_back(t_.channels_inside ? keep_sums(t, sums) : write_lines(t, sums));
            return alloc(sums, alloc(line, seq(std::move(steps))));
        });
    }

    Stmt keep_sums(const Thread& t, int sums) {
        const Expr own = var("own", t_.lines), n = var("n", kNeighbours);
        Stmt one = store(sums_, {t.down * t_.lines + own, t.across * kNeighbours + n, t.channel},
                         load(sums, sum_dtype(), {own * kNeighbours + n}));
        return loop_over(own, t_.lines, LoopKind::Unrolled, loop_over(n, kNeighbours, LoopKind::Unrolled, one));
    }

    // What is made of a sum, and where that goes.
    Stmt finished(const Bindings& values, const Expr& sum) const {
        const bool alone = w_.out.buffer == w_.sum.buffer;
        Expr value = alone ? sum : map_loads(substitute(w_.out.value, values), [&](const Expr& x) {
            return x.node().slot == w_.sum.buffer ? sum : x;
        });
        std::vector<Expr> where;
        for (const Expr& index : w_.out.store) where.push_back(substitute(index, values));
        return store(w_.out.buffer, std::move(where), std::move(value));
    }

    Expr is_there(const Expr& channel, const Expr& y, const Expr& x) const {
        Expr there = int_const(1, DType::boolean);
        if (!divides(t_.channels, extent(channel_))) there = logical_and(there, lt(channel, extent(channel_)));
        if (w_.y.size % t_.height()) there = logical_and(there, lt(y, w_.y.size));
        if (w_.x.size % t_.width()) there = logical_and(there, lt(x, w_.x.size));
        return there;
    }
    static Stmt where(const Expr& condition, Stmt body) {
        const bool always = condition.is(ExprKind::Const) && condition.node().integer == 1;
        return always ? body : if_then(condition, std::move(body));
    }

    Stmt write_lines(const Thread& t, int sums) {
        std::vector<Stmt> all;
        const bool whole = w_.x.size % kNeighbours == 0;
        for (int64_t own = 0; own < t_.lines; ++own) {
            const Expr n = var("n", kNeighbours), first = x0_ + t.across * kNeighbours, x = first + n;
            const Expr y = y0_ + t.down * t_.lines + own, channel = c0_ + t.channel;
            Stmt one = finished(place(channel, y, x), load(sums, sum_dtype(), {own * kNeighbours + n}));
            const LoopKind kind = whole ? LoopKind::Vector : LoopKind::Unrolled;
            if (!whole) one = where(is_there(channel, y, x), std::move(one));
            one = loop_over(n, kNeighbours, kind, std::move(one));
            all.push_back(whole ? where(is_there(channel, y, first), std::move(one)) : one);
        }
        return seq(std::move(all));
    }

    // Vectors of channels, from shared memory.
    Stmt write_channels() {
        const int64_t bytes = int64_t(dtype_bytes(c_.buffers[size_t(w_.out.buffer)].dtype));
        int64_t lanes = std::min(t_.channels, kVectorBytes / bytes);
        if (!divides(lanes, extent(channel_))) lanes = 1;
        const int64_t vectors = t_.channels / lanes, all = t_.height() * t_.width() * vectors;
        return in_threads([&](const Thread& t) {
            const int64_t turns = (all + t_.threads() - 1) / t_.threads();
            const Expr turn = var("turn", turns), lane = var("lane", lanes), e = turn * t_.threads() + t.number;
            const Expr first = mod(e, vectors) * lanes, y = floor_div(e, vectors * t_.width()),
                       x = mod(floor_div(e, vectors), t_.width());
            Stmt one =
                finished(place(c0_ + first + lane, y0_ + y, x0_ + x), load(sums_, sum_dtype(), {y, x, first + lane}));
            one = loop_over(lane, lanes, lanes > 1 ? LoopKind::Vector : LoopKind::Unrolled, std::move(one));
            Expr there = is_there(c0_ + first, y0_ + y, x0_ + x);
            if (all % t_.threads()) there = logical_and(lt(e, all), there);
            one = where(there, std::move(one));
            return for_loop({.var = turn, .extent = turns, .notes = {{"unroll", 4}}, .body = std::move(one)});
        });
    }

    const Compute& c_;
    const SlidingWindow w_;
    const size_t channel_;
    const WindowTile t_;
    Kernel kernel_;
    std::vector<size_t> others_;
    std::vector<Expr> taps_;
    std::vector<int> tap_buffers_;
    Expr tile_, part_, other_, x0_, y0_, c0_;
    int image_ = 0, sums_ = 0, number_ = 0;
};

// Lines of a thread and threads of a block, as there are outputs for; empty: there is no room for the image.
std::optional<WindowTile> choose_tile(const Machine& machine, const Compute& c, const SlidingWindow& w, size_t channel,
                                      bool inside) {
    const auto channels = w.sum.axes[channel].extent.as_int();
    if (!channels) return {};
    const int64_t bytes = int64_t(dtype_bytes(c.buffers[size_t(w.image)].dtype)), unit = kVectorBytes / bytes;
    WindowTile t;
    t.channels_inside = inside;
    t.across = (std::min(w.x.size, kWidestTile) + kNeighbours - 1) / kNeighbours;
    t.lines = w.y.taps > kMostUnrolledTaps ? 1 : std::min(kMostLines, int64_t(std::bit_floor(uint64_t(w.y.size))));
    double outputs = 1;
    for (const ReduceAxis& a : w.sum.axes) outputs *= double(a.extent.as_int().value_or(1));
    const double busy = double(device_threads(machine)) / 2;  // threads of all blocks
    while (t.lines > 1 && outputs / double(kNeighbours * t.lines) < busy) t.lines /= 2;
    t.channels = inside ? std::min(kChannelsAtOnce, *channels) : 1;
    const int64_t most_down = (w.y.size + t.lines - 1) / t.lines;
    t.down = std::clamp<int64_t>(kWindowThreads / (t.across * t.channels), 1, most_down);
    if (!inside) {
        // A power of two: that more often divides the number of channels, which then needs no guard.
        const int64_t most =
            std::clamp<int64_t>(kWindowThreads / (t.across * t.down), 1, std::min<int64_t>(*channels, 32));
        t.channels = int64_t(std::bit_floor(uint64_t(most)));
    }
    for (;; t.down > 1 ? t.down = (t.down + 1) / 2 : t.channels /= 2) {
        if (t.channels == 0) return {};
        const int64_t reach = w.x.every * kNeighbours * (t.across - 1) + round_up(w.x.reach(kNeighbours), unit);
        t.pitch = round_up(std::max(reach, w.x.reach(t.width())), unit);
        const int64_t rows = w.y.reach(t.height());
        t.plane = rows * t.pitch + (rows * t.pitch / unit % 2 == 0 ? unit : 0);
        const int64_t sums = inside ? t.height() * t.width() * t.channels * 4 : 0;
        if (t.threads() <= kMostWindowThreads && t.plane * t.channels * bytes + sums <= kMostWindowBytes) return t;
    }
}

bool is_exact(const Expr& fill, DType dtype) {
    if (fill.dtype() == dtype) return true;
    return is_float(dtype) && is_float(fill.dtype()) && (fill.node().real == 0 || std::isinf(fill.node().real));
}

}  // namespace

std::optional<Lowered> window_kernel(const Compute& compute, const ScheduleOptions& options) {
    Schedule s(compute);
    if (!options.machine.blocks || !inline_maps(s).ok()) return {};
    const Compute c = without_unit_axes(s.compute());
    const auto found = match_sliding_window(c);
    if (!found || found->planes.empty() || !is_exact(found->fill, c.buffers[size_t(found->image)].dtype)) return {};
    const int64_t taps = found->x.taps * found->y.taps;
    if (taps < 2 || found->x.taps > kMostTapsAlongX || (!found->image_along_x && taps <= kFewTaps)) return {};
    if (found->x.size < 4 || found->x.every > found->x.taps * std::max<int64_t>(found->x.further, 1)) return {};
    // Small windows with a stride overlap little: a copy in shared memory costs more than reading them where they lie.
    if (found->x.every > 1 && taps <= kFewTaps) return {};
    // The axis that neighbours of the output differ in.
    const Schedule of_output{c};
    size_t channel = found->planes.back();
    bool inside = false;
    for (size_t axis : found->planes) {
        const auto step = stride_of(of_output, found->out.buffer, found->out.store, found->out.axes[axis].var);
        if (step && step->is_int(1) && !found->sum.axes[axis].extent.is_int(1)) channel = axis, inside = true;
    }
    const auto tile = choose_tile(options.machine, c, *found, channel, inside);
    if (!tile) return {};
    auto kernel = WindowBuilder(c, *found, channel, *tile).make();
    if (!kernel) return {};
    if (!verify(*kernel).ok()) return {};
    Lowered made;
    made.kernel = std::move(*kernel);
    return made;
}

}  // namespace tessera
