// Reads what text.cpp writes. Whatever the text, the program that comes of it keeps to verify.h.
#include <fmt/format.h>

#include <charconv>
#include <map>

#include "base/error.h"
#include "expr/text.h"
#include "tile/verify.h"

namespace tessera::tile {
namespace {

constexpr size_t kLongestText = 1 << 20;
constexpr int kMostValues = 1 << 16;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_lower(char c) { return (c >= 'a' && c <= 'z') || c == '_'; }

class TextReader {
  public:
    explicit TextReader(std::string_view text) : text_(text) {}

    Result<Program> program() {
        if (text_.size() > kLongestText) return Error(Code::E0108, "the text of a tile program is too long");
        number_values();
        if (!take("tile")) return expected("tile");
        made_.name = TRY(name());
        TRY(parameters());
        if (!take("{")) return expected("{");
        TRY(region(made_.body, 0));
        if (!take("}")) return expected("}");
        if (peek() != '\0') return fail(at_, "something behind the program");
        TRY(verify(made_));
        return Program(std::make_shared<const ProgramData>(std::move(made_)));
    }

  private:
    Error fail(size_t at, std::string_view what, Code code = Code::E0301) const {
        at = std::min(at, text_.size());
        const size_t line =
            1 + static_cast<size_t>(std::count(text_.begin(), text_.begin() + std::ptrdiff_t(at), '\n'));
        const size_t start = text_.rfind('\n', at ? at - 1 : 0);
        const size_t column = at - (start == std::string_view::npos || start >= at ? 0 : start + 1) + 1;
        return Error(code, "tile program: {}", what).at(fmt::format("line {}, column {}", line, column));
    }
    Error expected(std::string_view what) const { return fail(at_, fmt::format("expected \"{}\"", what)); }

    char peek() {
        while (at_ < text_.size() &&
               (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
            ++at_;
        return at_ < text_.size() ? text_[at_] : '\0';
    }
    bool take(std::string_view token) {
        peek();
        if (text_.substr(at_, token.size()) != token) return false;
        at_ += token.size();
        return true;
    }
    Result<std::string> name() {
        peek();
        auto found = read_name(text_, at_);
        if (!found) return fail(at_, "expected a name");
        return *found;
    }
    Result<int64_t> integer() {
        peek();
        int64_t value = 0;
        const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
        if (error != std::errc()) return fail(at_, "expected a number");
        at_ = static_cast<size_t>(end - text_.data());
        return value;
    }
    std::string_view word() {
        peek();
        const size_t begin = at_;
        while (at_ < text_.size() && (is_lower(text_[at_]) || (at_ > begin && is_digit(text_[at_])))) ++at_;
        return text_.substr(begin, at_ - begin);
    }

    // Values keep their numbers; parameters take those that are left.
    void number_values() {
        for (size_t at = 0; (at = text_.find('%', at)) != std::string_view::npos; ++at) {
            int number = -1;
            std::from_chars(text_.data() + at + 1, text_.data() + text_.size(), number);
            if (number >= 0 && number < kMostValues) named_.emplace(number, false);
        }
    }
    int free_number() {
        while (named_.contains(next_)) ++next_;
        return next_++;
    }
    Status keep_type(int value, Type type) {
        if (value >= kMostValues) return fail(at_, "too many values");
        if (static_cast<size_t>(value) >= made_.types.size()) made_.types.resize(static_cast<size_t>(value) + 1);
        made_.types[static_cast<size_t>(value)] = std::move(type);
        return {};
    }

    Status parameters() {
        if (!take("(")) return expected("(");
        while (!take(")")) {
            if (!made_.parameters.empty() && !take(",")) return expected(",");
            const size_t begin = at_;
            std::string called = TRY(name());
            if (!take(":")) return expected(":");
            const int value = free_number();
            TRY(keep_type(value, TRY(type())));
            if (!parameters_.emplace(called, value).second) return fail(begin, "a name that is taken", Code::E0204);
            made_.parameters.push_back({std::move(called), value});
        }
        return {};
    }

    Result<Type> type() {
        Type made;
        const size_t begin = at_;
        made.pointer = take("ptr<");
        const bool twice = made.pointer && take("ptr<");
        const auto dtype = dtype_from_name(word());
        if (!dtype) return fail(begin, "expected a type");
        made.dtype = twice ? DType::i64 : *dtype;
        if (twice) made.then = *dtype;
        if (twice && !take(">")) return expected(">");
        if (made.pointer && !take(">")) return expected(">");
        if (take("[")) made.shape = TRY(integers("]"));
        return made;
    }
    Result<std::vector<int64_t>> integers(std::string_view end) {
        std::vector<int64_t> all;
        while (!take(end)) {
            if (!all.empty() && !take(",")) return expected(",");
            all.push_back(TRY(integer()));
        }
        return all;
    }

    // `fresh`: one that is given here.
    Result<int> value(bool fresh) {
        const size_t begin = (peek(), at_);
        if (take("%")) {
            if (at_ >= text_.size() || !is_digit(text_[at_])) return fail(begin, "expected a value");
            const int64_t number = TRY(integer());
            if (number >= kMostValues) return fail(begin, "too many values");
            auto known = named_.find(static_cast<int>(number));
            if (known == named_.end() || (!fresh && !known->second))
                return fail(begin, fmt::format("%{} is not defined before", number), Code::E0302);
            if (fresh && known->second) return fail(begin, fmt::format("%{} is defined twice", number), Code::E0204);
            return static_cast<int>(number);
        }
        if (fresh) return expected("%");
        const std::string called = TRY(name());
        auto found = parameters_.find(called);
        if (found == parameters_.end()) return fail(begin, fmt::format("{} is not defined", called), Code::E0302);
        return found->second;
    }
    Result<std::vector<int>> values(std::string_view end, bool fresh = false) {
        std::vector<int> all;
        while (!take(end)) {
            if (!all.empty() && !take(",")) return expected(",");
            all.push_back(TRY(value(fresh)));
        }
        return all;
    }

    Status region(Region& made, int depth) {
        if (depth > kDeepestRegion) return fail(at_, "regions nested too deeply", Code::E0109);
        while (peek() != '}' && peek() != '\0') {
            const size_t begin = at_;
            if (depth > 0 && word() == "give") {
                made.results = TRY(results());
                return {};
            }
            at_ = begin;
            made.instructions.push_back(TRY(instruction(depth)));
        }
        return depth > 0 ? Status(expected("give")) : Status();
    }
    Result<std::vector<int>> results() {
        std::vector<int> all;
        while (peek() == '%' || peek() == '`' || is_lower(peek()) || (peek() >= 'A' && peek() <= 'Z')) {
            all.push_back(TRY(value(false)));
            if (!take(",")) break;
        }
        return all;
    }

    Result<Instruction> instruction(int depth) {
        Instruction made{.kind = Kind::Constant};
        if (peek() == '%') {
            made.outputs = TRY(values(":", true));
            for (size_t o = 0; o < made.outputs.size(); ++o) {
                if (o > 0 && !take(",")) return expected(",");
                TRY(keep_type(made.outputs[o], TRY(type())));
            }
            if (!take("=")) return expected("=");
        }
        made.kind = TRY(kind());
        if (made.kind == Kind::Print || made.kind == Kind::Assert)
            made.word = TRY(quoted());
        else
            made.word = word();
        // The body stands before what its names mean.
        const size_t body = (peek(), at_);
        const bool computes = made.kind == Kind::Map || made.kind == Kind::Constant;
        if (computes) at_ = end_of_body();
        if (!take("(")) return expected("(");
        made.inputs = TRY(values(")"));
        if (computes) TRY(read_body(made, body));
        if (take("[")) made.numbers = TRY(integers("]"));
        while (take("{")) TRY(inner(made, depth));
        for (int o : made.outputs) named_[o] = true;
        return made;
    }

    Result<Kind> kind() {
        const size_t begin = (peek(), at_);
        const std::string_view found = word();
        for (int k = 0; k <= static_cast<int>(Kind::Assert); ++k)
            if (kind_name(static_cast<Kind>(k)) == found) return static_cast<Kind>(k);
        return fail(begin, fmt::format("there is no instruction \"{}\"", found));
    }

    // Texts are short and have few marks: a backslash keeps the next.
    Result<std::string> quoted() {
        if (!take("\"")) return expected("\"");
        std::string made;
        for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
            if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
                ++at_;
                made += text_[at_] == 'n' ? '\n' : text_[at_] == 't' ? '\t' : text_[at_];
                continue;
            }
            made += text_[at_];
        }
        if (!take("\"")) return expected("\"");
        return made;
    }

    size_t end_of_body() const {
        const size_t end = text_.find('}', at_);
        return end == std::string_view::npos ? text_.size() : end + 1;
    }
    Status read_body(Instruction& made, size_t at) {
        if (at >= text_.size() || text_[at] != '{') return fail(at, "expected \"{\"");
        const ExprNames names{.variable = [&](const std::string& called) -> std::optional<Expr> {
                                  size_t slot = 0;
                                  const char *begin = called.data() + 1, *end = called.data() + called.size();
                                  if (called.size() < 2 || called[0] != 'x' ||
                                      std::from_chars(begin, end, slot).ptr != end || slot >= made.inputs.size())
                                      return std::nullopt;
                                  const Type& of = made_.types[static_cast<size_t>(made.inputs[slot])];
                                  if (of.pointer) return std::nullopt;
                                  return load(static_cast<int>(slot), of.dtype, {});
                              },
                              .buffer = [](const std::string&) { return std::nullopt; }};
        const ExprText parsed = parse_expr(text_.substr(0, end_of_body_at(at)), at + 1, names);
        if (!parsed.expr) return fail(parsed.end, parsed.problem, parsed.undefined ? Code::E0302 : Code::E0301);
        if (parsed.end != end_of_body_at(at)) return fail(parsed.end, "expected \"}\"");
        made.body = *parsed.expr;
        return {};
    }
    size_t end_of_body_at(size_t at) const { return std::min(text_.find('}', at), text_.size()); }

    Status inner(Instruction& made, int depth) {
        Region region;
        const size_t number = made.regions.size();
        if (number >= 2) return fail(at_, "more than two regions");
        const std::vector<Type> types = region_arguments(made, number, made_.types);
        if (!types.empty()) {
            region.arguments = TRY(values("->", true));
            if (region.arguments.size() != types.size())
                return fail(at_, fmt::format("expected {} arguments of a region", types.size()));
            for (size_t a = 0; a < types.size(); ++a) {
                if (named_[region.arguments[a]]) return fail(at_, "an argument that is defined twice", Code::E0204);
                TRY(keep_type(region.arguments[a], types[a]));
                named_[region.arguments[a]] = true;
            }
        }
        TRY(this->region(region, depth + 1));
        if (!take("}")) return expected("}");
        made.regions.push_back(std::move(region));
        return {};
    }

    std::string_view text_;
    size_t at_ = 0;
    ProgramData made_;
    std::map<int, bool> named_;  // by number: whether it is given already
    std::map<std::string, int> parameters_;
    int next_ = 0;
};

}  // namespace

Result<Program> Program::parse(std::string_view text) { return TextReader(text).program(); }

}  // namespace tessera::tile
