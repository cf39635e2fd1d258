// Linear sampling as a sum over the corners around each point: where they lie and what they weigh is computed once for
// all channels.
#include "graph/builder.h"
#include "graph/ops/for_kernels.h"

namespace tessera {
namespace {

class Corners {
  public:
    Corners(const OpView& op, Value* x, Value* grid, Builder& b)
        : op_(op),
          x_(x),
          grid_(grid),
          b_(b),
          spatial_(op.rank(0) - 2),
          dtype_(op.dtype(0) == DType::f64 ? DType::f64 : DType::f32) {}

    Value* sum() {
        for (int64_t i = 0; i < spatial_; ++i) axes_.push_back(along(i));
        // [N, C, places], of which each corner picks some; a 0 behind them stands for all that lie outside.
        count_ = product(dims(x_, 2, spatial_ + 2));
        flat_ = b_.cast(reshaped(x_, {dims(x_, 0, 2), count_}), dtype_);
        if (!is_border()) {
            Value* zeros = b_.op("expand", {b_.scalar(0, dtype_), b_.concat({dims(x_, 0, 2), b_.ints({1})}, 0)});
            flat_ = b_.concat({flat_, zeros}, 2);
        }
        Value* y = nullptr;
        for (int64_t corner = 0; corner < int64_t{1} << spatial_; ++corner) {
            Value* part = at_corner(corner);
            y = y ? b_.add(y, part) : part;
        }
        return reshaped(b_.cast(y, op_.dtype(0)), {dims(x_, 0, 2), dims(grid_, 1, spatial_ + 1)});
    }

  private:
    // The two neighbours of each point along a dimension, [N, 1, points], and what they weigh (f64).
    struct Axis {
        Value *size, *element[2], *weight[2];
    };

    Value* dims(Value* of, int64_t from, int64_t to) {
        return b_.op("shape", {of}, {{"start", Attr(from)}, {"end", Attr(to)}});
    }
    Value* product(Value* sizes) { return b_.reduce("reduce_prod", sizes, {0}); }
    Value* reshaped(Value* x, std::vector<Value*> sizes) {
        return b_.op("reshape", {x, b_.concat(std::move(sizes), 0)}, {{"allowzero", Attr(int64_t{1})}});
    }
    Value* real(double v) { return b_.scalar(v, DType::f64); }
    Value* whole(double v) { return b_.scalar(v, DType::i64); }

    Axis along(int64_t i) {
        Axis a;
        a.size = b_.squeeze(dims(x_, i + 2, i + 3), {0});
        // The grid lists positions from the innermost dimension to the outermost.
        const int64_t k = spatial_ - 1 - i;
        Value* normal = reshaped(b_.slice(grid_, {k}, {k + 1}, {spatial_ + 1}),
                                 {dims(grid_, 0, 1), b_.ints({1}), product(dims(grid_, 1, spatial_ + 1))});
        Value *size = b_.cast(a.size, DType::f64), *last = b_.sub(size, real(1)), *half = real(0.5);
        Value* at = b_.add(b_.cast(normal, DType::f64), real(1));
        at = op_.integer("align_corners") ? b_.mul(b_.mul(at, half), last)
                                          : b_.mul(b_.sub(b_.mul(at, size), real(1)), half);
        if (op_.dtype(1) != DType::f64) at = b_.cast(b_.cast(at, DType::f32), DType::f64);
        if (is_border()) {
            const double beyond = op_.integer("align_corners") ? 0 : 0.5;
            Value* outside =
                b_.op("or", {b_.op("less", {at, real(-beyond)}), b_.op("greater", {at, b_.add(last, real(beyond))})});
            at = b_.op("where", {outside, b_.op("clip", {at, real(0), last}), at});
        }
        Value* low = b_.op("floor", {at});
        a.weight[1] = b_.sub(at, low);
        a.weight[0] = b_.sub(real(1), a.weight[1]);
        a.element[0] = b_.cast(low, DType::i64);
        a.element[1] = b_.add(a.element[0], whole(1));
        return a;
    }

    // What lies there, or 0 outside, times its weight.
    Value* at_corner(int64_t corner) {
        Value *place = nullptr, *weight = nullptr, *inside = nullptr;
        for (int64_t i = 0; i < spatial_; ++i) {
            const Axis& a = axes_[size_t(i)];
            const int64_t side = corner >> i & 1;
            Value* last = b_.sub(a.size, whole(1));
            Value* element = b_.op("clip", {a.element[side], whole(0), last});
            place = place ? b_.add(b_.mul(place, a.size), element) : element;
            weight = weight ? b_.mul(weight, a.weight[side]) : a.weight[side];
            if (is_border()) continue;
            Value* here = b_.op("equal", {element, a.element[side]});
            inside = inside ? b_.op("and", {inside, here}) : here;
        }
        // Where there are no elements, nothing is picked.
        Value* last = is_border() ? b_.sub(b_.squeeze(count_, {0}), whole(1)) : b_.squeeze(count_, {0});
        if (inside) place = b_.op("where", {inside, place, last});
        Value* picked = b_.op("expand", {b_.op("clip", {place, whole(0), last}), b_.ints({1, channels(), 1})});
        Value* value = b_.op("gather_elements", {flat_, picked}, {{"axis", Attr(int64_t{2})}});
        return b_.mul(value, b_.cast(weight, dtype_));
    }

    bool is_border() const { return op_.string("padding_mode") == "border"; }
    int64_t channels() const { return *op_.shape(0)[1].as_int(); }

    const OpView& op_;
    Value *x_, *grid_, *flat_ = nullptr, *count_ = nullptr;
    Builder& b_;
    const int64_t spatial_;
    const DType dtype_;
    std::vector<Axis> axes_;
};

}  // namespace

Result<std::vector<Value*>> grid_sample_by_corners(const OpView& op, const std::vector<Value*>& in, Builder& b) {
    constexpr int64_t kMostDimensions = 3;  // not too many corners
    const std::vector<Value*> none;
    if (op.string("mode") != "linear" || op.string("padding_mode") == "reflection") return none;
    if (!is_float(op.dtype(0)) || op.rank(0) > 2 + kMostDimensions) return none;
    if (op.shape(0)[1].as_int().value_or(0) < 1) return none;
    return std::vector<Value*>{Corners(op, in[0], in[1], b).sum()};
}

}  // namespace tessera
