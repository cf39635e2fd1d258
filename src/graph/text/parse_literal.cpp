// Types and values of the text form.
#include <algorithm>

#include "base/numeric.h"
#include "graph/text/literal.h"
#include "graph/text/parser.h"
#include "onnx/file.h"
#include "onnx/utf8.h"

namespace tessera {
namespace {

constexpr int kMaxTypeDepth = 32;

// The parts between commas that stand in no brackets and no quotes.
std::vector<std::string_view> split_dims(std::string_view text) {
    std::vector<std::string_view> parts;
    size_t begin = 0;
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < text.size(); ++i) {
        char c = text[i];
        if (quoted && c == '\\')
            ++i;
        else if (c == '`')
            quoted = !quoted;
        else if (!quoted && c == '(')
            ++depth;
        else if (!quoted && c == ')')
            --depth;
        else if (!quoted && c == ',' && depth == 0) {
            parts.push_back(text.substr(begin, i - begin));
            begin = i + 1;
        }
    }
    std::string_view last = text.substr(std::min(begin, text.size()));
    if (!parts.empty() || last.find_first_not_of(' ') != std::string_view::npos) parts.push_back(last);
    return parts;
}

// Bytes from outside hold only values the type has.
bool values_fit(const Tensor& t) {
    int bits = dtype_bits(t.dtype());
    if (bits >= 8) return true;
    const auto* bytes = static_cast<const uint8_t*>(t.data());
    for (int64_t i = 0; i < t.elements(); ++i) {
        bool fits = is_signed_int(t.dtype())
                        ? int_wrap(t.dtype(), static_cast<int8_t>(bytes[i])) == static_cast<int8_t>(bytes[i])
                        : bytes[i] >> bits == 0;
        if (!fits) return false;
    }
    return true;
}

}  // namespace

Result<Type> TextParser::parse_type() {
    size_t at = scan_.at();
    std::vector<bool> wrappers;  // true: a sequence
    for (;;) {
        bool sequence = scan_.take_word("seq");
        if (!sequence && !scan_.take_word("optional")) break;
        TRY(scan_.expect("("));
        wrappers.push_back(sequence);
        if (wrappers.size() > kMaxTypeDepth) return scan_.error(at, Code::E0109, "the type is nested too deeply");
    }
    size_t place = scan_.at();
    auto dtype = dtype_from_name(scan_.word());
    if (!dtype) return scan_.syntax(place, "a type (f32[N,3], seq(...), optional(...))");
    TRY(scan_.expect("["));
    Shape shape;
    size_t dims_at = scan_.at();
    std::string_view dims = scan_.until_bracket();
    if (dims == "...") {
        shape = Shape::unknown();
    } else {
        for (std::string_view text : split_dims(dims)) {
            auto dim = parse_dim(text);
            if (!dim) return scan_.error(dims_at, Code::E0301, "'{}' is no dimension", text);
            if (auto n = dim->as_int(); n && *n < 0)
                return scan_.error(dims_at, Code::E0301, "a dimension cannot be {}", *n);
            for (const std::string& name : free_symbols(*dim))
                if (!onnx::is_utf8(name)) return scan_.error(dims_at, Code::E0301, "a dimension's name must be UTF-8");
            shape.push_back(std::move(*dim));
        }
    }
    TRY(scan_.expect("]"));
    Type type(*dtype, std::move(shape));
    while (!wrappers.empty()) {
        TRY(scan_.expect(")"));
        type = wrappers.back() ? Type::sequence(std::move(type)) : Type::optional(std::move(type));
        wrappers.pop_back();
    }
    return type;
}

// One level of brackets, the first already taken; `rank` is how many are open.
Status TextParser::parse_list(Literal& literal, size_t rank) {
    size_t at = scan_.at();
    if (rank > kMaxRank) return scan_.error(at, Code::E0109, "lists are nested deeper than {} levels", kMaxRank);
    int64_t count = 0;
    bool lists = false;
    for (; !scan_.take("]"); ++count) {
        if (count > 0) TRY(scan_.expect(","));
        size_t place = scan_.at();
        bool list = scan_.take("[");
        if (count > 0 && list != lists) return scan_.error(place, Code::E0301, "lists and single values in one list");
        lists = list;
        if (list) {
            TRY(parse_list(literal, rank + 1));
            continue;
        }
        if (literal.sizes.size() > rank)
            return scan_.error(place, Code::E0301, "lists and single values in one tensor");
        if (scan_.peek() == '"') {
            literal.kind = Literal::Kind::Strings;
            literal.strings.push_back(TRY(scan_.string()));
        } else if (scan_.take("(")) {
            TRY(parse_list_pair(literal, place));
        } else {
            std::string_view word =
                scan_.next_is_word("true") || scan_.next_is_word("false") ? scan_.word() : scan_.number();
            if (word.empty()) return scan_.syntax(place, "a number, a string or a list");
            literal.numbers.push_back(word);
        }
    }
    if (literal.sizes.size() < rank) literal.sizes.resize(rank, -1);
    int64_t& size = literal.sizes[rank - 1];
    if (size >= 0 && size != count)
        return scan_.error(at, Code::E0301, "lists of {} and {} items in one tensor", size, count);
    size = count;
    return {};
}

Status TextParser::parse_list_pair(Literal& literal, size_t place) {
    for (const char* end : {",", ")"}) {
        size_t at = scan_.at();
        if (scan_.number().empty()) return scan_.syntax(at, "a number");
        TRY(scan_.expect(end));
    }
    literal.numbers.push_back(scan_.since(place));
    return {};
}

Result<TextParser::Literal> TextParser::parse_literal() {
    Literal literal;
    literal.at = scan_.at();
    if (scan_.take("[")) {
        TRY(parse_list(literal, 1));
        if (!literal.numbers.empty() && !literal.strings.empty())
            return scan_.error(literal.at, Code::E0301, "numbers and strings in one tensor");
    } else if (scan_.next_is_word("data") || scan_.next_is_word("weights")) {
        literal.kind = scan_.word() == "data" ? Literal::Kind::Data : Literal::Kind::Weights;
        TRY(scan_.expect("("));
        size_t place = scan_.at();
        auto n = int_from_text(scan_.number());
        if (!n || *n < 0) return scan_.syntax(place, "a number");
        literal.reference = *n;
        TRY(scan_.expect(")"));
    } else if (scan_.peek() == '"') {
        literal.kind = Literal::Kind::Strings;
        literal.strings.push_back(TRY(scan_.string()));
    } else if (scan_.take("(")) {
        TRY(parse_list_pair(literal, literal.at));
    } else {
        std::string_view word =
            scan_.next_is_word("true") || scan_.next_is_word("false") ? scan_.word() : scan_.number();
        if (word.empty()) return scan_.syntax(literal.at, "a value");
        literal.numbers.push_back(word);
    }
    if (scan_.take(":")) {
        size_t place = scan_.at();
        literal.dtype = dtype_from_name(scan_.word());
        if (!literal.dtype) return scan_.syntax(place, "an element type");
        if (scan_.peek() == '[') {
            scan_.go_to(place);
            Type type = TRY(parse_type());
            literal.type_sizes = type.tensor().shape.ranked() ? type.tensor().shape.sizes() : std::nullopt;
            if (!literal.type_sizes) return scan_.error(place, Code::E0301, "a value has constant sizes, not {}", type);
        }
    }
    return literal;
}

Result<Tensor> TextParser::bytes_of(const Literal& literal, DType dtype, Sizes sizes) {
    if (dtype == DType::string) return scan_.error(literal.at, Code::E0301, "strings are written by value");
    auto elements = element_count(sizes);
    int64_t bytes = 0;
    if (!elements.ok() || __builtin_mul_overflow(*elements, static_cast<int64_t>(dtype_bytes(dtype)), &bytes))
        return scan_.error(literal.at, Code::E0108, "{} is too large", to_string(sizes));
    std::string_view data;
    std::shared_ptr<const void> owner;
    if (literal.kind == Literal::Kind::Data) {
        auto& decoded = decoded_[literal.reference];
        if (!decoded) {
            auto it = data_.find(literal.reference);
            if (it == data_.end())
                return scan_.error(literal.at, Code::E0302, "there is no data {} at the end", literal.reference);
            size_t here = scan_.at();
            scan_.go_to(it->second);
            std::string digits;
            while (scan_.peek() == '"') digits += TRY(scan_.string());
            auto raw = from_base64(digits);
            if (!raw) return scan_.error(it->second, Code::E0301, "this is not base64");
            decoded = std::make_shared<const std::string>(std::move(*raw));
            scan_.go_to(here);
        }
        data = *decoded;
        owner = decoded;
        if (static_cast<int64_t>(data.size()) != bytes)
            return scan_.error(literal.at, Code::E0211, "{}{} takes {} bytes, data {} has {}", dtype_name(dtype),
                               to_string(sizes), bytes, literal.reference, data.size());
    } else {
        if (weights_.empty()) return scan_.error(literal.at, Code::E0302, "the text names no weights file");
        if (options_.without_weights) return Tensor::view(dtype, std::move(sizes), nullptr, nullptr);
        auto file = folder_.open(weights_);
        if (!file.ok()) return moved(std::move(file).error(), literal.at);
        data = (*file)->bytes();
        auto offset = static_cast<uint64_t>(literal.reference);
        if (offset > data.size() || static_cast<uint64_t>(bytes) > data.size() - offset)
            return scan_.error(literal.at, Code::E0107, "{} has {} bytes; {} at {} do not fit", weights_, data.size(),
                               bytes, offset);
        if (offset % std::max<size_t>(1, dtype_bytes(dtype)) != 0)
            return scan_.error(literal.at, Code::E0301, "offset {} is not aligned for {}", offset, dtype_name(dtype));
        data = data.substr(offset, static_cast<size_t>(bytes));
        owner = *file;
    }
    Tensor tensor = Tensor::view(dtype, std::move(sizes), data.data(), std::move(owner));
    if (!values_fit(tensor))
        return scan_.error(literal.at, Code::E0211, "the bytes hold values that {} has not", dtype_name(dtype));
    return tensor;
}

Result<Tensor> TextParser::tensor_of(const Literal& literal, std::optional<DType> dtype, std::optional<Sizes> sizes) {
    if (literal.dtype && dtype && literal.dtype != dtype)
        return scan_.error(literal.at, Code::E0208, "a value of {} where {} is expected", dtype_name(*literal.dtype),
                           dtype_name(*dtype));
    if (literal.dtype) dtype = literal.dtype;
    if (literal.type_sizes) sizes = literal.type_sizes;
    if (literal.kind == Literal::Kind::Data || literal.kind == Literal::Kind::Weights) {
        if (!dtype || !sizes) return scan_.error(literal.at, Code::E0209, "the type must follow: data(0):f32[2,3]");
        return bytes_of(literal, *dtype, std::move(*sizes));
    }
    bool strings = literal.kind == Literal::Kind::Strings;
    if (!dtype) {
        dtype = strings ? DType::string : DType::i64;
        for (std::string_view n : literal.numbers) {
            if (n == "true" || n == "false")
                dtype = DType::boolean;
            else if (n[0] == '(')
                dtype = DType::c64;
            else if (!n.starts_with("0x") && n.find_first_of(".en") != std::string_view::npos)
                dtype = DType::f32;
            else
                continue;
            break;
        }
    }
    auto count = static_cast<int64_t>(strings ? literal.strings.size() : literal.numbers.size());
    if (!sizes) sizes = literal.sizes;
    auto elements = element_count(*sizes);
    bool fits = elements.ok() && *elements == count && (literal.sizes.size() < 2 || literal.sizes == *sizes) &&
                !(literal.sizes.empty() && !sizes->empty());
    if (!fits)
        return scan_.error(literal.at, Code::E0211, "{} values are written, {}{} has not that many", count,
                           dtype_name(*dtype), to_string(*sizes));
    if (strings != (*dtype == DType::string) && count > 0)
        return scan_.error(literal.at, Code::E0208, "{} cannot be written so", dtype_name(*dtype));
    if (*dtype == DType::string) return Tensor::strings(std::move(*sizes), literal.strings);
    auto tensor = Tensor::zeros(*dtype, std::move(*sizes));
    if (!tensor.ok()) return moved(std::move(tensor).error(), literal.at);
    for (int64_t i = 0; i < count; ++i)
        if (!set_element(*tensor, i, literal.numbers[static_cast<size_t>(i)]))
            return scan_.error(literal.at, Code::E0301, "{} is no value of {}", literal.numbers[static_cast<size_t>(i)],
                               dtype_name(*dtype));
    return std::move(*tensor);
}

}  // namespace tessera
