#include "tile/expressions.h"

#include "base/error.h"

namespace tessera::tile {

Tile Tile::row() const {
    return program->make([this](Builder& b) { return b.expand(value, 0); });
}
Tile Tile::column() const {
    return program->make([this](Builder& b) { return b.expand(value, 1); });
}
Tile Tile::transposed() const {
    return program->make([this](Builder& b) { return b.permute(value, {1, 0}); });
}
Tile Tile::as(DType dtype) const {
    return program->make([this, dtype](Builder& b) { return b.cast(value, dtype); });
}

Result<Program> Expressions::finish() {
    TRY(status_);
    return builder_.finish();
}

Tile Expressions::load(const Tile& at, const Tile& inside) {
    return make([&](Builder& b) {
        return inside.program ? b.load(at.value, Operand(inside.value), Operand(0.0)) : b.load(at.value);
    });
}

void Expressions::store(const Tile& at, const Tile& value, const Tile& inside) {
    if (!status_.ok()) return;
    status_ = inside.program ? builder_.store(at.value, value.value, Operand(inside.value))
                             : builder_.store(at.value, value.value);
}

std::vector<Tile> Expressions::tiles(const Result<std::vector<Value>>& made, size_t count) {
    std::vector<Tile> all(count, Tile{this, {}});
    if (!made.ok()) status_ = made.error();
    for (size_t i = 0; i < count && made.ok(); ++i) all[i].value = (*made)[i];
    return all;
}

std::vector<Tile> Expressions::loop(
    const Term& begin, const Term& end, const Term& step, const std::vector<Tile>& carried,
    const std::function<std::vector<Tile>(const Tile&, const std::vector<Tile>&)>& body) {
    auto values = [](const std::vector<Tile>& given) {
        std::vector<Value> all;
        for (const Tile& t : given) all.push_back(t.value);
        return all;
    };
    if (!status_.ok()) return carried;
    std::vector<Tile> inside =
        tiles(builder_.begin_for(begin.operand, end.operand, step.operand, values(carried)), carried.size() + 1);
    if (!status_.ok()) return carried;
    const Tile at = inside[0];
    inside.erase(inside.begin());
    const std::vector<Tile> next = body(at, inside);
    return status_.ok() ? tiles(builder_.end_for(values(next)), carried.size()) : carried;
}

}  // namespace tessera::tile
