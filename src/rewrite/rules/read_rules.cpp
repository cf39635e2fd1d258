#include <algorithm>
#include <charconv>

#include "base/nearest.h"
#include "base/text_file.h"
#include "graph/text/literal.h"
#include "graph/text/scanner.h"
#include "rewrite/rule.h"
#include "rewrite/rules/check_rule.h"
#include "rewrite/rules/functions.h"

namespace tessera {
namespace {

constexpr int kDeepest = 64;  // terms nested in one another

bool is_name(std::string_view word) {
    return !word.empty() && !(word[0] >= '0' && word[0] <= '9') && word.find('.') == std::string_view::npos;
}

class RuleReader {
  public:
    RuleReader(std::string_view text, const std::string& source) : text_(text), source_(source), scan_(text, source) {}

    Result<Rules> all() {
        Rules rules;
        while (!scan_.done()) {
            size_t at = scan_.at();
            Rules made = TRY(family());
            for (Rule& rule : made) {
                for (const Rule& other : rules)
                    if (other.name == rule.name)
                        return scan_.error(at, Code::E0204, "there are two rules named {}", rule.name);
                rules.push_back(std::move(rule));
            }
        }
        return rules;
    }

  private:
    std::string_view text_;
    const std::string& source_;
    TextScanner scan_;
    Rule* rule_ = nullptr;
    std::string alias_, alias_op_;  // of a family: the name in the text, and the op it stands for
    int depth_ = 0;
    bool in_pattern_ = false;
    bool of_op_ = false;  // in an op's inputs, where `not` is the op

    // One rule, or one for each op of `for f in (relu, tanh)`.
    Result<Rules> family() {
        Rule head;
        size_t at = scan_.at();
        head.comment = comment_above(at);
        head.source = scan_.place(at);
        head.name = scan_.word();
        while (!head.name.empty() && scan_.take("-")) head.name += "-" + std::string(scan_.word());
        if (head.name.empty()) return scan_.syntax(at, "a rule's name");
        if (scan_.take("[")) {
            TRY(tags(head));
        }
        std::vector<std::string> ops;
        if (scan_.take_word("for")) ops = TRY(op_list());
        TRY(scan_.expect(":"));
        size_t body = scan_.at();
        Rules rules;
        for (size_t i = 0; i < std::max<size_t>(ops.size(), 1); ++i) {
            scan_.go_to(body);
            Rule rule = head;
            rule.family = head.name;
            if (!ops.empty()) {
                alias_op_ = ops[i];
                rule.name += "-" + ops[i];
            }
            rules.push_back(TRY(one(std::move(rule))));
        }
        alias_.clear();
        return rules;
    }

    Result<std::vector<std::string>> op_list() {
        std::vector<std::string> ops;
        size_t at = scan_.at();
        alias_ = scan_.word();
        if (!is_name(alias_) || find_op(alias_)) return scan_.syntax(at, "a name that is not an op");
        if (!scan_.take_word("in")) return scan_.syntax(scan_.at(), "\"in\"");
        TRY(scan_.expect("("));
        do {
            at = scan_.at();
            std::string op(scan_.word());
            if (!find_op(op)) return scan_.error(at, Code::E0302, "there is no op \"{}\"", op);
            ops.push_back(std::move(op));
        } while (scan_.take(","));
        TRY(scan_.expect(")"));
        return ops;
    }

    Result<Rule> one(Rule rule) {
        rule_ = &rule;
        of_op_ = false;
        in_pattern_ = true;
        rule.pattern = TRY(tuple());
        in_pattern_ = false;
        TRY(scan_.expect("=>"));
        if (scan_.take_word("let")) {
            do {
                size_t name_at = scan_.at();
                std::string_view name = scan_.word();
                if (!is_name(name)) return scan_.syntax(name_at, "a name");
                if (find_slot(name) >= 0)
                    return scan_.error(name_at, Code::E0303, "{} already stands for something else", name);
                TRY(scan_.expect("="));
                Term term = TRY(expression());
                rule.lets.emplace_back(add_slot(std::string(name)), std::move(term));
            } while (scan_.take(","));
            if (!scan_.take_word("in")) return scan_.syntax(scan_.at(), "\"in\" or another \", name = term\"");
        }
        rule.replacement = TRY(tuple());
        if (scan_.take_word("if")) {
            Term all = TRY(expression());
            flatten(std::move(all), rule.conditions);
        }
        TRY(check_rule(rule, scan_));
        return rule;
    }

    Status tags(Rule& rule) {
        do {
            size_t at = scan_.at();
            std::string_view word = scan_.word();
            if (word == "exact")
                rule.exactness = Exactness::Exact;
            else if (word == "reassociates")
                rule.exactness = Exactness::Reassociates;
            else if (word == "approximates")
                rule.exactness = Exactness::Approximates;
            else if (word == "grows")
                rule.grows = true;
            else if (word == "proved")
                rule.evidence = Evidence::Proved;
            else if (word == "tested")
                rule.evidence = Evidence::Tested;
            else
                return scan_.syntax(at, "exact, reassociates, approximates, grows, proved or tested");
        } while (scan_.take(","));
        return scan_.expect("]");
    }

    // The comment lines that end right above.
    std::string comment_above(size_t at) const {
        std::vector<std::string_view> lines;
        size_t end = text_.rfind('\n', at);
        while (end != std::string_view::npos && end > 0) {
            size_t begin = text_.rfind('\n', end - 1);
            begin = begin == std::string_view::npos ? 0 : begin + 1;
            std::string_view line = text_.substr(begin, end - begin);
            if (!line.starts_with("//")) break;
            line.remove_prefix(2);
            if (line.starts_with(" ")) line.remove_prefix(1);
            lines.push_back(line);
            end = begin == 0 ? std::string_view::npos : begin - 1;
        }
        std::reverse(lines.begin(), lines.end());
        return fmt::format("{}", fmt::join(lines, "\n"));
    }

    static void flatten(Term term, std::vector<Term>& out) {
        if (term.form != Term::Form::Call || term.name != "and") {
            out.push_back(std::move(term));
            return;
        }
        for (Term& arg : term.args) flatten(std::move(arg), out);
    }

    int find_slot(std::string_view name) const {
        for (size_t i = 0; i < rule_->variables.size(); ++i)
            if (rule_->variables[i].name == name) return static_cast<int>(i);
        return -1;
    }
    int add_slot(std::string name) {
        rule_->variables.push_back({std::move(name), TermKind::Any, {}});
        return static_cast<int>(rule_->variables.size()) - 1;
    }
    // Of a name that is used at `at`; in a pattern, a new name binds.
    Result<int> slot_of(std::string_view name, size_t at) {
        if (int slot = find_slot(name); slot >= 0) return slot;
        if (in_pattern_) return add_slot(std::string(name));
        std::vector<std::string_view> names;
        for (const RuleVariable& v : rule_->variables) names.push_back(v.name);
        Error error = scan_.error(at, Code::E0302, "{} is not bound on the left", name);
        if (std::string near = nearest(name, names); !near.empty()) return std::move(error).hint("did you mean \"{}\"?", near);
        return error;
    }

    Result<std::vector<Term>> tuple() {
        std::vector<Term> terms;
        if (!scan_.take("(")) {
            terms.push_back(TRY(primary()));
            return terms;
        }
        do {
            terms.push_back(TRY(primary()));
        } while (scan_.take(","));
        TRY(scan_.expect(")"));
        return terms;
    }

    Term call(size_t at, std::string name, std::vector<Term> args) {
        Term t;
        t.form = Term::Form::Call;
        t.at = at;
        t.name = std::move(name);
        t.args = std::move(args);
        return t;
    }

    // Operators from the weakest to the strongest.
    Result<Term> expression() { return operators(0); }

    Error too_deep() { return scan_.error(scan_.at(), Code::E0109, "terms nested too deeply"); }

    Result<Term> operators(size_t level) {
        static const std::vector<std::vector<std::string_view>> kLevels = {
            {"or"}, {"and"}, {"==", "!=", "<=", ">=", "<", ">"}, {"+", "-"}, {"*", "/", "%"}};
        if (level == kLevels.size()) return unary();
        if (++depth_ > kDeepest * 8) return too_deep();
        Term left = TRY(operators(level + 1));
        for (int links = 0;;) {
            size_t at = scan_.at();
            std::string_view found;
            for (std::string_view symbol : kLevels[level]) {
                bool word = symbol[0] >= 'a' && !comes_at(scan_.at() + symbol.size(), "-");  // else a rule's name
                if (symbol[0] >= 'a' ? word && scan_.take_word(symbol)
                                     : scan_.peek() == symbol[0] && !next_is_arrow() && scan_.take(symbol)) {
                    found = symbol;
                    break;
                }
            }
            if (found.empty()) break;
            if (++links > kDeepest) return too_deep();
            Term right = TRY(operators(level + 1));
            std::vector<Term> args;
            args.push_back(std::move(left));
            args.push_back(std::move(right));
            left = call(at, std::string(found), std::move(args));
        }
        --depth_;
        return left;
    }

    bool comes_at(size_t at, std::string_view symbol) const {
        return at <= text_.size() && text_.substr(at, symbol.size()) == symbol;
    }
    bool next_is_arrow() { return comes_at(scan_.at(), "=>"); }

    Result<Term> unary() {
        if (++depth_ > kDeepest * 8) return too_deep();
        Result<Term> term = unary_inside();
        --depth_;
        return term;
    }

    Result<Term> unary_inside() {
        size_t at = scan_.at();
        if (!of_op_ && scan_.take_word("not")) {
            Term of = TRY(unary());
            std::vector<Term> args;
            args.push_back(std::move(of));
            return call(at, "not", std::move(args));
        }
        if (scan_.peek() == '-' && scan_.number().empty()) {
            scan_.take("-");
            Term of = TRY(unary());
            std::vector<Term> args;
            args.push_back(std::move(of));
            return call(at, "negate", std::move(args));
        }
        scan_.go_to(at);
        if (scan_.take("(")) {
            Term inside = TRY(expression());
            TRY(scan_.expect(")"));
            return indexed(std::move(inside));
        }
        Term term = TRY(primary());
        return indexed(std::move(term));
    }

    Result<Term> indexed(Term term) {
        for (int links = 0;;) {
            size_t at = scan_.at();
            // An index stands right behind its list; a [ further on belongs to the next rule.
            if (at == 0 || text_[at - 1] == ' ' || text_[at - 1] == '\n' || !scan_.take("[")) return term;
            if (++links > kDeepest) return too_deep();
            Term index = TRY(expression());
            TRY(scan_.expect("]"));
            std::vector<Term> args;
            args.push_back(std::move(term));
            args.push_back(std::move(index));
            term = call(at, "at", std::move(args));
        }
    }

    Result<Term> primary() {
        if (++depth_ > kDeepest * 8) return too_deep();
        Result<Term> term = primary_inside();
        --depth_;
        return term;
    }

    Result<Term> primary_inside() {
        size_t at = scan_.at();
        Term t;
        t.at = at;
        char c = scan_.peek();
        if (c == '"') {
            t.form = Term::Form::Text;
            t.name = TRY(scan_.string());
            return t;
        }
        if (c == '[') {
            scan_.take("[");
            t.form = Term::Form::List;
            while (!scan_.take("]")) {
                if (!t.args.empty()) TRY(scan_.expect(","));
                t.args.push_back(TRY(expression()));
            }
            return t;
        }
        if ((c >= '0' && c <= '9') || c == '-' || c == '+' || scan_.next_is_word("inf")) {
            std::string_view digits = scan_.number();
            double value = 0;
            std::string plain(digits.starts_with("+") ? digits.substr(1) : digits);
            auto [end, code] = std::from_chars(plain.data(), plain.data() + plain.size(), value);
            if (plain.empty() || code != std::errc() || end != plain.data() + plain.size())
                return scan_.syntax(at, "a number");
            t.form = Term::Form::Number;
            t.number = value;
            t.has_point = plain.find_first_of(".ein") != std::string::npos;
            int64_t whole = 0;
            if (!t.has_point && (std::from_chars(plain.data(), plain.data() + plain.size(), whole).ec != std::errc() ||
                                 whole != t.whole()))
                return scan_.syntax(at, "an integer of at most 2^53, or a larger one that is a number of f64");
            return t;
        }
        std::string word(scan_.word());
        if (word.empty()) return scan_.syntax(at, "a term");
        if (word.ends_with("...")) {
            t.list = true;
            word.resize(word.size() - 3);
        }
        if (word == "_") {
            t.optional = scan_.take("?");
            return t;
        }
        if (std::string_view name = word; !t.list && scan_.peek() == '(') return application(at, std::string(name), -1);
        if (!is_name(word)) return scan_.syntax(at, "a name");
        if (!t.list && scan_.take("@")) {
            int bound = TRY(slot_of(word, at));
            size_t op_at = scan_.at();
            std::string op(scan_.word());
            if (scan_.peek() != '(') return scan_.syntax(op_at, "an op, as in y@relu(x)");
            return application(op_at, std::move(op), bound);
        }
        t.name = word;
        t.slot = TRY(slot_of(word, at));
        if (scan_.peek() == '?' && scan_.take("?")) t.optional = true;
        if (in_pattern_ && scan_.peek() == ':' && scan_.take(":")) {
            size_t constraint_at = scan_.at();
            std::string_view constraint = scan_.word();
            if (!is_constraint(constraint))
                return scan_.syntax(constraint_at, "float, int, bool, number or an element type");
            rule_->variables[static_cast<size_t>(t.slot)].constraint = constraint;
        }
        return t;
    }

    // name(...) where the ( comes next: an op, or a function.
    Result<Term> application(size_t at, std::string name, int bound) {
        Term t;
        t.at = at;
        t.bound_slot = bound;
        if (size_t dot = name.find('.'); dot != std::string::npos) {
            std::optional<int64_t> output = int_from_text(name.substr(dot + 1));
            if (!output || *output < 0 || *output > 1000) return scan_.syntax(at, "an op's output as in op.1(...)");
            t.output = static_cast<int>(*output);
            name.resize(dot);
        }
        if (name == alias_) name = alias_op_;
        t.name = name;
        t.op = find_op(name);
        t.form = t.op ? Term::Form::Op : Term::Form::Call;
        if (!t.op && find_rule_functions(name).empty()) {
            std::vector<std::string_view> names;
            for (const OpDef* op : all_ops()) names.push_back(op->name);
            for (const RuleFunction& f : rule_functions()) names.push_back(f.name);
            Error error = scan_.error(at, Code::E0302, "there is neither an op nor a function \"{}\"", name);
            if (std::string near = nearest(name, names); !near.empty()) return std::move(error).hint("did you mean \"{}\"?", near);
            return error;
        }
        TRY(scan_.expect("("));
        bool first = true;
        while (!scan_.take(")")) {
            if (!first) TRY(scan_.expect(","));
            first = false;
            TRY(argument(t));
        }
        return t;
    }

    Status argument(Term& call) {
        size_t at = scan_.at();
        std::string_view word = scan_.word();
        if (call.op && word.starts_with("..") && is_name(word.substr(2))) {
            if (call.rest_slot >= 0) return scan_.error(at, Code::E0303, "two terms for the rest of the attributes");
            call.rest_slot = TRY(slot_of(word.substr(2), at));
            return {};
        }
        if (call.op && is_name(word) && scan_.peek() == '=' && !comes_at(scan_.at(), "==")) {
            scan_.take("=");
            std::string name(word);
            for (const auto& [other, term] : call.attrs)
                if (other == name) return scan_.error(at, Code::E0303, "{} is given twice", name);
            bool outside = std::exchange(of_op_, false);
            Term value = TRY(expression());
            of_op_ = outside;
            call.attrs.emplace_back(std::move(name), std::move(value));
            return {};
        }
        scan_.go_to(at);
        if (!call.attrs.empty() || call.rest_slot >= 0)
            return scan_.error(at, Code::E0301, "inputs stand before attributes");
        bool outside = std::exchange(of_op_, call.op != nullptr);
        Term arg = in_pattern_ ? TRY(primary()) : TRY(expression());
        of_op_ = outside;
        call.args.push_back(std::move(arg));
        return {};
    }
};

}  // namespace

Result<Rules> read_rules(std::string_view text, const std::string& source) { return RuleReader(text, source).all(); }

Result<Rules> load_rules(const std::string& path) {
    return read_rules(TRY(read_text_file(path, "check the path and the file's permissions")), path);
}

}  // namespace tessera
