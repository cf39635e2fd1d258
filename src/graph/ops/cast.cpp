// Conversions between element types: cast, cast_like, bit_cast.
#include <charconv>
#include <cmath>
#include <limits>

#include "base/numeric.h"
#include "graph/evaluate/evaluate.h"
#include "graph/ops/common.h"
#include "graph/ops/families.h"
#include "onnx/dtypes.h"

namespace tessera {
namespace {

constexpr DTypes kCastTypes = kAllTypes.without(kComplex);
constexpr DTypes kSaturating{DType::f8e4m3fn, DType::f8e4m3fnuz, DType::f8e5m2, DType::f8e5m2fnuz};

std::string number_text(DType t, const Tensor& x, int64_t i) {
    if (t == DType::u64) return fmt::format("{}", uint64_t(x.int_at(i)));
    if (!is_float(t)) return fmt::format("{}", x.int_at(i));
    double v = x.real_at(i);
    if (std::isnan(v)) return "NaN";
    if (std::isinf(v)) return v < 0 ? "-INF" : "INF";
    // A plain decimal, never with an exponent, that reads back as the same value.
    char text[512];
    auto end = t == DType::f64 ? std::to_chars(text, text + sizeof text, v, std::chars_format::fixed)
                               : std::to_chars(text, text + sizeof text, float(v), std::chars_format::fixed);
    std::string s(text, end.ptr);
    return s.find('.') == std::string::npos ? s + ".0" : s;
}

std::optional<double> parse_real(std::string_view s) {
    if (s.starts_with('+')) s.remove_prefix(1);
    double v = 0;
    auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v);  // takes inf and nan in any case
    if (s.empty() || end != s.data() + s.size()) return std::nullopt;
    if (error == std::errc::result_out_of_range) {
        // Too large or too small for a double: from_chars leaves v alone.
        size_t e = s.find_first_of("eE");
        bool tiny = e != std::string_view::npos && e + 1 < s.size() && s[e + 1] == '-';
        v = tiny ? 0 : std::numeric_limits<double>::infinity();
        return s.starts_with('-') ? -v : v;
    }
    if (error != std::errc()) return std::nullopt;
    return v;
}

std::optional<int64_t> parse_int(std::string_view s, bool is_unsigned) {
    if (s.starts_with('+')) s.remove_prefix(1);
    auto whole = [&](auto& v) {
        auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v);
        return error == std::errc() && end == s.data() + s.size();
    };
    int64_t v = 0;
    if (whole(v)) return v;
    uint64_t u = 0;
    if (is_unsigned && whole(u)) return int64_t(u);
    return std::nullopt;
}

Result<Tensor> from_strings(const OpView& op, const Tensor& x, DType to) {
    Tensor y = TRY(Tensor::zeros(to, x.sizes()));
    for (int64_t i = 0; i < x.elements(); ++i) {
        const std::string& s = x.as_strings()[i];
        if (to == DType::string) {
            y.mutable_strings()[i] = s;
        } else if (auto n = is_float(to) ? std::nullopt : parse_int(s, is_unsigned_int(to))) {
            y.set_int(i, *n);
        } else if (auto v = parse_real(s)) {
            y.set_real(i, *v);
        } else {
            return op.error(Code::E0407, "\"{}\" (element {}) is not a number", s.substr(0, 64), i);
        }
    }
    return y;
}

// Powers of two from 2^-127 to 2^127, and NaN. The sign is dropped.
uint8_t e8m0_bits(double x, bool saturate, const std::string& round_mode) {
    constexpr uint8_t kNan = 0xFF, kMax = 0xFE;
    if (std::isnan(x)) return kNan;
    x = std::fabs(x);
    if (std::isinf(x)) return saturate ? kMax : kNan;
    if (x == 0) return saturate ? 0 : kNan;
    int exponent = 0;
    double fraction = 2 * std::frexp(x, &exponent);  // in [1, 2)
    exponent -= 1;
    bool up = round_mode == "up" ? fraction > 1 : round_mode == "nearest" && fraction >= 1.5;
    int biased = exponent + up + 127;
    if (biased > kMax) return saturate ? kMax : kNan;
    if (biased < 0) return saturate ? 0 : kNan;
    return uint8_t(biased);
}

Result<std::vector<Datum>> evaluate_cast(const OpView& op, EvalContext& context) {
    const Tensor& x = context.tensor(0);
    DType to = op.out().dtype;
    TRY(context.spend(x.elements()));
    if (x.dtype() == DType::string) return std::vector<Datum>{TRY(from_strings(op, x, to))};
    Tensor y = TRY(Tensor::zeros(to, x.sizes()));
    if (to == DType::string) {
        for (int64_t i = 0; i < x.elements(); ++i) y.mutable_strings()[i] = number_text(x.dtype(), x, i);
    } else {
        CHECK(to == DType::f8e8m0);
        bool saturate = op.integer("saturate");
        auto bits = y.mutable_as<uint8_t>();
        for (int64_t i = 0; i < x.elements(); ++i) bits[i] = e8m0_bits(x.real_at(i), saturate, op.string("round_mode"));
    }
    return std::vector<Datum>{std::move(y)};
}

AttrDef round_mode_attr() { return string_attr("round_mode", "up").one_of({"up", "down", "nearest"}); }

// In opset 1 the type was given by name.
Status type_by_number(OnnxCall& call) {
    auto it = call.attrs.find("to");
    if (it == call.attrs.end() || !std::holds_alternative<std::string>(it->second)) return {};
    const std::string& name = std::get<std::string>(it->second);
    for (int i = 0; i < kDTypeCount; ++i) {
        DType t = static_cast<DType>(i);
        if (onnx::data_type_name(onnx::dtype_to_onnx(t)) != name) continue;
        call.attrs["to"] = dtype_attr_value(t);
        return {};
    }
    return Error(Code::E0213, "Cast: \"{}\" is not a known element type", name);
}

Status type_by_name(OnnxCall& call) {
    call.attrs["to"] = onnx::data_type_name(int32_t(std::get<int64_t>(call.attrs.at("to"))));
    return {};
}

OnnxChange saturate_added() { return attr_added(19, "saturate", Attr(int64_t{1})); }
OnnxChange round_mode_added() { return attr_added(24, "round_mode", Attr(std::string("up"))); }

const OpDef kCast{
    .name = "cast",
    .inputs = {"x: T"},
    .outputs = {"y: *"},
    .attrs = {int_attr("to").required(), int_attr("saturate", 1), round_mode_attr()},
    .types = {{"T", kCastTypes}},
    .traits = {Trait::Pure, Trait::Elementwise, Trait::InfersUnranked},
    .onnx = {"Cast", {{6, type_by_number, type_by_name}, saturate_added(), round_mode_added()}},
    .infer = [](const OpView& op) -> Result<Types> {
        DType to = TRY(dtype_attr(op, "to"));
        if (is_complex(to)) return op.error(Code::E0213, "cannot convert to {}", dtype_name(to));
        return Types(Type(to, op.shape(0)));
    },
    .body =
        [](const OpView& op, const Indices& o) {
            DType to = op.out().dtype;
            Expr x = op.in(0).at(o);
            return kSaturating.has(to) && op.integer("saturate") ? cast_saturate(x, to) : cast(x, to);
        },
    .evaluate = evaluate_cast,
    .body_applies =
        [](const OpView& op) {
            DType from = op.dtype(0), to = op.out().dtype;
            return from == to || (from != DType::string && to != DType::string && to != DType::f8e8m0);
        },
    .gradient = [](const Backward& r) -> Gradients { return {r.b.cast(r.g, r.in[0]->type().tensor().dtype)}; },
    .layout = Layout::AsInputs,
};

const OpDef kCastLike{
    .name = "cast_like",
    .inputs = {"x: T", "like: U"},
    .outputs = {"y: U"},
    .attrs = {int_attr("saturate", 1), round_mode_attr()},
    .types = {{"T", kCastTypes}, {"U", kCastTypes}},
    .traits = {Trait::Pure, Trait::Elementwise, Trait::Movement},
    .onnx = {"CastLike", {saturate_added(), round_mode_added()}},
    .infer = [](const OpView& op) -> Result<Types> { return op.like(1, op.shape(0)); },
    .expand = [](const OpView& op, const std::vector<Value*>& in, Builder& b) -> Result<std::vector<Value*>> {
        return b.finish({b.op("cast", {in[0]},
                              {{"to", dtype_attr_value(op.dtype(1))},
                               {"saturate", Attr(op.integer("saturate"))},
                               {"round_mode", Attr(op.string("round_mode"))}})});
    },
};

// As ONNX counts: a bool is a byte.
int width(DType t) { return t == DType::boolean ? 8 : dtype_bits(t); }

const OpDef kBitCast{
    .name = "bit_cast",
    .inputs = {"x: T"},
    .outputs = {"y: *"},
    .attrs = {int_attr("to").required()},
    .types = {{"T", kAllTypes.without(DType::string)}},
    .traits = {Trait::Pure, Trait::Elementwise, Trait::InfersUnranked},
    .onnx = "BitCast",
    .infer = [](const OpView& op) -> Result<Types> {
        DType to = TRY(dtype_attr(op, "to"));
        if (to == DType::string || width(to) != width(op.dtype(0)))
            return op.error(Code::E0212, "{} and {} do not have the same width", dtype_name(op.dtype(0)),
                            dtype_name(to));
        return Types(Type(to, op.shape(0)));
    },
    .evaluate = [](const OpView& op, EvalContext& context) -> Result<std::vector<Datum>> {
        const Tensor& x = context.tensor(0);
        DType to = op.out().dtype;
        if (width(to) >= 8 && to != DType::boolean)
            return std::vector<Datum>{Tensor::view(to, x.sizes(), x.data(), x.owner())};
        // In memory an element takes a byte: signed ones with their sign extended, a bool 0 or 1.
        Tensor y = TRY(Tensor::zeros(to, x.sizes()));
        auto in = x.as<uint8_t>();
        auto out = y.mutable_as<uint8_t>();
        for (int64_t i = 0; i < x.elements(); ++i) {
            uint8_t bits = width(to) < 8 ? in[i] & ((1 << width(to)) - 1) : in[i];
            if (is_float(to))
                out[i] = bits;
            else
                y.set_int(i, bits);
        }
        return std::vector<Datum>{std::move(y)};
    },
};

}  // namespace

std::vector<OpDef> cast_ops() {
    return {kCast, kCastLike, without_gradient(kBitCast, "it reads bits as another type")};
}

}  // namespace tessera
