// Choosing among overlapping boxes: non_max_suppression.
#include <algorithm>
#include <cmath>

#include "graph/evaluate/evaluate.h"
#include "graph/ops/common.h"
#include "graph/ops/families.h"
#include "graph/ops/tensor_slices.h"

namespace tessera {
namespace {

struct Box {
    double low[2], high[2];
    double area() const { return (high[0] - low[0]) * (high[1] - low[1]); }
};

Box read_box(const float* b, bool by_center) {
    Box box;
    for (int d = 0; d < 2; ++d) {
        double p = b[d], q = b[d + 2];
        box.low[d] = by_center ? p - q / 2 : std::min(p, q);
        box.high[d] = by_center ? p + q / 2 : std::max(p, q);
    }
    return box;
}

// The intersection's share of the union.
double overlap(const Box& a, const Box& b) {
    double common = 1;
    for (int d = 0; d < 2; ++d) common *= std::max(0.0, std::min(a.high[d], b.high[d]) - std::max(a.low[d], b.low[d]));
    if (!(a.area() > 0) || !(b.area() > 0) || !(common > 0)) return 0;
    return common / (a.area() + b.area() - common);
}

const OpDef kNonMaxSuppression{
    .name = "non_max_suppression",
    .inputs = {"boxes: f32", "scores: f32", "most?: i64", "overlap?: f32", "least_score?: f32"},
    .outputs = {"selected: i64"},
    .attrs = {int_attr("center_point_box", 0)},
    .onnx = "NonMaxSuppression",
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape &boxes = op.shape(0), &scores = op.shape(1);
        if (boxes.rank() != 3 || scores.rank() != 3 || boxes[2].as_int().value_or(4) != 4)
            return op.shape_error("needs [batches, boxes, 4] and [batches, classes, boxes], has {} and {}", boxes,
                                  scores);
        auto clash = [](const Dim& a, const Dim& b) { return a.as_int() && b.as_int() && a != b; };
        if (clash(boxes[0], scores[0]) || clash(boxes[1], scores[2]))
            return op.shape_error("boxes {} and scores {} are incompatible", boxes, scores);
        for (size_t i = 2; i < 5; ++i)
            if (op.has(i) && op.shape(i).elements().as_int().value_or(1) != 1)
                return op.shape_error("input {} must be one number, is {}", i, op.shape(i));
        return Type(DType::i64, {op.fresh(0, 0), 3});
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        auto boxes = ctx.tensor(0).as<float>(), scores = ctx.tensor(1).as<float>();
        int64_t batches = ctx.tensor(1).size(0), classes = ctx.tensor(1).size(1), count = ctx.tensor(1).size(2);
        int64_t most = op.has(2) ? ctx.tensor(2).int_at(0) : 0;
        double threshold = op.has(3) ? ctx.tensor(3).real_at(0) : 0;
        std::vector<int64_t> selected;
        for (int64_t lane = 0; lane < batches * classes; ++lane) {
            const float *own = scores.data() + lane * count, *corners = boxes.data() + lane / classes * count * 4;
            std::vector<int64_t> order;
            for (int64_t i = 0; i < count; ++i)
                if (!op.has(4) || own[i] > ctx.tensor(4).real_at(0)) order.push_back(i);
            std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
                return own[a] > own[b] || (std::isnan(own[b]) && !std::isnan(own[a]));
            });
            std::vector<Box> kept;
            for (int64_t i : order) {
                if (int64_t(kept.size()) >= most) break;
                TRY(ctx.spend(16 * int64_t(kept.size() + 1)));
                Box box = read_box(corners + i * 4, op.integer("center_point_box") == 1);
                if (std::any_of(kept.begin(), kept.end(), [&](const Box& k) { return overlap(k, box) > threshold; }))
                    continue;
                kept.push_back(box);
                selected.insert(selected.end(), {lane / classes, lane % classes, i});
            }
        }
        return std::vector<Datum>{TRY(tensor_of_ints({int64_t(selected.size()) / 3, 3}, selected))};
    },
};

}  // namespace

std::vector<OpDef> suppression_ops() { return {kNonMaxSuppression}; }

}  // namespace tessera
