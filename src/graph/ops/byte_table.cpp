// A function of one byte, as a table of all that it can be. Only lowering makes it
// (rewrite/passes/tabulate_bytes.cpp).
#include "base/numeric.h"
#include "graph/ops/block_product.h"
#include "graph/ops/common.h"

namespace tessera {
namespace {

constexpr int64_t kByteValues = 256;

const OpDef kByteTable{
    .name = "byte_table",
    .inputs = {"x: B", "table: T"},
    .outputs = {"y: T"},
    .types = {{"B", {DType::i8, DType::u8}}, {"T", kNumbers}},
    .infer = [](const OpView& op) -> Result<Types> {
        if (op.rank(1) != 1 || !op.shape(1)[0].is_int(kByteValues))
            return op.shape_error("the table is {}, not [{}]", op.shape(1), kByteValues);
        return op.like(1, op.shape(0));
    },
    .body =
        [](const OpView& op, const Indices& o) {
            Expr i = cast(op.in(0).at(o), DType::i64);
            return op.in(1).at({op.dtype(0) == DType::i8 ? i + kByteValues / 2 : i});
        },
    .layout = Layout::AsInputs,
};

}  // namespace

std::vector<OpDef> byte_table_ops() { return {without_gradient(kByteTable, "only lowering creates it")}; }

}  // namespace tessera
