// Ops on strings: string_concat, string_normalizer, string_split, regex_full_match.
#include <locale.h>
#include <re2/re2.h>
#include <wctype.h>

#include <algorithm>
#include <set>

#include "graph/evaluate/evaluate.h"
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {
namespace {

// ---- string_concat

const OpDef kStringConcat{
    .name = "string_concat",
    .inputs = {"a: str", "b: str"},
    .outputs = {"y: str"},
    .onnx = "StringConcat",
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        const Tensor &a = ctx.tensor(0), &b = ctx.tensor(1);
        Tensor y = TRY(Tensor::zeros(DType::string, TRY(op.out_sizes())));
        TRY(ctx.spend(y.elements() * 16));
        // Where element i of the result lies in an operand that is broadcast.
        auto position = [&](const Tensor& x, int64_t i) {
            int64_t at = 0, stride = 1;
            for (int64_t d = 1; d <= y.rank(); ++d) {
                if (d <= x.rank()) {
                    at += x.size(-d) == 1 ? 0 : i % y.size(-d) * stride;
                    stride *= x.size(-d);
                }
                i /= y.size(-d);
            }
            return at;
        };
        auto& out = y.mutable_strings();
        for (int64_t i = 0; i < y.elements(); ++i)
            out[i] = a.as_strings()[position(a, i)] + b.as_strings()[position(b, i)];
        return std::vector<Datum>{y};
    },
    .no_kernel = "strings",
};

// ---- string_normalizer

// Case by Unicode's simple mappings, which the C library knows; ASCII's where it has no UTF-8 locale.
class CaseMap {
  public:
    CaseMap() : locale_(newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)) {}
    ~CaseMap() {
        if (locale_) freelocale(locale_);
    }
    CaseMap(const CaseMap&) = delete;
    CaseMap& operator=(const CaseMap&) = delete;

    std::string lower(const std::string& s) const { return map(s, false); }
    std::string upper(const std::string& s) const { return map(s, true); }

  private:
    uint32_t change(uint32_t c, bool up) const {
        if (locale_) return up ? towupper_l(c, locale_) : towlower_l(c, locale_);
        if (up) return c >= 'a' && c <= 'z' ? c - 32 : c;
        return c >= 'A' && c <= 'Z' ? c + 32 : c;
    }

    // Bytes that are not UTF-8 stay as they are.
    std::string map(const std::string& s, bool up) const {
        std::string out;
        for (size_t i = 0; i < s.size();) {
            auto byte = static_cast<unsigned char>(s[i]);
            size_t length = byte < 0x80 ? 1 : byte >> 5 == 6 ? 2 : byte >> 4 == 14 ? 3 : byte >> 3 == 30 ? 4 : 0;
            uint32_t c = length == 1 ? byte : byte & (0x7f >> length);
            bool valid = length > 0 && i + length <= s.size();
            for (size_t k = 1; valid && k < length; ++k) {
                auto next = static_cast<unsigned char>(s[i + k]);
                valid = next >> 6 == 2;
                c = c << 6 | (next & 0x3f);
            }
            if (!valid) {
                out += s[i++];
                continue;
            }
            append(change(c, up), out);
            i += length;
        }
        return out;
    }

    static void append(uint32_t c, std::string& out) {
        if (c < 0x80) {
            out += char(c);
            return;
        }
        int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
        static constexpr unsigned char kLead[] = {0, 0xc0, 0xe0, 0xf0};
        out += char(kLead[more] | c >> (6 * more));
        for (int k = more - 1; k >= 0; --k) out += char(0x80 | (c >> (6 * k) & 0x3f));
    }

    locale_t locale_;
};

const OpDef kStringNormalizer{
    .name = "string_normalizer",
    .inputs = {"x: str"},
    .outputs = {"y: str"},
    .attrs = {string_attr("case_change_action", "NONE").one_of({"NONE", "LOWER", "UPPER"}),
              int_attr("is_case_sensitive", 0), string_attr("locale"), strings_attr("stopwords")},
    .onnx = "StringNormalizer",
    .infer = [](const OpView& op) -> Result<Types> {
        Shape y = op.shape(0);
        if (y.rank() < 1 || y.rank() > 2 || (y.rank() == 2 && y[0].as_int().value_or(1) != 1))
            return op.shape_error("needs [C] or [1,C], has {}", y);
        y[-1] = op.fresh(0, y.rank() - 1);
        return op.like(0, y);
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        const Tensor& x = ctx.tensor(0);
        CaseMap cases;
        bool sensitive = op.integer("is_case_sensitive");
        const std::string& action = op.string("case_change_action");
        std::set<std::string> stop;
        if (op.has_attr("stopwords"))
            for (const std::string& w : op.strings("stopwords")) stop.insert(sensitive ? w : cases.lower(w));
        TRY(ctx.spend(x.elements() * 64));
        std::vector<std::string> kept;
        for (const std::string& s : x.as_strings()) {
            if (stop.contains(sensitive ? s : cases.lower(s))) continue;
            kept.push_back(action == "LOWER" ? cases.lower(s) : action == "UPPER" ? cases.upper(s) : s);
        }
        if (kept.empty()) kept.push_back("");
        Sizes sizes = x.sizes();
        sizes.back() = kept.size();
        return std::vector<Datum>{Tensor::strings(sizes, std::move(kept))};
    },
    .no_kernel = "strings",
};

// ---- string_split

// By runs of white space where the delimiter is empty; at most `most` cuts.
std::vector<std::string> split(const std::string& s, const std::string& delimiter, int64_t most) {
    std::vector<std::string> parts;
    if (!delimiter.empty()) {
        size_t from = 0;
        for (size_t at; int64_t(parts.size()) < most && (at = s.find(delimiter, from)) != std::string::npos;) {
            parts.push_back(s.substr(from, at - from));
            from = at + delimiter.size();
        }
        parts.push_back(s.substr(from));
        return parts;
    }
    constexpr const char* kSpace = " \t\n\v\f\r";
    size_t from = s.find_first_not_of(kSpace);
    while (from != std::string::npos) {
        size_t to = s.find_first_of(kSpace, from);
        if (int64_t(parts.size()) == most) to = s.find_last_not_of(kSpace) + 1;
        parts.push_back(s.substr(from, to == std::string::npos ? to : to - from));
        from = to == std::string::npos ? to : s.find_first_not_of(kSpace, to);
    }
    return parts;
}

const OpDef kStringSplit{
    .name = "string_split",
    .inputs = {"x: str"},
    .outputs = {"y: str", "counts: i64"},
    .attrs = {string_attr("delimiter", ""), int_attr("maxsplit")},
    .onnx = "StringSplit",
    .infer = [](const OpView& op) -> Result<Types> {
        Shape y = op.shape(0);
        y.push_back(op.fresh(0, y.rank()));
        return Types{Type(DType::string, y), Type(DType::i64, op.shape(0))};
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        const Tensor& x = ctx.tensor(0);
        int64_t most = op.has_attr("maxsplit") && op.integer("maxsplit") >= 0 ? op.integer("maxsplit") : INT64_MAX;
        std::vector<std::vector<std::string>> parts;
        size_t longest = 0;
        Tensor counts = TRY(Tensor::zeros(DType::i64, x.sizes()));
        for (const std::string& s : x.as_strings()) {
            TRY(ctx.spend(int64_t(s.size()) + 16));
            parts.push_back(split(s, op.string("delimiter"), most));
            longest = std::max(longest, parts.back().size());
            counts.set_int(int64_t(parts.size()) - 1, int64_t(parts.back().size()));
        }
        Sizes sizes = x.sizes();
        sizes.push_back(longest);
        Tensor y = TRY(Tensor::zeros(DType::string, sizes));
        for (size_t i = 0; i < parts.size(); ++i)
            std::move(parts[i].begin(), parts[i].end(), y.mutable_strings().begin() + i * longest);
        return std::vector<Datum>{y, counts};
    },
    .no_kernel = "strings",
};

// ---- regex_full_match

const OpDef kRegexFullMatch{
    .name = "regex_full_match",
    .inputs = {"x: str"},
    .outputs = {"y: bool"},
    .attrs = {string_attr("pattern", "")},
    .onnx = "RegexFullMatch",
    .infer = [](const OpView& op) -> Result<Types> { return Type(DType::boolean, op.shape(0)); },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        const Tensor& x = ctx.tensor(0);
        re2::RE2 pattern(op.string("pattern"), re2::RE2::Quiet);
        if (!pattern.ok())
            return op.error(Code::E0212, "\"{}\" is not a valid pattern: {}", op.string("pattern"), pattern.error());
        Tensor y = TRY(Tensor::zeros(DType::boolean, x.sizes()));
        for (int64_t i = 0; i < x.elements(); ++i) {
            TRY(ctx.spend(int64_t(x.as_strings()[i].size()) + 16));
            y.set_int(i, re2::RE2::FullMatch(x.as_strings()[i], pattern));
        }
        return std::vector<Datum>{y};
    },
    .no_kernel = "strings",
};

}  // namespace

std::vector<OpDef> string_ops() { return {kStringConcat, kStringNormalizer, kStringSplit, kRegexFullMatch}; }

}  // namespace tessera
