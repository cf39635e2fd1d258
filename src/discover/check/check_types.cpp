#include "discover/check/check_types.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/numeric.h"
#include "discover/check/check_element_types.h"
#include "discover/check/check_facts.h"
#include "onnx/dtypes.h"

namespace tessera::checker {
namespace {

using Form = Term::Form;

constexpr size_t kMostFree = 4;  // variables of any float type beside casts

// Ops that give elements of their operands, their opposites or whole parts: all numbers of the same type.
bool rounds_nothing(const OpDef& op) {
    static const std::set<std::string> names = {
        "cast",    "cast_like",      "identity",   "neg",      "abs",           "relu",    "max",
        "min",     "clip",           "where",      "floor",    "ceil",          "round",   "sign",
        "concat",  "split",          "slice",      "gather",   "reshape",       "flatten", "squeeze",
        "expand",  "unsqueeze",      "transpose",  "tile",     "pad",           "dropout", "reduce_max",
        "hardmax", "depth_to_space", "reduce_min", "max_pool", "space_to_depth"};
    return names.contains(op.name);
}

bool has_cast(const Term& t) {
    if (t.form == Form::Op && (t.op->name == "cast" || t.op->name == "cast_like")) return true;
    return std::any_of(t.args.begin(), t.args.end(), has_cast);
}

// Types by name: that of a cast to what the rule does not name is its own.
class Types {
  public:
    Types(const Rule& rule, const Facts& facts, std::map<int, DType> given) : rule_(rule), facts_(facts) {
        for (const auto& [slot, type] : given) of_[slot] = std::string(dtype_name(type));
        for (const Term& t : rule.pattern) bind(t);
        for (const auto& [slot, t] : rule.lets) of_[slot] = type(t);
    }

    bool clash() const { return clash_; }  // operands of one op that must have one type do not

    std::string type(const Term& t) {
        if (t.form == Form::Variable) {
            auto it = of_.find(t.slot);
            return it == of_.end() ? "" : it->second;
        }
        if (t.form != Form::Op) return "";
        if (t.op->name == "cast") {
            const std::optional<DType> to = cast_type(t);
            return to ? std::string(dtype_name(*to)) : "to " + facts_.attribute(t, "to");
        }
        if (t.op->name == "cast_like") return t.args.size() == 2 ? type(t.args[1]) : "";
        auto param = [](const std::vector<ParamDef>& all, size_t i) { return all[std::min(i, all.size() - 1)].type; };
        std::map<std::string, std::string> agreed;
        for (size_t i = 0; i < t.args.size(); ++i) {
            const std::string own = type(t.args[i]);
            if (own.empty()) continue;
            auto [it, fresh] = agreed.emplace(param(t.op->inputs, i), own);
            clash_ |= !fresh && it->second != own;
        }
        const std::string result = param(t.op->outputs, static_cast<size_t>(t.output));
        if (dtype_from_name(result)) return result;
        auto it = agreed.find(result);
        return it == agreed.end() ? "" : it->second;
    }

    // The types of the ops of a term that round, by the op.
    void computed(const Term& t, std::map<std::string, std::pair<std::string, std::string>>& out) {
        for (const Term& a : t.args) computed(a, out);
        if (t.form != Form::Op || rounds_nothing(*t.op)) return;
        const std::string own = type(t);
        const std::optional<DType> known = dtype_from_name(own);
        if (own.empty() || (known && !kFloats.has(*known))) return;
        out[facts_.text(t)] = {t.op->name, own};
    }

  private:
    const Rule& rule_;
    const Facts& facts_;
    std::map<int, std::string> of_;
    bool clash_ = false;

    void bind(const Term& t) {
        for (const Term& a : t.args) bind(a);
        const std::string own = type(t);
        if (t.bound_slot >= 0) of_[t.bound_slot] = own;
    }
};

DTypes shared_types(DTypes a, DTypes b) { return a.without(kAllTypes.without(b)); }

void collect_numbers(const Term& t, std::set<double>& out) {
    if (t.form == Form::Number) out.insert(t.number);
    for (const Term& a : t.args) collect_numbers(a, out);
}

// Whether it is infinite, or 0, in a type exactly where it is.
bool is_number_of(DType type, double n) {
    const double there = float_from_bits(type, float_to_bits(type, n));
    return !std::isnan(there) && std::isinf(there) == std::isinf(n) && (there == 0) == (n == 0);
}

// A number that the right side alone names, and a float type of its operands that has no such number.
std::optional<std::pair<double, DType>> no_number(const Term& t, const std::set<double>& known,
                                                  const std::map<std::string, DTypes>& matched) {
    if (t.form != Form::Op) return {};
    for (size_t i = 0; i < t.args.size(); ++i) {
        if (auto found = no_number(t.args[i], known, matched)) return found;
        if (t.args[i].form != Form::Number || known.contains(t.args[i].number)) continue;
        auto param = [&](size_t k) { return t.op->inputs[std::min(k, t.op->inputs.size() - 1)].type; };
        DTypes types = admitted("float");  // as claims are made of
        for (const TypeVar& v : t.op->types)
            if (v.name == param(i)) types = shared_types(types, v.allowed);
        for (size_t k = 0; k < t.args.size(); ++k)
            if (k != i && param(k) == param(i) && t.args[k].form != Form::Number)
                types = shared_types(types, types_of_term(t.args[k], matched));
        for (int k = 0; k < 32; ++k)
            if (const DType type = static_cast<DType>(k);
                kAllTypes.has(type) && types.has(type) && !is_number_of(type, t.args[i].number))
                return std::pair(t.args[i].number, type);
    }
    return {};
}

bool holds_all(const std::string& from, const std::string& to) {
    if (from == to) return true;
    const std::optional<DType> a = dtype_from_name(from), b = dtype_from_name(to);
    return a && b && keeps_every_number(*a, *b);
}

}  // namespace

bool keeps_every_number(DType from, DType to) {
    if (from == to) return true;
    if (!kWideFloats.has(from) || !kWideFloats.has(to)) return false;
    return to == DType::f64 || (to == DType::f32 && from != DType::f64);
}

std::optional<DType> cast_type(const Term& cast) {
    for (const auto& [name, value] : cast.attrs)
        if (name == "to" && value.form == Form::Number)
            return onnx::dtype_from_onnx(static_cast<int32_t>(value.whole()));
    return {};
}

Status check_types(const Rule& rule) {
    std::vector<const Term*> right;
    for (const Term& t : rule.replacement) right.push_back(&t);
    for (const auto& [slot, t] : rule.lets) right.push_back(&t);
    auto refused = [&](const std::string& why) { return Error(Code::E0305, "{}: {}", rule.name, why).at(rule.source); };
    const std::map<std::string, DTypes> matched = types_matched(rule);
    std::set<double> known;
    for (const Term& t : rule.pattern) collect_numbers(t, known);
    for (const Term* t : right)
        if (auto found = no_number(*t, known, matched))
            return refused(fmt::format("{} is no number of {}", found->first, dtype_name(found->second)));
    if (std::none_of(rule.pattern.begin(), rule.pattern.end(), has_cast) &&
        std::none_of(right.begin(), right.end(), [](const Term* t) { return has_cast(*t); }))
        return {};
    std::map<int, DType> given;
    std::vector<int> free;
    std::set<int> bound;
    auto find_bound = [&](auto& self, const Term& t) -> void {
        if (t.bound_slot >= 0) bound.insert(t.bound_slot);
        for (const Term& a : t.args) self(self, a);
    };
    for (const Term& t : rule.pattern) find_bound(find_bound, t);
    for (const auto& [slot, t] : rule.lets) bound.insert(slot);
    for (size_t i = 0; i < rule.variables.size(); ++i) {
        const RuleVariable& v = rule.variables[i];
        const int slot = static_cast<int>(i);
        if ((v.kind != TermKind::Tensor && v.kind != TermKind::Tensors) || bound.contains(slot)) continue;
        if (std::optional<DType> named = dtype_from_name(v.constraint))
            given[slot] = *named;
        else if (auto it = matched.find(v.name); it == matched.end() || it->second.without(kFloats) != it->second)
            free.push_back(slot);
    }
    if (free.size() > kMostFree) return refused("too many of its variables may have any type beside a cast");
    const Facts facts(rule);
    constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64};
    for (size_t code = 0; code < size_t{1} << (2 * free.size()); ++code) {
        for (size_t i = 0; i < free.size(); ++i) given[free[i]] = kTypes[code >> (2 * i) & 3];
        Types types(rule, facts, given);
        std::map<std::string, std::pair<std::string, std::string>> before, after;
        std::set<std::string> wide;
        for (const Term& t : rule.pattern) types.computed(t, before);
        for (const auto& [key, op] : before) wide.insert(op.second);
        if (wide.empty())
            for (const Term& t : rule.pattern) wide.insert(types.type(t));
        if (types.clash()) continue;
        for (const Term* t : right) types.computed(*t, after);
        for (const auto& [key, op] : after) {
            if (before.contains(key)) continue;
            for (const std::string& w : wide)
                if (!w.empty() && !holds_all(w, op.second))
                    return refused(
                        fmt::format("its right side computes {} in {}, which may overflow or round where "
                                    "the left side computes in {}",
                                    op.first, op.second, w));
        }
    }
    return {};
}

}  // namespace tessera::checker
