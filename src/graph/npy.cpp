#include "graph/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>

#include "onnx/file.h"
#include "onnx/utf8.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxHeader = 1 << 20;

template <typename... Args>
Error malformed(fmt::format_string<Args...> text, Args&&... args) {
    return Error(Code::E0110, "not a usable .npy file: {}", fmt::format(text, std::forward<Args>(args)...));
}

struct Header {
    std::string descr;
    bool fortran_order = false;
    Sizes shape;
};

// The header is a Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class HeaderParser {
  public:
    explicit HeaderParser(std::string_view text) : rest_(text) {}

    Result<Header> parse() {
        Header header;
        bool has_descr = false, has_order = false, has_shape = false;
        if (!take("{")) return malformed("its header is no dictionary");
        while (!take("}")) {
            std::string key = TRY(quoted());
            if (!take(":")) return malformed("no value for '{}' in its header", key);
            if (key == "descr") {
                if (peek() == '[') return malformed("it holds records, not numbers");
                header.descr = TRY(quoted());
                has_descr = true;
            } else if (key == "fortran_order") {
                header.fortran_order = take("True");
                if (!header.fortran_order && !take("False"))
                    return malformed("fortran_order is neither True nor False");
                has_order = true;
            } else if (key == "shape") {
                header.shape = TRY(tuple());
                has_shape = true;
            } else {
                return malformed("its header has an unknown entry '{}'", key);
            }
            if (!take(",") && peek() != '}') return malformed("its header does not end");
        }
        if (!has_descr || !has_order || !has_shape) return malformed("its header lacks descr, fortran_order or shape");
        return header;
    }

  private:
    void skip_space() {
        size_t n = rest_.find_first_not_of(" \t\r\n");
        rest_.remove_prefix(std::min(n, rest_.size()));
    }
    char peek() {
        skip_space();
        return rest_.empty() ? '\0' : rest_[0];
    }
    bool take(std::string_view word) {
        skip_space();
        if (!rest_.starts_with(word)) return false;
        rest_.remove_prefix(word.size());
        return true;
    }
    Result<std::string> quoted() {
        char quote = peek();
        if (quote != '\'' && quote != '"') return malformed("a quote is missing in its header");
        size_t end = rest_.find(quote, 1);
        if (end == std::string_view::npos) return malformed("a quote is not closed in its header");
        std::string text(rest_.substr(1, end - 1));
        rest_.remove_prefix(end + 1);
        return text;
    }
    Result<Sizes> tuple() {
        if (!take("(")) return malformed("its shape is no tuple");
        Sizes sizes;
        while (!take(")")) {
            skip_space();
            int64_t n = 0;
            auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), n);
            if (error != std::errc() || n < 0) return malformed("its shape has an entry that is no size");
            rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
            take("L");  // as Python 2 wrote it
            sizes.push_back(n);
            if (sizes.size() > kMaxRank) return malformed("it has more than {} dimensions", kMaxRank);
            if (!take(",") && peek() != ')') return malformed("its shape does not end");
        }
        return sizes;
    }

    std::string_view rest_;
};

// How elements lie in the file.
struct ElementLayout {
    DType dtype = DType::f32;
    size_t width = 0;      // bytes an element takes in the file
    char kind = 'f';       // NumPy's: b i u f c V U S
    bool swapped = false;  // big-endian
};

Result<ElementLayout> layout_of(const std::string& descr, std::optional<DType> expected) {
    std::string_view d = descr;
    if (d.empty()) return malformed("its element type is empty");
    ElementLayout layout;
    if (d[0] == '<' || d[0] == '>' || d[0] == '|' || d[0] == '=') {
        layout.swapped = d[0] == '>';
        d.remove_prefix(1);
    }
    if (d.empty()) return malformed("its element type is '{}'", descr);
    layout.kind = d[0];
    size_t n = 0;
    auto [end, error] = std::from_chars(d.data() + 1, d.data() + d.size(), n);
    if (layout.kind == 'O') return malformed("it holds Python objects").hint("save an array of numbers or strings");
    if (error != std::errc() || end != d.data() + d.size() || n == 0 || n > (size_t{1} << 24))
        return malformed("its element type is '{}'", descr);
    layout.width = layout.kind == 'U' ? n * 4 : n;
    auto pick = [&](std::initializer_list<DType> types) -> Result<ElementLayout> {
        for (DType t : types)
            if (dtype_bytes(t) == n) {
                layout.dtype = t;
                return layout;
            }
        return malformed("elements of type '{}' are not supported", descr);
    };
    switch (layout.kind) {
        case 'f': return pick({DType::f64, DType::f32, DType::f16});
        case 'i': return pick({DType::i64, DType::i32, DType::i16, DType::i8});
        case 'u': return pick({DType::u64, DType::u32, DType::u16, DType::u8});
        case 'c': return pick({DType::c64, DType::c128});
        case 'b': return pick({DType::boolean});
        case 'U':
        case 'S': layout.dtype = DType::string; return layout;
        case 'V':
            if (expected && *expected != DType::string && dtype_bytes(*expected) == n) return pick({*expected});
            if (n == 2 && !expected) return pick({DType::bf16});
            return malformed("elements are {} raw bytes ('{}'), which is not what is expected", n, descr);
        default: return malformed("elements of type '{}' are not supported", descr);
    }
}

void append_utf8(std::string& out, uint32_t c) {
    if (c < 0x80) {
        out += static_cast<char>(c);
    } else if (c < 0x800) {
        out += {static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 0x3f))};
    } else if (c < 0x10000) {
        out += {static_cast<char>(0xe0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3f)),
                static_cast<char>(0x80 | (c & 0x3f))};
    } else {
        out += {static_cast<char>(0xf0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 0x3f)),
                static_cast<char>(0x80 | (c >> 6 & 0x3f)), static_cast<char>(0x80 | (c & 0x3f))};
    }
}

uint32_t next_utf8(std::string_view text, size_t& i) {
    auto c = static_cast<unsigned char>(text[i++]);
    int more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : c >= 0xc0 ? 1 : 0;
    uint32_t code = more == 3 ? c & 7u : more == 2 ? c & 15u : more == 1 ? c & 31u : c;
    for (; more > 0 && i < text.size(); --more) code = code << 6 | (static_cast<unsigned char>(text[i++]) & 0x3fu);
    return code;
}

Result<std::string> read_string(const char* p, const ElementLayout& layout) {
    std::string_view raw(p, layout.width);
    if (layout.kind == 'S') return std::string(raw.substr(0, raw.find_last_not_of('\0') + 1));
    std::vector<uint32_t> codes(layout.width / 4);
    for (size_t i = 0; i < codes.size(); ++i) {
        std::memcpy(&codes[i], p + 4 * i, 4);
        if (layout.swapped) codes[i] = __builtin_bswap32(codes[i]);
        if (codes[i] > 0x10ffff) return malformed("a string has a character outside Unicode");
    }
    while (!codes.empty() && codes.back() == 0) codes.pop_back();
    std::string text;
    for (uint32_t c : codes) append_utf8(text, c);
    return text;
}

void swap_bytes(std::span<char> bytes, size_t width) {
    for (size_t i = 0; i + width <= bytes.size(); i += width) std::reverse(&bytes[i], &bytes[i] + width);
}

// Types narrower than a byte keep only their bits, and integers their sign.
void mask_narrow(Tensor& t) {
    int bits = dtype_bits(t.dtype());
    if (bits >= 8 || t.dtype() == DType::boolean) return;
    for (uint8_t& b : t.mutable_as<uint8_t>()) {
        b = static_cast<uint8_t>(b & ((1 << bits) - 1));
        if (is_signed_int(t.dtype()) && b >> (bits - 1)) b = static_cast<uint8_t>(b - (1 << bits));
    }
}

// Calls each(to, from) with the row-major place and the column-major place of every element.
template <typename Each>
Status column_major(const Sizes& sizes, int64_t count, Each each) {
    Sizes at(sizes.size(), 0), stride(sizes.size(), 1);
    for (size_t d = 1; d < sizes.size(); ++d) stride[d] = stride[d - 1] * sizes[d - 1];
    int64_t from = 0;
    for (int64_t to = 0; to < count; ++to) {
        TRY(each(to, from));
        for (size_t d = sizes.size(); d-- > 0;) {
            from += stride[d];
            if (++at[d] < sizes[d]) break;
            from -= stride[d] * sizes[d];
            at[d] = 0;
        }
    }
    return {};
}

}  // namespace

Result<Tensor> read_npy(std::string_view bytes, std::optional<DType> expected) {
    if (!bytes.starts_with(kMagic)) return malformed("it does not start as one");
    if (bytes.size() < 10) return malformed("it ends inside its header");
    int version = static_cast<unsigned char>(bytes[6]);
    size_t prefix = version == 1 ? 10 : 12, length = 0;
    if (version < 1 || version > 3) return malformed("version {} is unknown", version);
    if (bytes.size() < prefix) return malformed("it ends inside its header");
    for (size_t i = prefix; i-- > 8;) length = length << 8 | static_cast<unsigned char>(bytes[i]);
    if (length > kMaxHeader || length > bytes.size() - prefix)
        return malformed("its header of {} bytes is not all there", length);
    Header header = TRY(HeaderParser(bytes.substr(prefix, length)).parse());
    ElementLayout layout = TRY(layout_of(header.descr, expected));
    auto counted = element_count(header.shape);
    if (!counted.ok()) return malformed("its shape {} is too large", to_string(header.shape));
    int64_t count = *counted;
    std::string_view data = bytes.substr(prefix + length);
    if (count > static_cast<int64_t>(data.size() / layout.width))
        return malformed("it has {} bytes where {} of shape {} takes more", data.size(), header.descr,
                         to_string(header.shape));
    Tensor tensor = TRY(Tensor::zeros(layout.dtype, header.shape));
    bool turned = header.fortran_order && header.shape.size() > 1;
    auto each = [&](auto copy) -> Status {
        if (turned) return column_major(header.shape, count, copy);
        for (int64_t i = 0; i < count; ++i) TRY(copy(i, i));
        return {};
    };
    if (layout.dtype == DType::string) {
        std::vector<std::string>& out = tensor.mutable_strings();
        TRY(each([&](int64_t to, int64_t from) -> Status {
            out[size_t(to)] = TRY(read_string(data.data() + size_t(from) * layout.width, layout));
            return {};
        }));
        return tensor;
    }
    char* out = static_cast<char*>(tensor.mutable_data());
    if (turned) {
        TRY(each([&](int64_t to, int64_t from) -> Status {
            std::memcpy(out + size_t(to) * layout.width, data.data() + size_t(from) * layout.width, layout.width);
            return {};
        }));
    } else if (count > 0) {
        std::memcpy(out, data.data(), size_t(count) * layout.width);
    }
    if (layout.swapped)
        swap_bytes({out, size_t(count) * layout.width}, is_complex(layout.dtype) ? layout.width / 2 : layout.width);
    if (layout.dtype == DType::boolean)
        for (uint8_t& b : tensor.mutable_as<uint8_t>()) b = b != 0;
    mask_narrow(tensor);
    return tensor;
}

Result<Tensor> read_npy_file(const std::filesystem::path& path, std::optional<DType> expected) {
    auto file = TRY(onnx::MappedFile::open(path));
    if (file->bytes().empty()) return Error(Code::E0102, "the file is empty").at(path.string());
    auto tensor = read_npy(file->bytes(), expected);
    if (!tensor.ok()) tensor.error().at(path.string());
    return tensor;
}

Result<std::string> npy_bytes(const Tensor& tensor) {
    std::string descr, payload;
    DType t = tensor.dtype();
    size_t width = dtype_bytes(t);
    if (t == DType::string) {
        std::vector<std::vector<uint32_t>> rows;
        size_t longest = 1;
        for (const std::string& s : tensor.as_strings()) {
            if (!onnx::is_utf8(s))
                return Error(Code::E0110, "a string that is not UTF-8 cannot be written to a .npy file");
            std::vector<uint32_t> codes;
            for (size_t i = 0; i < s.size();) codes.push_back(next_utf8(s, i));
            longest = std::max(longest, codes.size());
            rows.push_back(std::move(codes));
        }
        if (rows.size() > (size_t{1} << 32) / longest)
            return Error(Code::E0108, "{} strings of up to {} characters are too large for a .npy file", rows.size(),
                         longest);
        payload.assign(rows.size() * longest * 4, '\0');
        for (size_t r = 0; r < rows.size(); ++r)
            if (!rows[r].empty()) std::memcpy(&payload[r * longest * 4], rows[r].data(), rows[r].size() * 4);
        descr = fmt::format("<U{}", longest);
    } else {
        bool raw = t == DType::bf16 || kNarrowFloats.has(t) || dtype_bits(t) < 8;
        char kind = t == DType::boolean ? 'b'
                    : raw               ? 'V'
                    : is_float(t)       ? 'f'
                    : is_complex(t)     ? 'c'
                    : is_signed_int(t)  ? 'i'
                                        : 'u';
        descr = fmt::format("{}{}{}", width > 1 || kind == 'V' ? '<' : '|', kind, width);
        if (tensor.elements() > 0)
            payload.assign(static_cast<const char*>(tensor.data()), static_cast<size_t>(tensor.bytes()));
    }
    std::string shape;
    for (int64_t n : tensor.sizes()) shape += fmt::format("{}{}", n, tensor.rank() == 1 ? "," : ", ");
    if (tensor.rank() > 1) shape.resize(shape.size() - 2);
    std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, shape);
    header.append(63 - (10 + header.size()) % 64, ' ');  // the data starts at a multiple of 64
    header += '\n';
    std::string bytes(kMagic);
    bytes += {'\x01', '\x00', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
    return bytes + header + payload;
}

}  // namespace tessera
