#include "discover/check/check_element_types.h"

#include <algorithm>
#include <unordered_map>

#include "rewrite/rules/check_rule.h"

namespace tessera::checker {
namespace {

using Form = Term::Form;

DTypes both(DTypes a, DTypes b) { return a.without(kAllTypes.without(b)); }

// What the elements of a term and of its variables may be, by what the ops take. Each pass visits every op once and
// only narrows; they are repeated until nothing changes.
class Narrowing {
  public:
    explicit Narrowing(std::map<std::string, DTypes>& of) : of_(of) {}

    DTypes run(const Term& t, DTypes wanted) {
        DTypes out;
        do {
            changed_ = false;
            out = visit(t, wanted);
        } while (changed_);
        return out;
    }

  private:
    std::map<std::string, DTypes>& of_;
    std::unordered_map<const Term*, DTypes> known_;  // of ops
    bool changed_ = false;

    static const std::string& param(const std::vector<ParamDef>& all, size_t i) {
        return all[std::min(i, all.size() - 1)].type;
    }
    static DTypes allowed(const Term& t, const std::string& type) {
        for (const TypeVar& v : t.op->types)
            if (v.name == type) return v.allowed;
        if (auto dtype = dtype_from_name(type)) return *dtype;
        return kAllTypes;
    }
    DTypes known(const Term& t) const {
        if (t.form == Form::Variable) {
            auto it = of_.find(t.name);
            return it == of_.end() ? kAllTypes : it->second;
        }
        auto it = known_.find(&t);
        return it == known_.end() ? kAllTypes : it->second;
    }

    DTypes visit(const Term& t, DTypes wanted) {
        if (t.form == Form::Variable) {
            auto it = of_.emplace(t.name, kAllTypes).first;
            const DTypes now = both(it->second, wanted);
            changed_ |= now != it->second;
            return it->second = now;
        }
        if (t.form != Form::Op) return wanted;
        std::map<std::string, DTypes> agreed;
        for (const TypeVar& v : t.op->types) agreed[v.name] = v.allowed;
        const std::string& result = param(t.op->outputs, static_cast<size_t>(t.output));
        if (auto it = agreed.find(result); it != agreed.end()) it->second = both(it->second, both(wanted, known(t)));
        auto agree = [&](size_t i, DTypes types) {
            auto it = agreed.find(param(t.op->inputs, i));
            if (it != agreed.end() && t.args[i].form != Form::Number) it->second = both(it->second, types);
        };
        for (size_t i = 0; i < t.args.size(); ++i) agree(i, known(t.args[i]));
        for (size_t i = 0; i < t.args.size(); ++i) {
            const std::string& type = param(t.op->inputs, i);
            auto it = agreed.find(type);
            agree(i, visit(t.args[i], it == agreed.end() ? allowed(t, type) : it->second));
        }
        auto it = agreed.find(result);
        if (it == agreed.end()) return allowed(t, result);
        const DTypes before = known(t);
        known_[&t] = it->second;
        changed_ |= it->second != before;
        return it->second;
    }
};

DTypes narrow(const Term& t, DTypes wanted, std::map<std::string, DTypes>& of) { return Narrowing(of).run(t, wanted); }

}  // namespace

DTypes admitted(std::string_view constraint) {
    DTypes out;
    for (int i = 0; i < 32; ++i)
        if (DType t = static_cast<DType>(i); kAllTypes.has(t) && satisfies(t, constraint)) out = out | DTypes(t);
    return out;
}

std::map<std::string, DTypes> types_of(const Rule& rule) {
    std::map<std::string, DTypes> of;
    for (const RuleVariable& v : rule.variables)
        if (v.kind == TermKind::Tensor) of[v.name] = admitted(v.constraint);
    for (int pass = 0; pass < 3; ++pass)
        for (size_t i = 0; i < std::min(rule.pattern.size(), rule.replacement.size()); ++i) {
            DTypes result = narrow(rule.pattern[i], kAllTypes, of);
            narrow(rule.replacement[i], result, of);
        }
    return of;
}

std::map<std::string, DTypes> types_matched(const Rule& rule) {
    std::map<std::string, DTypes> of;
    for (const RuleVariable& v : rule.variables)
        if (v.kind == TermKind::Tensor) of[v.name] = admitted(v.constraint);
    for (int pass = 0; pass < 3; ++pass)
        for (const Term& t : rule.pattern) narrow(t, kAllTypes, of);
    return of;
}

DTypes types_of_term(const Term& t, std::map<std::string, DTypes> of) { return narrow(t, kAllTypes, of); }

}  // namespace tessera::checker
