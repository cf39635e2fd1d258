// Products of bytes on a GPU: what 8 bits hold, f16 holds too, and matrix instructions multiply that.
#include "kernel/from_tile/tiles.h"

namespace tessera::from_tile_detail {
namespace {

using tile::Instruction;
using tile::Kind;

constexpr int64_t kMostExact = 256;  // products of two bytes whose sum f32 holds

bool is_byte_float(DType t) {
    return t == DType::f8e4m3fn || t == DType::f8e4m3fnuz || t == DType::f8e5m2 || t == DType::f8e5m2fnuz;
}
bool is_byte_int(DType t) { return t == DType::i8 || t == DType::u8; }

class BytesInDots {
  public:
    BytesInDots(tile::ProgramData& program, const std::set<int>& but)
        : types_(program.types), uses_(count_uses(program)), but_(but) {}

    void walk(tile::Region& region) {
        std::vector<Instruction> before = std::move(region.instructions);
        std::vector<Instruction> outer = std::exchange(made_, {});
        for (Instruction& i : before) {
            for (tile::Region& inner : i.regions) walk(inner);
            if (i.kind == Kind::Dot && takes(i))
                multiply(std::move(i));
            else
                made_.push_back(std::move(i));
        }
        region.instructions = std::exchange(made_, std::move(outer));
    }

  private:
    const tile::Type& type(int value) const { return types_[static_cast<size_t>(value)]; }

    bool takes(const Instruction& i) const {
        const tile::Type &a = type(i.inputs[0]), &b = type(i.inputs[1]), &out = type(i.outputs[0]);
        if (a.shape.size() != 2 || but_.contains(i.outputs[0])) return false;
        if (is_byte_float(a.dtype) && is_byte_float(b.dtype)) return is_float(out.dtype) && out.dtype != DType::f64;
        return is_byte_int(a.dtype) && is_byte_int(b.dtype) && out.dtype == DType::i32 && a.shape[1] <= kMostExact;
    }

    int add(Instruction i, tile::Type of) {
        types_.push_back(std::move(of));
        i.outputs = {static_cast<int>(types_.size()) - 1};
        made_.push_back(std::move(i));
        return made_.back().outputs[0];
    }

    int cast_to(int value, DType dtype) {
        tile::Type of = type(value);
        const Expr body = tessera::cast(load(0, of.dtype, {}), dtype);
        of.dtype = dtype;
        return add({.kind = Kind::Map, .inputs = {value}, .body = body}, std::move(of));
    }

    // Before it is turned, where it is: products read turned tiles as they lie.
    int as_half(int value) {
        if (uses_.count[static_cast<size_t>(value)] == 1 && !made_.empty() && made_.back().kind == Kind::Permute &&
            made_.back().outputs[0] == value) {
            Instruction turned = std::move(made_.back());
            made_.pop_back();
            turned.inputs[0] = cast_to(turned.inputs[0], DType::f16);
            tile::Type of = type(value);
            of.dtype = DType::f16;
            return add(std::move(turned), std::move(of));
        }
        return cast_to(value, DType::f16);
    }

    void multiply(Instruction i) {
        const bool ints = is_byte_int(type(i.inputs[0]).dtype);
        const int second = as_half(i.inputs[1]);  // it is the last that was made, where it is turned
        const int first = as_half(i.inputs[0]);
        i.inputs[0] = first, i.inputs[1] = second;
        if (!ints) {
            made_.push_back(std::move(i));
            return;
        }
        tile::Type of = type(i.outputs[0]);
        of.dtype = DType::f32;
        const int product = add({.kind = Kind::Dot, .inputs = {first, second}, .place = i.place}, std::move(of));
        const Expr x = tessera::cast(load(0, DType::f32, {}), DType::i32), y = load(1, DType::i32, {});
        Instruction sum{.kind = Kind::Map, .inputs = {product}, .outputs = i.outputs, .body = x, .place = i.place};
        if (i.inputs.size() == 3) sum.inputs.push_back(i.inputs[2]), sum.body = x + y;
        made_.push_back(std::move(sum));
    }

    std::vector<tile::Type>& types_;
    const TileUses uses_;
    const std::set<int>& but_;
    std::vector<Instruction> made_;
};

}  // namespace

void multiply_bytes_as_halves(tile::ProgramData& program, const std::set<int>& but) {
    BytesInDots(program, but).walk(program.body);
}

}  // namespace tessera::from_tile_detail
