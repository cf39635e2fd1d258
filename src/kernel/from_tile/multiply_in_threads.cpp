// Products of tiles that are spread over the threads of a block: by matrix instructions, or by loops of each thread.
#include <algorithm>

#include "kernel/from_tile/lowering.h"
#include "kernel/from_tile/narrow.h"
#include "kernel/ir/intrinsic.h"
#include "kernel/ir/narrow_floats.h"
#include "kernel/ir/tile_copy.h"

namespace tessera::from_tile_detail {

using tile::Instruction;
using tile::Kind;

namespace {

constexpr std::string_view kThrice = "tf32x3";

// Of f32, where not all digits are asked for.
bool is_cut(const Instruction& dot) { return !dot.word.empty(); }

}  // namespace

// Operands of instructions of four warps lie in panels of 128 bytes, or in one of 64 or 32; those of bytes along what
// is added up. Warps side by side begin at panels of their own.
bool TileLowering::fits_four(const Instruction& i) const {
    const auto layout = wide_layout(type(i.outputs[0]).shape, warps_);
    if (!layout) return false;
    const DType dtype = type(i.inputs[0]).dtype;
    const int64_t panel = kPanelBytes / static_cast<int64_t>(dtype_bytes(dtype));
    const auto in_panels = [&](bool second) {
        int value = i.inputs[second ? 1 : 0];
        bool along_k = !second;
        for (auto made = made_by_.find(value); made != made_by_.end() && made->second->kind == Kind::Permute;
             made = made_by_.find(value)) {
            value = made->second->inputs[0];
            along_k = !along_k;
        }
        const bool columns = comes_by_columns(value);
        const bool across = along_k == columns;
        if (dtype_bytes(dtype) != 2 && across) return false;
        const int64_t row = type(value).shape[columns ? 0 : 1];
        if (second && across && row / layout->across % std::min(row, panel)) return false;
        return row % panel == 0 || row == panel / 2 || row == panel / 4;
    };
    return i.word != kThrice && !of_warps_.contains(type(i.outputs[0]).shape) && in_panels(true) &&
           ((is_short_float(dtype) && comes_from_threads(i.inputs[0])) || in_panels(false));
}

Matrices TileLowering::matrices_of(const Instruction& i) const {
    const tile::Type &a = type(i.inputs[0]), &b = type(i.inputs[1]), &out = type(i.outputs[0]);
    if (matrices_ == Matrices::None || a.shape.size() != 2 || a.dtype != b.dtype) return Matrices::None;
    const bool bytes = of_bytes_.contains(i.outputs[0]);
    const bool takes = is_short_float(a.dtype) || bytes || (a.dtype == DType::f32 && is_cut(i));
    if (!takes || a.shape[1] % matrix_depth(a.dtype)) return Matrices::None;
    if (out.dtype != matrix_sum(a.dtype) && !is_short_float(out.dtype)) return Matrices::None;
    if (matrices_ == Matrices::OfFour && fits_four(i)) return Matrices::OfFour;
    return !bytes && product_layout(out.shape, warps_, false) ? Matrices::OfWarp : Matrices::None;
}

void TileLowering::find_products_of_bytes() {
    uses_ = count_uses(program_);
    if (!look_at_memory().ok()) return;
    each_instruction(program_.body, [&](const Instruction& i) {
        if (i.kind != Kind::Dot) return;
        const DType dtype = type(i.inputs[0]).dtype;
        if (dtype_bytes(dtype) != 1 ||
            std::find(std::begin(kMatrixTypes), std::end(kMatrixTypes), dtype) == std::end(kMatrixTypes))
            return;
        of_bytes_.insert(i.outputs[0]);
        if (matrices_of(i) != Matrices::OfFour) of_bytes_.erase(i.outputs[0]);
    });
}

bool TileLowering::is_turned_operand(int value) const {
    const auto v = static_cast<size_t>(value);
    const Instruction* user = uses_.last[v];
    if (!warps_ || uses_.count[v] != 1 || uses_.inside[v] || !user || user->kind != Kind::Dot) return false;
    auto made = made_by_.find(value);
    return made != made_by_.end() && made->second->kind == Kind::Permute && multiplies_matrices(*user);
}

// Whether something that may be sums is in it, and not only what is in memory.
bool TileLowering::may_have_sums(int value) const {
    if (type(value).shape.empty()) return false;
    auto made = made_by_.find(value);
    if (made == made_by_.end()) return true;
    const Instruction& i = *made->second;
    if (i.kind == Kind::Dot || !i.regions.empty()) return true;
    if (i.kind == Kind::Load || i.kind == Kind::Atomic) return false;
    return std::any_of(i.inputs.begin(), i.inputs.end(),
                       [&](int input) { return !type(input).pointer && may_have_sums(input); });
}

// What was computed from sums, and lies with the threads as sums do.
bool TileLowering::comes_from_threads(int value) const {
    auto made = made_by_.find(value);
    const Instruction* user = uses_.last[static_cast<size_t>(value)];
    if (made == made_by_.end() || made->second->kind != Kind::Map || uses_.count[static_cast<size_t>(value)] != 1)
        return false;
    if (of_warps_.contains(type(value).shape) || !may_have_sums(value)) return false;
    const auto layout = wide_layout(type(value).shape, warps_);
    const auto sums = user ? wide_layout(type(user->outputs[0]).shape, warps_) : std::nullopt;
    if (!layout || !sums || layout->across > 1 || sums->across > 1 || layout->down != sums->down) return false;
    bool is_product = false;  // of another
    each_instruction(program_.body, [&](const Instruction& i) {
        is_product |= i.kind == Kind::Dot && type(i.outputs[0]).shape == type(value).shape;
    });
    return is_product;
}

const Instruction* TileLowering::product_of(int value) const {
    if (uses_.count[static_cast<size_t>(value)] != 1) return nullptr;
    const Instruction* user = uses_.last[static_cast<size_t>(value)];
    if (user && user->kind == Kind::Permute && uses_.count[static_cast<size_t>(user->outputs[0])] == 1)
        user = uses_.last[static_cast<size_t>(user->outputs[0])];
    return user && user->kind == Kind::Dot ? user : nullptr;
}

bool TileLowering::is_operand_of_bytes(int value) const {
    const Instruction* product = product_of(value);
    return product && of_bytes_.contains(product->outputs[0]);
}

bool TileLowering::comes_by_columns(int value) const {
    auto fastest = fastest_.find(value);
    return matrices_ == Matrices::OfFour && fastest != fastest_.end() && fastest->second == 0 &&
           type(value).shape.size() == 2 && product_of(value);
}

bool TileLowering::is_stored_turned(int value) const {
    return comes_by_columns(value) &&
           (is_short_float(type(value).dtype) || is_operand_of_bytes(value) || is_cut(*product_of(value)));
}

int TileLowering::shared_operand(int value, bool& transposed) {
    auto made = made_by_.find(value);
    if (made != made_by_.end() && made->second->kind == Kind::Permute && tile(value).buffer < 0 &&
        made->second->numbers == std::vector<int64_t>{1, 0}) {
        transposed = !transposed;
        return shared_operand(made->second->inputs[0], transposed);
    }
    if (tile(value).buffer < 0) materialise(value, false);
    if (is_stored_turned(value)) transposed = !transposed;
    return tile(value).buffer;
}

// out += a b by instructions of four warps.
void TileLowering::multiply_by_four(const Instruction& i, int slot) {
    const tile::Type &of_a = type(i.inputs[0]), &of_b = type(i.inputs[1]);
    const TileLayout& layout = layout_of(type(i.outputs[0]).shape);
    const int64_t rows = of_a.shape[0], columns = of_b.shape[1], depth = of_a.shape[1];
    const int64_t own = layout.per_thread(), in_columns = columns / layout.across;
    const bool of_threads = comes_from_threads(i.inputs[0]);
    bool turned_a = false, turned_b = false;
    if (of_threads && tile(i.inputs[0]).buffer < 0) materialise(i.inputs[0], false);
    const int left = of_threads ? tile(i.inputs[0]).buffer : shared_operand(i.inputs[0], turned_a);
    const int right = shared_operand(i.inputs[1], turned_b);
    const int64_t a_row = turned_a ? 1 : depth, a_k = turned_a ? rows : 1;
    const int64_t b_column = turned_b ? depth : 1, b_k = turned_b ? 1 : columns;
    // u, c, v, x, h, g, t, p; y, s, q
    std::vector<int64_t> strides{32 * own, 32 * own * layout.down, in_columns / 8 * 4, 4, 2, 4 * own, own, 1, 0, 0, 0};
    if (of_threads) {
        const int64_t held = layout_of(of_a.shape).per_thread();
        strides.insert(strides.end(), {32 * held, 0, depth / 8 * 4, 0, 2, 4 * held, 0, 0, 4, held, 1});
    } else {
        strides.insert(strides.end(),
                       {16 * a_row, 0, 16 * layout.down * a_row, 0, 8 * a_row, a_row, 0, 0, 8 * a_k, 2 * a_k, a_k});
    }
    strides.insert(strides.end(),
                   {0, in_columns * b_column, 0, 8 * b_column, 0, 0, 2 * b_column, b_column, 8 * b_k, 2 * b_k, b_k});
    Call call{.name = wide_matrix_name(of_a.dtype, rows, columns, depth, layout.down, layout.across, of_threads),
              .writes = {{slot, {0, 0}}},
              .reads = {{left, {0, 0}}, {right, {0, 0}}},
              .args = {}};
    for (int64_t stride : strides) call.args.emplace_back(stride);
    if (!i.numbers.empty() && is_narrow(of_a.dtype)) call.args.emplace_back(i.numbers[0]);
    sums_.insert(slot);
    if (of_threads) sums_.insert(left);
    emit(make_stmt(std::move(call)));
}

void TileLowering::multiply_in_threads(const Instruction& i, int slot, DType dtype) {
    const int a = i.inputs[0], b = i.inputs[1];
    const tile::Type &of_a = type(a), &of_b = type(b);
    if (!multiplies_matrices(i) || !layout_of(type(i.outputs[0]).shape).of_products ||
        dtype != matrix_sum(of_a.dtype)) {
        materialise(a, false);
        materialise(b, false);
        const TilePlace place = new_place(type(i.outputs[0]).shape);
        const Expr k = variable(of_a.shape.back());
        const auto at = [&](const Expr& row, const Expr& column) {
            TileIndices all(place.at.begin(), place.at.end() - 2);
            all.push_back(row);
            all.push_back(column);
            return all;
        };
        const Expr left = number_of(element(a, at(place.at[place.at.size() - 2], k)), of_a.dtype, dtype);
        const Expr right = number_of(element(b, at(k, place.at.back())), of_b.dtype, dtype);
        Stmt one = elements_of(place, store(slot, place.at, left * right, ReduceOp::Sum), false);
        emit(in_threads(place, for_loop({.var = k, .extent = of_a.shape.back(), .body = std::move(one)})));
        return;
    }
    const TileLayout& layout = layout_of(type(i.outputs[0]).shape);
    if (layout.wide) return multiply_by_four(i, slot);
    bool turned_a = false, turned_b = false;
    const auto with_skew = [&](int value, bool& turned, bool second) {
        const int of_value = shared_operand(value, turned);
        Buffer& operand = kernel_.buffers[static_cast<size_t>(of_value)];
        const int64_t skew = of_a.dtype == DType::f32 && turned == second ? kSkew / 2 : kSkew;  // along k
        if (operand.shape.size() == 2 && operand.strides.empty())
            operand.strides = {*operand.shape[1].as_int() + skew, 1};
        return of_value;
    };
    const int left = with_skew(a, turned_a, false), right = with_skew(b, turned_b, true);
    const int64_t rows = of_a.shape[0], columns = of_b.shape[1], depth = of_a.shape[1];
    const auto row = [&](int buffer) { return *kernel_.buffers[static_cast<size_t>(buffer)].strides[0].as_int(); };
    const int64_t a_row = turned_a ? 1 : row(left), a_k = turned_a ? row(left) : 1;
    const int64_t b_column = turned_b ? row(right) : 1, b_k = turned_b ? 1 : row(right);
    const int64_t own = layout.per_thread(), in_rows = rows / layout.down, in_columns = columns / layout.across;
    const std::vector<int64_t> strides{// u, c, v, x, h, g, t, p, k
                                       32 * own * layout.across,
                                       32 * own,
                                       in_columns / 8 * 4,
                                       4,
                                       2,
                                       4 * own,
                                       own,
                                       1,
                                       0,
                                       in_rows * a_row,
                                       0,
                                       16 * a_row,
                                       0,
                                       8 * a_row,
                                       a_row,
                                       0,
                                       0,
                                       a_k,
                                       0,
                                       in_columns * b_column,
                                       0,
                                       8 * b_column,
                                       0,
                                       0,
                                       2 * b_column,
                                       b_column,
                                       b_k};
    Call call{.name = warp_matrix_name(of_a.dtype, rows, columns, depth, layout.down, layout.across, i.word == kThrice),
              .writes = {{slot, {0, 0}}},
              .reads = {{left, {0, 0}}, {right, {0, 0}}},
              .args = {}};
    for (int64_t stride : strides) call.args.emplace_back(stride);
    sums_.insert(slot);
    emit(make_stmt(std::move(call)));
}

}  // namespace tessera::from_tile_detail
