#include "discover/claim/claim.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

namespace tessera {
namespace {

// The conditions that fix a claim's shapes, as text.
class ShapeConditions {
  public:
    explicit ShapeConditions(const Claim& claim) : claim_(claim) {}

    std::vector<std::string> all() {
        ranks();
        define_symbols();
        sizes();
        values();
        return std::move(out_);
    }

    Bindings definitions() {
        define_symbols();
        return std::move(defined_);
    }

  private:
    const Claim& claim_;
    std::vector<std::string> out_;
    Bindings defined_;  // symbols by sizes of tensors
    std::map<std::string, std::pair<std::string, int64_t>> place_;

    static std::string dim(const std::string& x, int64_t axis) { return fmt::format("dim({}, {})", x, axis); }

    // The first tensor of this shape.
    const std::string& first_of(const Shape& shape) const {
        return std::find_if(claim_.shapes.begin(), claim_.shapes.end(),
                            [&](const auto& tensor) { return tensor.second == shape; })
            ->first;
    }

    void ranks() {
        for (const auto& [name, shape] : claim_.shapes)
            if (shape.rank() == 0 || first_of(shape) == name)
                out_.push_back(fmt::format("rank({}) == {}", name, shape.rank()));
    }

    void define_symbols() {
        for (const auto& [name, shape] : claim_.shapes)
            for (int64_t d = 0; d < shape.rank(); ++d)
                if (shape[d].is(ExprKind::Var) && !defined_.contains(shape[d].node().name)) {
                    defined_.emplace(shape[d].node().name, symbol(dim(name, d)));
                    place_.emplace(shape[d].node().name, std::make_pair(name, d));
                }
        // A symbol that only stands in a multiple, or with a least size: dim(x, 0) / 2, dim(x, 0) - 3.
        for (const auto& [name, shape] : claim_.shapes)
            for (int64_t d = 0; d < shape.rank(); ++d) {
                std::vector<std::string> names = free_symbols(shape[d]);
                if (names.size() != 1 || defined_.contains(names[0])) continue;
                for (int64_t factor = 1; factor <= 16; ++factor) {
                    const std::optional<int64_t> least = (shape[d] - symbol(names[0]) * factor).as_int();
                    if (!least || *least < 0) continue;
                    std::string text = dim(name, d);
                    if (factor > 1) out_.push_back(fmt::format("{} % {} == {}", text, factor, *least % factor));
                    if (*least > 0) out_.push_back(fmt::format("{} >= {}", text, *least));
                    if (*least > 0) text = fmt::format("({} - {})", text, *least);
                    if (factor > 1) text = fmt::format("({} / {})", text, factor);
                    defined_.emplace(names[0], symbol(text));
                    place_.emplace(names[0], std::make_pair(name, d));
                    break;
                }
            }
    }

    // Every size, also where an op on the left asks for it: what it asks for it may ask of a run, not of symbols, and
    // what several sizes together are asked for is not what each of them is.
    void sizes() {
        for (const auto& [name, shape] : claim_.shapes) {
            if (const std::string& first = first_of(shape); first != name) {
                if (shape.rank() > 0) out_.push_back(fmt::format("same_dims({}, {})", name, first));
                continue;
            }
            for (int64_t d = 0; d < shape.rank(); ++d) {
                const Dim& size = shape[d];
                bool known = true;
                for (const std::string& s : free_symbols(size)) known &= defined_.contains(s);
                if (!known) {
                    out_.push_back("1 == 2");  // cannot be said
                    continue;
                }
                if (std::any_of(place_.begin(), place_.end(),
                                [&](const auto& p) { return p.second == std::make_pair(name, d); }))
                    continue;
                std::string text = to_string(substitute(size, defined_));
                std::erase(text, '`');  // around what is no plain name
                out_.push_back(fmt::format("{} == {}", dim(name, d), text));
            }
        }
    }

    // Strides, dilations and pads of a window on the left: the op itself asks for their number, and for what is least.
    std::optional<int64_t> least_in_windows(int slot) const {
        std::optional<int64_t> least;
        std::function<void(const Term&)> walk = [&](const Term& t) {
            for (const Term& a : t.args) walk(a);
            if (t.form != Term::Form::Op || !t.op->attr("strides") || !t.op->attr("pads")) return;
            for (const auto& [name, value] : t.attrs)
                if (value.form == Term::Form::Variable && value.slot == slot)
                    least = name == "strides" || name == "dilations" ? std::optional<int64_t>(1)
                            : name == "pads"                         ? std::optional<int64_t>(0)
                                                                     : std::nullopt;
        };
        for (const Term& t : claim_.rule.pattern) walk(t);
        return least;
    }

    // What the proof fixes of variables that are no tensors of floats: numbers, and the least that a symbol stands for.
    void values() {
        std::map<std::string, int> uses;
        auto see = [&](const std::vector<Expr>& list) {
            for (const Expr& e : list)
                for (const std::string& s : free_symbols(e)) ++uses[s];
        };
        for (const auto& [name, shape] : claim_.shapes) see(shape.dims());
        for (const auto& [name, value] : claim_.values)
            if (auto* list = std::get_if<std::vector<Expr>>(&value)) see(*list);
        for (const auto& [name, value] : claim_.values) {
            const auto& variables = claim_.rule.variables;
            auto v = std::find_if(variables.begin(), variables.end(), [&](const auto& r) { return r.name == name; });
            auto* list = std::get_if<std::vector<Expr>>(&value);
            if (v == variables.end() || !list || (v->kind != TermKind::Ints && v->kind != TermKind::Tensor)) {
                out_.push_back("1 == 2");  // cannot be said
                continue;
            }
            const std::string text = v->kind == TermKind::Tensor ? fmt::format("ints({})", name) : name;
            const std::optional<int64_t> least = least_in_windows(static_cast<int>(v - variables.begin()));
            if (std::all_of(list->begin(), list->end(), [](const Expr& e) { return e.as_int().has_value(); })) {
                out_.push_back(fmt::format("{} == {}", text, Shape(*list)));
                continue;
            }
            if (!least) out_.push_back(fmt::format("length({}) == {}", text, list->size()));
            for (size_t i = 0; i < list->size(); ++i) {
                const Expr& e = (*list)[i];
                const std::vector<std::string> names = free_symbols(e);
                std::optional<int64_t> low =
                    names.size() == 1 && uses[names[0]] == 1 ? (e - symbol(names[0])).as_int() : std::nullopt;
                if (e.as_int())
                    out_.push_back(fmt::format("{}[{}] == {}", text, i, *e.as_int()));
                else if (!low || *low < 0)
                    out_.push_back("1 == 2");
                else if (least != low)
                    out_.push_back(fmt::format("{}[{}] >= {}", text, i, *low));
            }
        }
    }
};

}  // namespace

Bindings sizes_by_dims(const Claim& claim) { return ShapeConditions(claim).definitions(); }

Rule to_rule(const Claim& claim) {
    Rule rule = claim.rule;
    for (RuleVariable& v : rule.variables)
        if (claim.shapes.contains(v.name) && v.constraint.empty()) v.constraint = "float";
    std::string text = to_string(rule);
    std::vector<std::string> conditions = ShapeConditions(claim).all();
    for (const std::string& c : conditions)
        text += (rule.conditions.empty() && &c == &conditions[0] ? " if " : " and ") + c;
    Result<Rules> read = read_rules(text, claim.rule.source);
    if (!read.ok())  // a size that the language of rules has no words for
        read =
            read_rules(to_string(rule) + (rule.conditions.empty() ? " if 1 == 2" : " and 1 == 2"), claim.rule.source);
    CHECK(read.ok(), "{}: {}", text, read.ok() ? "" : read.error().to_string());
    Rule made = std::move(read->front());
    made.family = claim.rule.family;
    made.comment = claim.rule.comment;
    made.source = claim.rule.source;
    return made;
}

namespace {

// Whether it gives its first input, floats among others, the element type of another.
bool retypes(const OpDef& op) {
    if (op.inputs.size() < 2 || op.outputs.size() != 1 || op.inputs[0].type == op.outputs[0].type) return false;
    auto allows_floats = [&](const std::string& name) {
        return std::any_of(op.types.begin(), op.types.end(),
                           [&](const TypeVar& t) { return t.name == name && t.allowed.has(DType::f32); });
    };
    return allows_floats(op.inputs[0].type) && allows_floats(op.outputs[0].type) &&
           std::any_of(op.inputs.begin(), op.inputs.end(),
                       [&](const ParamDef& p) { return p.type == op.outputs[0].type; });
}

}  // namespace

std::optional<DType> element_type(const Rule& rule, const RuleVariable& variable) {
    const std::string& constraint = variable.constraint;
    for (DType t : {DType::f64, DType::f32, DType::f16, DType::bf16})
        if (constraint == dtype_name(t)) return t;
    if (!constraint.empty() && constraint != "float") return {};
    // A cast of the widest loses digits wherever one of another would, and nothing is known of what it loses: what is
    // proved of the widest holds for all.
    bool casts = false, unknown = false;
    std::function<void(const Term&)> walk = [&](const Term& t) {
        for (const Term& a : t.args) walk(a);
        for (const auto& [name, value] : t.attrs)
            casts = casts || name == "to" || name == "dtype" || name == "stash_type";
        if (t.form != Term::Form::Op) return;
        casts = casts || t.op->attr("stash_type");
        unknown = unknown || retypes(*t.op);
    };
    for (const Term& t : rule.pattern) walk(t);
    for (const auto& [slot, t] : rule.lets) walk(t);
    for (const Term& t : rule.replacement) walk(t);
    if (unknown) return {};
    return casts ? DType::f64 : DType::f32;
}

Status check_names(const Claim& claim) {
    auto wrong = [&](std::string why) { return Error(Code::E0303, "{}: {}", claim.rule.name, why); };
    auto known = [&](const std::string& name) {
        return std::any_of(claim.rule.variables.begin(), claim.rule.variables.end(), [&](const RuleVariable& v) {
            return v.name == name || (v.kind == TermKind::Tensors && name.starts_with(v.name + "."));
        });
    };
    auto plain = [](const std::vector<Expr>& list) {
        for (const Expr& e : list)
            for (const std::string& s : free_symbols(e))
                if (s.starts_with("_")) return false;
        return true;
    };
    for (const auto& [name, shape] : claim.shapes) {
        if (!known(name)) return wrong(fmt::format("it has no variable {}", name));
        if (!plain(shape.dims())) return wrong("the name of a size begins with an underscore");
    }
    for (const auto& [name, value] : claim.values) {
        if (!known(name)) return wrong(fmt::format("it has no variable {}", name));
        if (auto* list = std::get_if<std::vector<Expr>>(&value); list && !plain(*list))
            return wrong("the name of a size begins with an underscore");
    }
    for (const RuleVariable& v : claim.rule.variables)
        if (claim.shapes.contains(v.name) && !element_type(claim.rule, v))
            return wrong(
                fmt::format("a proof is about real numbers, and {} is not said to be of one class of floats", v.name));
    return {};
}

std::string shapes_text(const Claim& claim) {
    std::vector<std::string> shapes;
    for (const auto& [name, shape] : claim.shapes) shapes.push_back(fmt::format("{}: {}", name, shape));
    return fmt::format("{}", fmt::join(shapes, ", "));
}

std::string to_string(const Claim& claim) {
    return fmt::format("{} where {}", to_string(claim.rule), shapes_text(claim));
}

Result<std::map<std::string, Shape>> read_shapes(std::string_view text) {
    std::map<std::string, Shape> shapes;
    auto trim = [](std::string_view s) {
        while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
        while (!s.empty() && (s.back() == ' ' || s.back() == '\n')) s.remove_suffix(1);
        return s;
    };
    auto wrong = [&] {
        return Error(Code::E0301, "\"{}\" is not a list of shapes", text).hint("x: [M,K], w: [K,2*N]");
    };
    for (text = trim(text); !text.empty();) {
        size_t colon = text.find(':'), open = text.find('['), close = text.find(']');
        if (colon == text.npos || open == text.npos || close == text.npos || !(colon < open && open < close))
            return wrong();
        Shape shape;
        for (std::string_view dims = trim(text.substr(open + 1, close - open - 1)); !dims.empty();) {
            size_t end = 0;
            for (int depth = 0; end < dims.size() && (depth > 0 || dims[end] != ','); ++end)
                depth += (dims[end] == '(') - (dims[end] == ')');
            std::optional<Dim> d = parse_dim(trim(dims.substr(0, end)));
            if (!d) return wrong();
            shape.push_back(*d);
            dims = end < dims.size() ? dims.substr(end + 1) : "";
        }
        shapes.emplace(trim(text.substr(0, colon)), shape);
        text = trim(text.substr(close + 1));
        if (text.starts_with(",")) text = trim(text.substr(1));
    }
    return shapes;
}

Result<Claim> read_claim(std::string_view text) {
    size_t where = text.rfind("where ");
    if (where == text.npos) return Error(Code::E0301, "the claim has no \"where\" with shapes");
    Rules rules = TRY(read_rules(text.substr(0, where), "claim"));
    if (rules.size() != 1) return Error(Code::E0301, "expected one rule, found {}", rules.size());
    Claim claim{std::move(rules[0]), {}};
    claim.shapes = TRY(read_shapes(text.substr(where + 6)));
    return claim;
}

}  // namespace tessera
