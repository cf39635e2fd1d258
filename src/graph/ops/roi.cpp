// Pooling over regions of interest: how many elements a region covers is only known at run time.
#include <algorithm>
#include <array>
#include <cmath>

#include "graph/evaluate/evaluate.h"
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {
namespace {

constexpr int64_t kMaxPooledSize = int64_t{1} << 30;

// x [N, C, H, W], rois [R, columns], pooled to [R, C, height, width].
Result<Types> infer_roi(const OpView& op, int64_t columns, int64_t height, int64_t width) {
    const Shape &x = op.shape(0), &rois = op.shape(1);
    if (x.rank() != 4) return op.shape_error("needs [N, C, H, W], has {}", x);
    if (rois.rank() != 2 || (rois[1].as_int() && !rois[1].is_int(columns)))
        return op.shape_error("rois must be [R, {}], are {}", columns, rois);
    for (int64_t size : {height, width})
        if (size < 1 || size > kMaxPooledSize) return op.error(Code::E0212, "a pooled size of {}", size);
    return op.like(0, Shape{rois[0], x[1], height, width});
}

// One image's plane of x, by region and channel.
struct Plane {
    const Tensor& x;
    int64_t start, height, width;
    double at(int64_t h, int64_t w) const { return x.real_at(start + h * width + w); }
};

// The corners around a point of a plane and their weights; none where it is off the plane.
struct Sample {
    std::array<int64_t, 2> row{}, column{};
    std::array<double, 2> row_weight{}, column_weight{};

    Sample(const Plane& p, double y, double x) {
        if (!(y >= -1 && y <= double(p.height) && x >= -1 && x <= double(p.width))) return;
        set(y, p.height, row, row_weight);
        set(x, p.width, column, column_weight);
    }
    template <typename F>
    void each(const Plane& p, F f) const {
        for (size_t i : {0, 1})
            for (size_t j : {0, 1}) f(row_weight[i] * column_weight[j] * p.at(row[i], column[j]));
    }

  private:
    static void set(double at, int64_t size, std::array<int64_t, 2>& position, std::array<double, 2>& weight) {
        at = std::clamp(at, 0.0, double(size - 1));
        position[0] = int64_t(at);
        position[1] = std::min(position[0] + 1, size - 1);
        weight[1] = at - double(position[0]);
        weight[0] = 1 - weight[1];
    }
};

struct Bins {
    double start, size;  // of the region's first bin
    int64_t samples;     // in each bin
    double point(int64_t bin, int64_t sample) const {
        return start + double(bin) * size + (double(sample) + 0.5) * size / double(samples);
    }
};

Result<Bins> bins_of(const OpView& op, double from, double to, int64_t count) {
    double scale = op.real("spatial_scale");
    bool half_pixel = op.string("coordinate_transformation_mode") == "half_pixel";
    double start = from * scale - (half_pixel ? 0.5 : 0), extent = to * scale - (half_pixel ? 0.5 : 0) - start;
    if (!half_pixel) extent = std::max(extent, 1.0);
    double size = extent / double(count);
    int64_t ratio = op.integer("sampling_ratio");
    if (!std::isfinite(start) || !std::isfinite(size) || size > 1e9)
        return op.error(Code::E0407, "a region is invalid: from {} to {}", from, to);
    return Bins{start, size, ratio > 0 ? ratio : std::max<int64_t>(int64_t(std::ceil(size)), 0)};
}

const OpDef kRoiAlign{
    .name = "roi_align",
    .inputs = {"x: T", "rois: T", "batch_indices: i64"},
    .outputs = {"y: T"},
    .attrs = {string_attr("coordinate_transformation_mode", "half_pixel").one_of({"half_pixel", "output_half_pixel"}),
              string_attr("mode", "avg").one_of({"avg", "max"}), int_attr("output_height", 1),
              int_attr("output_width", 1), int_attr("sampling_ratio", 0), float_attr("spatial_scale", 1)},
    .types = {{"T", kWideFloats}},
    .onnx = {"RoiAlign",
             {{16,
               [](OnnxCall& call) -> Status {
                   call.attrs["coordinate_transformation_mode"] = std::string("output_half_pixel");
                   return {};
               },
               [](OnnxCall& call) -> Status {
                   auto it = call.attrs.find("coordinate_transformation_mode");
                   if (it == call.attrs.end() || it->second != Attr(std::string("output_half_pixel")))
                       return Error(Code::E0214, "{}: half_pixel does not exist before opset 16", call.op_type);
                   call.attrs.erase(it);
                   return {};
               }}}},
    .infer = [](const OpView& op) -> Result<Types> {
        if (op.integer("sampling_ratio") < 0 || op.integer("sampling_ratio") > kMaxPooledSize)
            return op.error(Code::E0212, "sampling_ratio is {}", op.integer("sampling_ratio"));
        const Shape &rois = op.shape(1), &batch = op.shape(2);
        if (batch.rank() != 1 || (rois.rank() == 2 && rois[0].as_int() && batch[0].as_int() && rois[0] != batch[0]))
            return op.shape_error("rois {} and batch_indices {} differ in number", rois, batch);
        return infer_roi(op, 4, op.integer("output_height"), op.integer("output_width"));
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        const Tensor &x = ctx.tensor(0), &rois = ctx.tensor(1), &batch = ctx.tensor(2);
        bool average = op.string("mode") == "avg";
        Tensor y = TRY(Tensor::zeros(x.dtype(), TRY(op.out_sizes())));
        int64_t channels = x.size(1), height = x.size(2), width = x.size(3), rows = y.size(2), columns = y.size(3);
        for (int64_t r = 0, to = 0; r < rois.size(0); ++r) {
            int64_t image = batch.int_at(r);
            Bins across = TRY(bins_of(op, rois.real_at(4 * r), rois.real_at(4 * r + 2), columns));
            Bins down = TRY(bins_of(op, rois.real_at(4 * r + 1), rois.real_at(4 * r + 3), rows));
            for (int64_t c = 0; c < channels; ++c)
                for (int64_t h = 0; h < rows; ++h)
                    for (int64_t w = 0; w < columns; ++w, ++to) {
                        Plane plane{x, (image * channels + c) * height * width, height, width};
                        TRY(ctx.spend(4 * across.samples * down.samples + 1));
                        double total = 0, most = -INFINITY;
                        for (int64_t i = 0; i < down.samples; ++i)
                            for (int64_t j = 0; j < across.samples; ++j)
                                Sample(plane, down.point(h, i), across.point(w, j)).each(plane, [&](double v) {
                                    total += v;
                                    most = std::max(most, v);
                                });
                        double samples = double(std::max<int64_t>(down.samples * across.samples, 1));
                        y.set_real(to, average ? total / samples : std::isinf(most) && most < 0 ? 0 : most);
                    }
        }
        return std::vector<Datum>{y};
    },
    .check = [](const OpView& op) -> Status {
        auto x = op.shape(0).sizes(), y = op.out().shape.sizes();
        if (!op.value(1) || !op.value(2) || !x || !y) return {};
        const Tensor &rois = *op.value(1), &batch = *op.value(2);
        if ((*x)[2] * (*x)[3] == 0 && TRY(element_count(*y)) > 0)
            return op.shape_error("regions of an empty image {}", op.shape(0));
        for (int64_t r = 0; r < rois.size(0); ++r) {
            int64_t image = batch.int_at(r);
            if (image < 0 || image >= (*x)[0])
                return op.error(Code::E0406, "batch index {} of {} images", image, (*x)[0]);
            TRY(bins_of(op, rois.real_at(4 * r), rois.real_at(4 * r + 2), (*y)[3]));
            TRY(bins_of(op, rois.real_at(4 * r + 1), rois.real_at(4 * r + 3), (*y)[2]));
        }
        return {};
    },
};

// The largest element of each bin of a region whose corners are rounded to elements; 0 where a bin is empty.
const OpDef kMaxRoiPool{
    .name = "max_roi_pool",
    .inputs = {"x: T", "rois: T"},
    .outputs = {"y: T"},
    .attrs = {ints_attr("pooled_shape").required(), float_attr("spatial_scale", 1)},
    .types = {{"T", kWideFloats}},
    .traits = {Trait::Pure, Trait::Window},
    .onnx = "MaxRoiPool",
    .infer = [](const OpView& op) -> Result<Types> {
        const auto& pooled = op.ints("pooled_shape");
        if (pooled.size() != 2) return op.error(Code::E0212, "pooled_shape has {} entries, not 2", pooled.size());
        return infer_roi(op, 5, pooled[0], pooled[1]);
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        const Tensor &x = ctx.tensor(0), &rois = ctx.tensor(1);
        Tensor y = TRY(Tensor::zeros(x.dtype(), TRY(op.out_sizes())));
        int64_t channels = x.size(1), rows = y.size(2), columns = y.size(3);
        auto corner = [&](int64_t region, int64_t i) {
            double at = std::round(rois.real_at(5 * region + i) * op.real("spatial_scale"));
            return std::isfinite(at) ? int64_t(std::clamp(at, -1e9, 1e9)) : 0;
        };
        for (int64_t r = 0, to = 0; r < rois.size(0); ++r) {
            double image = rois.real_at(5 * r);
            // The elements [first, last) of bin b along an axis of `size` elements.
            auto bin = [](int64_t from, int64_t until, int64_t b, int64_t bins, int64_t size) {
                double extent = double(std::max<int64_t>(until - from + 1, 1)) / double(bins);
                auto edge = [&](double e) { return std::clamp<int64_t>(from + int64_t(e), 0, size); };
                return std::pair(edge(std::floor(double(b) * extent)), edge(std::ceil(double(b + 1) * extent)));
            };
            for (int64_t c = 0; c < channels; ++c)
                for (int64_t h = 0; h < rows; ++h)
                    for (int64_t w = 0; w < columns; ++w, ++to) {
                        Plane plane{x, (int64_t(image) * channels + c) * x.size(2) * x.size(3), x.size(2), x.size(3)};
                        auto [top, bottom] = bin(corner(r, 2), corner(r, 4), h, rows, x.size(2));
                        auto [left, right] = bin(corner(r, 1), corner(r, 3), w, columns, x.size(3));
                        if (bottom <= top || right <= left) continue;
                        TRY(ctx.spend((bottom - top) * (right - left)));
                        double most = -INFINITY;
                        for (int64_t i = top; i < bottom; ++i)
                            for (int64_t j = left; j < right; ++j) most = std::max(most, plane.at(i, j));
                        y.set_real(to, most);
                    }
        }
        return std::vector<Datum>{y};
    },
    .check = [](const OpView& op) -> Status {
        auto x = op.shape(0).sizes();
        if (!op.value(1) || !x) return {};
        for (int64_t r = 0; r < op.value(1)->size(0); ++r) {
            double image = op.value(1)->real_at(5 * r);
            if (!(image >= 0 && image < double((*x)[0])))
                return op.error(Code::E0406, "batch index {} of {} images", image, (*x)[0]);
        }
        return {};
    },
};

}  // namespace

std::vector<OpDef> roi_ops() {
    constexpr const char* kWhy = "its regions are computed by its evaluation alone";
    return {without_gradient(kRoiAlign, kWhy), without_gradient(kMaxRoiPool, kWhy)};
}

}  // namespace tessera
