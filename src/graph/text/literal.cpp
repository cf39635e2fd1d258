#include "graph/text/literal.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <complex>

#include "base/numeric.h"
#include "onnx/utf8.h"

namespace tessera {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

uint64_t element_bits(const Tensor& t, int64_t i) {
    uint64_t bits = 0;
    size_t width = dtype_bytes(t.dtype());
    std::memcpy(&bits, static_cast<const char*>(t.data()) + static_cast<size_t>(i) * width, width);
    return bits;
}

void set_bits(Tensor& t, int64_t i, uint64_t bits) {
    size_t width = dtype_bytes(t.dtype());
    std::memcpy(static_cast<char*>(t.mutable_data()) + static_cast<size_t>(i) * width, &bits, width);
}

// The shortest digits that give the value back, with something in them that says it is no integer.
template <typename T>
std::string decimal(T value) {
    std::string text = fmt::format("{}", value);
    if (text.find_first_of(".en") == std::string::npos) text += ".0";
    return text;
}

template <typename T>
std::string real_text(T value) {
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    return decimal(value);
}

template <typename T>
std::optional<T> number(std::string_view text) {
    T value{};
    if (text.starts_with('+')) text.remove_prefix(1);
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (end != text.data() + text.size() || text.empty()) return std::nullopt;
    if (error == std::errc()) return value;
    if constexpr (std::is_floating_point_v<T>) {
        // Out of range: from_chars says so without a value. strtod gives the 0 or infinity it rounds to.
        if (error == std::errc::result_out_of_range) {
            std::string copy(text);
            if constexpr (sizeof(T) == 4)
                return std::strtof(copy.c_str(), nullptr);
            else
                return std::strtod(copy.c_str(), nullptr);
        }
    }
    return std::nullopt;
}

std::optional<uint64_t> hexadecimal(std::string_view text) {
    if (!text.starts_with("0x")) return std::nullopt;
    uint64_t bits = 0;
    auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), bits, 16);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return bits;
}

template <typename T>
std::optional<T> real(std::string_view text) {
    if (text == "nan") return std::numeric_limits<T>::quiet_NaN();
    if (text == "inf") return std::numeric_limits<T>::infinity();
    if (text == "-inf") return -std::numeric_limits<T>::infinity();
    if (text.find_first_of("nN") != std::string_view::npos) return std::nullopt;  // from_chars takes other spellings
    return number<T>(text);
}

}  // namespace

std::string quote(std::string_view text) {
    bool utf8 = onnx::is_utf8(text);
    std::string out = "\"";
    for (char c : text) {
        auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\')
            out += fmt::format("\\{}", c);
        else if (c == '\n')
            out += "\\n";
        else if (c == '\t')
            out += "\\t";
        else if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !utf8))
            out += fmt::format("\\x{:02x}", byte);
        else
            out += c;
    }
    return out + "\"";
}

bool is_name_text(std::string_view name) {
    return !name.empty() &&
           std::all_of(name.begin(), name.end(), [](char c) { return is_letter(c) || is_digit(c) || c == '.'; });
}

bool is_plain_name(std::string_view name) {
    static constexpr std::string_view kTaken[] = {"_",     "true",   "false", "nan",  "inf",
                                                  "graph", "return", "const", "data", "weights"};
    if (!is_name_text(name) || !is_letter(name[0])) return false;
    return std::find(std::begin(kTaken), std::end(kTaken), name) == std::end(kTaken);
}

std::string float_text(float value) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    if (std::isnan(value))
        return bits == std::bit_cast<uint32_t>(std::numeric_limits<float>::quiet_NaN()) ? "nan"
                                                                                        : fmt::format("0x{:x}", bits);
    return real_text(value);
}

std::string element_text(const Tensor& t, int64_t i) {
    DType dtype = t.dtype();
    if (dtype == DType::string) return quote(t.as_strings()[static_cast<size_t>(i)]);
    if (dtype == DType::c64) {
        auto v = t.as<std::complex<float>>()[static_cast<size_t>(i)];
        return fmt::format("({},{})", float_text(v.real()), float_text(v.imag()));
    }
    if (dtype == DType::c128) {
        auto v = t.as<std::complex<double>>()[static_cast<size_t>(i)];
        auto part = [](double d) {
            return std::isnan(d) ? fmt::format("0x{:x}", std::bit_cast<uint64_t>(d)) : real_text(d);
        };
        return fmt::format("({},{})", part(v.real()), part(v.imag()));
    }
    if (dtype == DType::boolean) return t.int_at(i) ? "true" : "false";
    if (dtype == DType::u64) return fmt::format("{}", static_cast<uint64_t>(t.int_at(i)));
    if (!is_float(dtype)) return fmt::format("{}", t.int_at(i));
    uint64_t bits = element_bits(t, i);
    if (dtype == DType::f32) return float_text(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    double value = float_from_bits(dtype, bits);
    if (std::isnan(value))
        return bits == float_to_bits(dtype, std::numeric_limits<double>::quiet_NaN()) ? "nan"
                                                                                      : fmt::format("0x{:x}", bits);
    // A narrower type's value is a float's; the float's shortest digits are nearer to it than to any other of its type.
    std::string text = dtype == DType::f64 ? real_text(value) : real_text(static_cast<float>(value));
    auto back = real<double>(text);
    return back && float_to_bits(dtype, *back) == bits ? text : fmt::format("0x{:x}", bits);
}

std::optional<int64_t> int_from_text(std::string_view text) {
    if (text.starts_with("0x")) {
        auto bits = hexadecimal(text);
        if (!bits || *bits > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
        return static_cast<int64_t>(*bits);
    }
    return number<int64_t>(text);
}

std::optional<float> float_from_text(std::string_view text) {
    if (text.starts_with("0x")) {
        auto bits = hexadecimal(text);
        if (!bits || *bits > UINT32_MAX) return std::nullopt;
        return std::bit_cast<float>(static_cast<uint32_t>(*bits));
    }
    return real<float>(text);
}

bool set_element(Tensor& t, int64_t i, std::string_view text) {
    DType dtype = t.dtype();
    if (is_complex(dtype)) {
        if (text.size() < 5 || text.front() != '(' || text.back() != ')') return false;
        text = text.substr(1, text.size() - 2);
        size_t comma = text.find(',');
        if (comma == std::string_view::npos) return false;
        std::string_view parts[2] = {text.substr(0, comma), text.substr(comma + 1)};
        for (int k = 0; k < 2; ++k) {
            while (parts[k].starts_with(' ')) parts[k].remove_prefix(1);
            size_t at = static_cast<size_t>(2 * i + k);
            if (dtype == DType::c64) {
                auto v = float_from_text(parts[k]);
                if (!v) return false;
                std::memcpy(static_cast<char*>(t.mutable_data()) + at * 4, &*v, 4);
            } else {
                auto bits = hexadecimal(parts[k]);
                auto v = bits ? std::optional(std::bit_cast<double>(*bits)) : real<double>(parts[k]);
                if (!v) return false;
                std::memcpy(static_cast<char*>(t.mutable_data()) + at * 8, &*v, 8);
            }
        }
        return true;
    }
    if (is_float(dtype)) {
        if (auto bits = hexadecimal(text)) {
            int width = dtype_bits(dtype);
            if (width < 64 && *bits >> width) return false;
            set_bits(t, i, *bits);
            return true;
        }
        if (dtype == DType::f32) {  // not by way of double, which would round twice
            auto v = real<float>(text);
            if (v) set_bits(t, i, std::bit_cast<uint32_t>(*v));
            return v.has_value();
        }
        auto v = real<double>(text);
        if (v) set_bits(t, i, float_to_bits(dtype, *v));
        return v.has_value();
    }
    if (dtype == DType::boolean) {
        if (text != "true" && text != "false" && text != "0" && text != "1") return false;
        t.set_int(i, text == "true" || text == "1");
        return true;
    }
    if (dtype == DType::u64) {
        auto v = text.starts_with("0x") ? hexadecimal(text) : number<uint64_t>(text);
        if (v) t.set_int(i, static_cast<int64_t>(*v));
        return v.has_value();
    }
    auto v = int_from_text(text);
    if (!v || *v < int_min(dtype) || *v > int_max(dtype)) return false;
    t.set_int(i, *v);
    return true;
}

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string base64(const void* data, size_t size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    std::string out;
    out.reserve((size + 2) / 3 * 4);
    for (size_t i = 0; i < size; i += 3) {
        size_t n = std::min<size_t>(3, size - i);
        uint32_t group =
            uint32_t{bytes[i]} << 16 | (n > 1 ? uint32_t{bytes[i + 1]} << 8 : 0) | (n > 2 ? bytes[i + 2] : 0);
        out += kDigits[group >> 18];
        out += kDigits[group >> 12 & 63];
        out += n > 1 ? kDigits[group >> 6 & 63] : '=';
        out += n > 2 ? kDigits[group & 63] : '=';
    }
    return out;
}

std::optional<std::string> from_base64(std::string_view text) {
    static const auto kValues = [] {
        std::array<int8_t, 256> values;
        values.fill(-1);
        for (size_t i = 0; i < kDigits.size(); ++i)
            values[static_cast<unsigned char>(kDigits[i])] = static_cast<int8_t>(i);
        return values;
    }();
    if (text.size() % 4 != 0) return std::nullopt;
    std::string out;
    out.reserve(text.size() / 4 * 3);
    for (size_t i = 0; i < text.size(); i += 4) {
        size_t n = 4;
        if (i + 4 == text.size()) n -= text[i + 3] == '=' ? (text[i + 2] == '=' ? 2 : 1) : 0;
        uint32_t group = 0;
        for (size_t k = 0; k < 4; ++k) {
            int value = k < n ? kValues[static_cast<unsigned char>(text[i + k])] : 0;
            if (value < 0) return std::nullopt;
            group = group << 6 | static_cast<uint32_t>(value);
        }
        out += static_cast<char>(group >> 16);
        if (n > 2) out += static_cast<char>(group >> 8 & 255);
        if (n > 3) out += static_cast<char>(group & 255);
    }
    return out;
}

}  // namespace tessera
