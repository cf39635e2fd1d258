// Ranges of values by histogram, and the scales and zero points that they give.
#pragma once

#include "base/dtype.h"
#include "base/error.h"
#include "tessera/quantize.h"

namespace tessera {

struct ValueRange {
    double low = 0, high = 0;  // low <= 0 <= high
};

struct QuantParams {
    DType dtype = DType::u8;
    float scale = 1;
    int64_t zero_point = 0;
    ValueRange range() const;  // of the representable numbers
    bool operator==(const QuantParams&) const = default;
};

// [lowest, highest] integer of a type of up to 16 bits.
std::pair<int64_t, int64_t> integer_range(DType dtype);

struct RangeChoice {
    std::string scheme = "minmax";
    double percentile = 99.99;
    DType dtype = DType::u8;
    bool symmetric = false, power_of_two = false;
};
Result<RangeChoice> range_choice(const QuantizeOptions& options);  // E0501 for unknown names

QuantParams choose_params(const ValueProfile& profile, const RangeChoice& choice);
QuantParams params_of(ValueRange range, const RangeChoice& choice);

// The share of elements outside the range.
double clipped_share(const ValueProfile& profile, ValueRange range);

}  // namespace tessera
