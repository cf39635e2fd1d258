// Tile programs as C++ expressions: a + b, dot(a, b), where(c, a, b). The first invalid operand is kept, and returned
// by finish(); values after it are empty.
#pragma once

#include <functional>

#include "tessera/tile.h"

namespace tessera::tile {

class Expressions;

struct Tile {
    Expressions* program = nullptr;
    Value value;
    Tile row() const;     // [n] as [1, n]
    Tile column() const;  // [n] as [n, 1]
    Tile transposed() const;
    Tile as(DType dtype) const;
};

// A tile or a number.
struct Term {
    Term(const Tile& t) : program(t.program), operand(t.value) {}  // NOLINT(google-explicit-constructor)
    Term(int number) : operand(int64_t{number}) {}                 // NOLINT(google-explicit-constructor)
    Term(int64_t number) : operand(number) {}                      // NOLINT(google-explicit-constructor)
    Term(double number) : operand(number) {}                       // NOLINT(google-explicit-constructor)
    Expressions* program = nullptr;
    Operand operand;
};

class Expressions {
  public:
    explicit Expressions(std::string name) : builder_(std::move(name)) {}
    Result<Program> finish();

    Tile pointer(std::string name, DType dtype) {
        return {this, builder_.parameter(std::move(name), {.dtype = dtype, .pointer = true})};
    }
    Tile number(std::string name) { return {this, builder_.parameter(std::move(name), {.dtype = DType::i64})}; }
    Tile program_id(int axis) {
        return make([=](Builder& b) { return b.program_id(axis); });
    }
    Tile up_to(int64_t end) {
        return make([=](Builder& b) { return b.arange(0, end); });
    }
    Tile full(const std::vector<int64_t>& shape, double value) {
        return make([&](Builder& b) { return b.full(shape, value, DType::f32); });
    }
    Tile binary(std::string_view op, const Term& x, const Term& y) {
        return make([&](Builder& b) { return b.binary(op, x.operand, y.operand); });
    }
    Tile unary(std::string_view op, const Tile& x) {
        return make([&](Builder& b) { return b.unary(op, x.value); });
    }
    Tile select(const Tile& c, const Term& x, const Term& y) {
        return make([&](Builder& b) { return b.select(c.value, x.operand, y.operand); });
    }
    Tile dot(const Tile& x, const Tile& y, const Tile& add = {}) {
        return make(
            [&](Builder& b) { return b.dot(x.value, y.value, add.program ? std::optional(add.value) : std::nullopt); });
    }
    Tile reduce(Reduction how, const Tile& x, int64_t axis) {
        return make([&](Builder& b) { return b.reduce(how, x.value, axis); });
    }
    // Elements for which `inside` does not hold are 0. An empty tile: all are inside.
    Tile load(const Tile& at, const Tile& inside);
    void store(const Tile& at, const Tile& value, const Tile& inside);
    // `body` returns what is carried next.
    std::vector<Tile> loop(const Term& begin, const Term& end, const Term& step, const std::vector<Tile>& carried,
                           const std::function<std::vector<Tile>(const Tile&, const std::vector<Tile>&)>& body);

  private:
    friend struct Tile;
    // What comes after an error is empty.
    template <typename F>
    Tile make(const F& f) {
        Tile made{this, {}};
        if (!status_.ok()) return made;
        Result<Value> value = f(builder_);
        if (value.ok())
            made.value = *value;
        else
            status_ = value.error();
        return made;
    }
    std::vector<Tile> tiles(const Result<std::vector<Value>>& made, size_t count);
    Builder builder_;
    Status status_;
};

// One of the two is a tile.
inline Expressions& program_of(const Term& a, const Term& b) { return a.program ? *a.program : *b.program; }
inline Tile operator+(const Term& a, const Term& b) { return program_of(a, b).binary("+", a, b); }
inline Tile operator-(const Term& a, const Term& b) { return program_of(a, b).binary("-", a, b); }
inline Tile operator*(const Term& a, const Term& b) { return program_of(a, b).binary("*", a, b); }
inline Tile operator/(const Term& a, const Term& b) { return program_of(a, b).binary("/", a, b); }
inline Tile operator%(const Term& a, const Term& b) { return program_of(a, b).binary("%", a, b); }
inline Tile operator&(const Term& a, const Term& b) { return program_of(a, b).binary("&", a, b); }
inline Tile operator<(const Term& a, const Term& b) { return program_of(a, b).binary("<", a, b); }
inline Tile operator<=(const Term& a, const Term& b) { return program_of(a, b).binary("<=", a, b); }
inline Tile operator==(const Term& a, const Term& b) { return program_of(a, b).binary("==", a, b); }
inline Tile quotient(const Term& a, const Term& b) { return program_of(a, b).binary("//", a, b); }
inline Tile smaller(const Term& a, const Term& b) { return program_of(a, b).binary("min", a, b); }
inline Tile larger(const Term& a, const Term& b) { return program_of(a, b).binary("max", a, b); }
inline Tile exp2(const Tile& x) { return x.program->unary("exp2", x); }
inline Tile log2(const Tile& x) { return x.program->unary("log2", x); }
inline Tile where(const Tile& c, const Term& a, const Term& b) { return c.program->select(c, a, b); }

}  // namespace tessera::tile
