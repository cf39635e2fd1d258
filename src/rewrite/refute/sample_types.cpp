#include "rewrite/refute/sample_op.h"
#include "rewrite/rules/check_rule.h"

namespace tessera {
namespace {

using DTypeList = std::vector<DType>;

const DTypeList kUsualInts{DType::i64, DType::i64, DType::i32, DType::i32, DType::i16, DType::i8,
                           DType::i8,  DType::u64, DType::u32, DType::u16, DType::u8,  DType::u8};
// Every one that a body computes with; those that models have, several times. The float of exponents only has neither
// sign nor zero: no law of arithmetic speaks of it.
const DTypes kStored = kNarrowFloats | DTypes{DType::i4, DType::u4, DType::i2, DType::u2};
const DTypeList kAny{DType::f64,    DType::f32,      DType::f32, DType::f16,   DType::bf16,       DType::i64,
                     DType::i64,    DType::i32,      DType::i32, DType::i16,   DType::i8,         DType::u64,
                     DType::u32,    DType::u16,      DType::u8,  DType::u8,    DType::boolean,    DType::boolean,
                     DType::f8e5m2, DType::f8e4m3fn, DType::i4,  DType::u4,    DType::f8e4m3fnuz, DType::f8e5m2fnuz,
                     DType::f4e2m1, DType::i2,       DType::u2,  DType::string};

}  // namespace

std::optional<DType> some_type(const DTypes& allowed, const std::string& constraint, const SampleOptions& options,
                               Draw& draw) {
    DTypeList choices;
    auto offer = [&](const DTypeList& types) {
        if (!choices.empty()) return;
        for (DType t : types)
            if (allowed.has(t) && satisfies(t, constraint) && (options.bytes || !kStored.has(t))) choices.push_back(t);
    };
    // Indices and the like are i64, most often.
    const bool index = !allowed.has(DType::f32) && allowed.has(DType::i64) && !allowed.has(DType::i8);
    if (index && !draw.chance(10)) offer({DType::i64});
    if (options.mixed) offer(kAny);
    if (options.integers) offer(kUsualInts);
    offer({options.floats});
    offer({DType::f32});
    offer(kUsualInts);
    offer(kAny);
    if (choices.empty()) return std::nullopt;
    return draw.pick(choices);
}

}  // namespace tessera
