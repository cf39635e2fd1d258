#include "quantize/choose_range.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/nearest.h"

namespace tessera {
namespace {

constexpr int kCandidates = 96;        // ranges that entropy and mse compare
constexpr double kMostClipped = 0.01;  // share of elements that entropy clips: it is blind to how far they are

double width_of(const ValueProfile& v) { return std::ldexp(1.0, v.exponent); }
double begin_of(const ValueProfile& v, size_t bin) { return double(v.first + int64_t(bin)) * width_of(v); }
double middle_of(const ValueProfile& v, size_t bin) {
    return std::clamp(begin_of(v, bin) + 0.5 * width_of(v), v.min, v.max);
}

ValueRange min_max(const ValueProfile& v) { return {std::min(v.min, 0.0), std::max(v.max, 0.0)}; }

// Drops bins from both ends while at most the share remains outside. Zero always stays inside.
ValueRange percentile_range(const ValueProfile& v, double percentile) {
    const auto allowed = int64_t((1 - percentile / 100) * double(v.count) / 2);
    auto end = [&](bool from_below) {
        int64_t outside = 0;
        for (size_t k = 0; k < v.bins.size(); ++k) {
            const size_t bin = from_below ? k : v.bins.size() - 1 - k;
            if (outside + v.bins[bin] > allowed) return bin;
            outside += v.bins[bin];
        }
        return v.bins.size() / 2;
    };
    ValueRange r = min_max(v);
    r.low = std::max(r.low, std::min(begin_of(v, end(true)), 0.0));
    r.high = std::min(r.high, std::max(begin_of(v, end(false)) + width_of(v), 0.0));
    return r;
}

// The mean squared error of rounding and clipping, from the histogram: uniform within a step, exact beyond the range.
double squared_error(const ValueProfile& v, const QuantParams& p) {
    const ValueRange r = p.range();
    const double step = p.scale, within = step * step / 12;
    double sum = 0;
    for (size_t i = 0; i < v.bins.size(); ++i) {
        if (!v.bins[i]) continue;
        const double x = middle_of(v, i);
        const double beyond = x < r.low ? r.low - x : x > r.high ? x - r.high : 0;
        sum += double(v.bins[i]) * (beyond > 0 ? beyond * beyond : x == 0 ? 0 : within);
    }
    return sum / double(v.count);
}

// KL divergence of the values, clipped ones moved to the ends, from what `p` tells of those that are not clipped: the
// elements within a step spread evenly over the bins of the step that have any.
double divergence(const ValueProfile& v, const QuantParams& p) {
    const auto [lowest, highest] = integer_range(p.dtype);
    const auto level = [&](size_t i) { return std::nearbyint(middle_of(v, i) / p.scale) + double(p.zero_point); };
    size_t first = 0, last = v.bins.size() - 1;  // that are not clipped
    while (first < last && level(first) < double(lowest)) ++first;
    while (last > first && level(last) > double(highest)) --last;
    std::vector<double> moved(v.bins.begin(), v.bins.end());
    double inside = double(v.count);
    for (size_t i = 0; i < v.bins.size(); ++i) {
        if (i >= first && i <= last) continue;
        moved[i < first ? first : last] += double(v.bins[i]);
        inside -= double(v.bins[i]);
    }
    if (inside < (1 - kMostClipped) * double(v.count)) return std::numeric_limits<double>::infinity();
    double sum = 0;
    for (size_t i = first; i <= last;) {
        size_t end = i;
        double mass = 0, used = 0;
        for (; end <= last && level(end) == level(i); ++end) mass += double(v.bins[end]), used += v.bins[end] > 0;
        for (; i < end; ++i)
            // A bin that only clipped elements are in is as rare as half an element.
            if (moved[i] > 0)
                sum += moved[i] / double(v.count) *
                       std::log(moved[i] / double(v.count) / ((v.bins[i] ? mass / used : 0.5) / inside));
    }
    return sum;
}

// The best of ranges that shrink both ends, alone and together.
template <typename Loss>
ValueRange best_range(const ValueProfile& v, const RangeChoice& choice, const Loss& loss) {
    const ValueRange all = min_max(v);
    ValueRange best = all;
    double least = loss(v, params_of(all, choice));
    auto consider = [&](ValueRange r) {
        const double found = loss(v, params_of(r, choice));
        if (found < least) least = found, best = r;
    };
    for (int k = kCandidates - 1; k > 0; --k) {
        const double by = double(k) / kCandidates;
        consider({all.low * by, all.high * by});
    }
    if (choice.symmetric || all.low == 0 || all.high == 0) return best;
    const ValueRange together = best;
    for (int k = kCandidates - 1; k > 0; --k) consider({all.low * k / kCandidates, together.high});
    const double low = best.low;
    for (int k = kCandidates - 1; k > 0; --k) consider({low, all.high * k / kCandidates});
    return best;
}

struct NamedType {
    std::string_view name;
    DType dtype;
};
constexpr NamedType kActivationTypes[] = {
    {"uint8", DType::u8}, {"int8", DType::i8}, {"uint16", DType::u16}, {"int16", DType::i16}};

Error unknown_choice(const char* option, const std::string& given, const std::vector<std::string_view>& names) {
    const std::string near = nearest(given, names);
    Error e(Code::E0501, "{} is one of {}, not \"{}\"", option, fmt::join(names, ", "), given);
    return near.empty() ? std::move(e) : std::move(e).hint("did you mean \"{}\"?", near);
}

}  // namespace

std::pair<int64_t, int64_t> integer_range(DType dtype) {
    switch (dtype) {
        case DType::i8: return {-128, 127};
        case DType::i16: return {-32768, 32767};
        case DType::u16: return {0, 65535};
        default: return {0, 255};
    }
}

ValueRange QuantParams::range() const {
    const auto [lowest, highest] = integer_range(dtype);
    return {double(lowest - zero_point) * scale, double(highest - zero_point) * scale};
}

Result<RangeChoice> range_choice(const QuantizeOptions& options) {
    RangeChoice choice{options.scheme, options.percentile, DType::u8, options.symmetric, options.power_of_two};
    const std::vector<std::string_view> schemes = {"minmax", "percentile", "entropy", "mse"};
    if (std::find(schemes.begin(), schemes.end(), options.scheme) == schemes.end())
        return unknown_choice("the scheme", options.scheme, schemes);
    if (!(options.percentile > 50 && options.percentile <= 100))
        return Error(Code::E0501, "expected a percentile above 50 and up to 100, got {}", options.percentile);
    const auto* type = std::find_if(std::begin(kActivationTypes), std::end(kActivationTypes),
                                    [&](const NamedType& t) { return t.name == options.activations; });
    if (type == std::end(kActivationTypes))
        return unknown_choice("the type of activations", options.activations, {"uint8", "int8", "uint16", "int16"});
    choice.dtype = type->dtype;
    if (options.weight_scheme != "minmax" && options.weight_scheme != "mse")
        return unknown_choice("the scheme of weights", options.weight_scheme, {"minmax", "mse"});
    return choice;
}

QuantParams params_of(ValueRange range, const RangeChoice& choice) {
    const auto [lowest, highest] = integer_range(choice.dtype);
    QuantParams p{.dtype = choice.dtype};
    const bool is_unsigned = lowest == 0;
    const int64_t middle = is_unsigned ? (highest + 1) / 2 : 0;
    double scale = 0;
    if (choice.symmetric && range.low < 0)
        scale = std::max(-range.low, range.high) / double(highest - middle);
    else if (choice.symmetric && !is_unsigned)
        scale = range.high / double(highest);
    else
        scale = (range.high - range.low) / double(highest - lowest);
    if (choice.power_of_two && scale > 0) scale = std::exp2(std::ceil(std::log2(scale)));
    if (!(float(scale) > 0) || !std::isnormal(float(scale))) scale = 1;  // a constant zero
    p.scale = float(scale);
    if (choice.symmetric)
        p.zero_point = range.low < 0 ? middle : 0;
    else
        p.zero_point =
            std::clamp(int64_t(std::nearbyint(double(lowest) - range.low / double(p.scale))), lowest, highest);
    return p;
}

QuantParams choose_params(const ValueProfile& profile, const RangeChoice& choice) {
    ValueRange range = min_max(profile);
    if (choice.scheme == "percentile") range = percentile_range(profile, choice.percentile);
    if (choice.scheme == "mse") range = best_range(profile, choice, squared_error);
    if (choice.scheme == "entropy") range = best_range(profile, choice, divergence);
    return params_of(range, choice);
}

double clipped_share(const ValueProfile& profile, ValueRange range) {
    int64_t outside = 0;
    for (size_t i = 0; i < profile.bins.size(); ++i) {
        const double x = middle_of(profile, i);
        if (x < range.low || x > range.high) outside += profile.bins[i];
    }
    return profile.count ? double(outside) / double(profile.count) : 0;
}

}  // namespace tessera
