// How one element of a side is read, law by law: the state of element_rule (check_elements.h).
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "discover/check/check_cases.h"
#include "discover/check/check_elements.h"
#include "discover/check/check_facts.h"
#include "discover/check/check_laws.h"
#include "discover/check/check_meanings.h"
#include "discover/check/check_types.h"

namespace tessera::checker {

struct NoElement {
    std::string why;
};

// One step from the index of an element of a result to its index in an operand.
struct Step {
    enum class Kind { Broadcast, Transpose, View, Move, Shift, Only, Channel } kind;
    std::string text = {};  // a key: sizes of the operand; the permutation; sizes of the operand; op, attributes and
                            // sizes; the axis; nothing where there is one element, or one for each channel
    std::string dest = {};  // of a broadcast, the rank of what it comes from; of a view, the sizes; how far
    std::map<std::string, int64_t> by = {};  // of a shift along an axis
};
using Path = std::vector<Step>;

inline bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
}
inline bool is_view(const Term& t) { return is_one_of(t.op->name, {"reshape", "flatten", "squeeze", "unsqueeze"}); }
// Which element is read depends on sizes, attributes and the other operands, not on what the elements are.
inline bool is_move(const Term& t) {
    return is_one_of(t.op->name, {"slice", "tile", "gather", "depth_to_space", "space_to_depth"});
}
inline bool is_reduction(const Term& t) { return t.op->name.starts_with("reduce_"); }
inline bool along_one_axis(const Term& t) {
    return is_one_of(t.op->name, {"softmax", "log_softmax", "hardmax", "arg_max", "arg_min"});
}
// Operands that are one number for all elements, from the second on.
inline bool has_parameters(const Term& t) {
    return is_one_of(t.op->name, {"clip", "quantize_linear", "dequantize_linear"});
}
inline bool takes_lists(const Term& t) {
    return is_view(t) || is_reduction(t) || is_one_of(t.op->name, {"slice", "tile", "expand", "pad"});
}
inline bool is_op(const Term& t, std::string_view name) { return t.form == Term::Form::Op && t.op->name == name; }

class ElementReader {
  public:
    ElementReader(const Rule& rule, bool by_meaning) : rule_(rule), facts_(rule), by_meaning_(by_meaning) {
        auto bind = [&](auto& self, const Term& t) -> void {
            if (t.bound_slot >= 0) bound_.emplace(t.bound_slot, &t);
            for (const Term& a : t.args) self(self, a);
        };
        for (const Term& t : rule.pattern) bind(bind, t);
        out_.rule.variables = rule.variables;  // attributes keep their slots
        matched_ = types_matched(rule);
        for (const Term& t : rule.pattern) learn_operands(t);
    }

    ElementRule run() {
        std::vector<Term> right = rule_.replacement;
        if (right.size() < rule_.pattern.size()) {  // one op whose outputs stand for all
            right.assign(rule_.pattern.size(), rule_.replacement[0]);
            for (size_t i = 0; i < right.size(); ++i) right[i].output = static_cast<int>(i);
        }
        left_ = false;
        // A rule is applied only where types stay.
        std::vector<std::pair<std::string, std::string>> alike;
        for (size_t i = 0; i < right.size(); ++i) {
            std::string a = sizes(rule_.pattern[i]), b = sizes(right[i]);
            if (a.size() > b.size()) std::swap(a, b);
            if (a != b) alike.emplace_back(b, a);
            // A literal has no type of its own: it is rounded, or wraps, in that of the result.
            const std::string own = type(right[i]), wanted = type(rule_.pattern[i]);
            if (!own.empty() && !wanted.empty() && own != wanted) types_[own] = wanted;
        }
        roots_.insert(alike.begin(), alike.end());
        sizes_known_.clear();
        whole_known_.clear();
        out_.rule.name = rule_.name;
        out_.rule.exactness = rule_.exactness;
        out_.rule.source = rule_.source;
        out_.same = true;
        for (size_t i = 0; i < right.size(); ++i) {
            left_ = true;
            out_.rule.pattern.push_back(element(rule_.pattern[i], {}));
            left_ = false;
            check_views(right[i], true);
            out_.rule.replacement.push_back(element(right[i], {}));
            out_.same &= text(out_.rule.pattern[i]) == text(out_.rule.replacement[i]);
        }
        conditions();
        return std::move(out_);
    }

  private:
    const Rule& rule_;
    Facts facts_;
    const bool by_meaning_;
    ElementRule out_;
    std::map<int, const Term*> bound_;  // y@op(...)
    std::map<std::string, std::string> roots_,
        types_;                                   // of a result on the right: those of the one on the left
    std::map<std::string, std::string> reduced_;  // sizes with ones along some axes: without them
    std::set<const Term*> naming_;                // terms whose sizes are being named
    int unknown_ = 0;                             // names of their own
    using Asked = std::pair<bool, std::string>;   // of which side, and the term
    std::map<Asked, std::string> sizes_known_, whole_known_;
    std::map<std::string, size_t> long_names_;
    mutable int64_t steps_ = 0;
    std::map<std::string, int> leaves_;                      // by key
    std::map<int, int> variable_of_;                         // by leaf: the tensor whose element it is
    std::map<std::string, DTypes> matched_;                  // what the pattern's ops take
    std::set<std::string> matrices_, channels_;              // variables that an op takes as a
                                                             // matrix, or one for each channel
    std::set<std::pair<const OpDef*, std::string>> viewed_;  // reshape and squeeze on the left, with their sizes
    std::set<std::string> gathered_;                         // variables that the left side reads at indices
    int last_ = 0;
    bool left_ = true;  // which side is read

    static bool is_variable(const Term& t, int slot) { return t.form == Term::Form::Variable && t.slot == slot; }

    // What the rule says of a variable's values, of the elements that are read of it.
    void conditions();

    // A view whose sizes are found only as the program runs may stop it. As the result its type is the left side's;
    // inside, the left side has the same one.
    void check_views(const Term& given, bool is_result);
    // An index that lies outside of an operand stops the program: the right side reads no other than the left side.
    void gathers(const Term& t) {
        const std::string key = fmt::format("[{}]({}; {})", facts_.attributes(t), sizes(t.args[0]), other_operands(t));
        if (left_)
            gathered_.insert(key);
        else if (!gathered_.contains(key))
            throw NoElement{"the right side reads at an index that the left side does not"};
    }

    // ---- products (check_products.cpp)

    void learn_operands(const Term& t);
    std::string oriented(const Term& product, size_t operand, bool flipped, bool only_sizes);
    bool is_matrix(const Term& given) const;
    bool is_row(const Term& given) const;
    std::string product_name(const Term& t, bool flipped, bool only_sizes);
    std::optional<std::pair<Term, Term>> factored(const Term& given,
                                                  const std::function<bool(const Term&, const Term&)>& is);
    std::optional<Term> taken_out_of_product(const Term& t);
    std::optional<std::pair<Term, std::string>> inside_of_product(const Term& t);
    std::optional<Term> product_written_out(const Term& t);
    bool has_one_group(const Term& t) const;
    bool is_per_channel(const Term& c, const Term& w) const;
    Term bias_of(const Term& given, const Term& w, bool transposed, bool whole = true);
    std::optional<Term> conv_written_out(const Term& t);
    std::optional<std::pair<Term, std::string>> inside_of_conv(const Term& t);
    std::optional<Term> norm_written_out(const Term& t) const;
    std::optional<Term> part_of_joined(const Term& slice);
    std::optional<Term> rows_of_product(const Term& reshape);
    Term product_leaf(Term t, Path path);
    bool is_float_product(const Term& t) const;
    bool is_narrow(const Term& t) const;

    // ---- attention (check_attention.cpp)

    std::optional<Term> attention_written_out(const Term& t);
    std::optional<Term> attention_leaf(Term t, const Path& path);
    std::optional<Term> shared_heads(const Term& given) const;
    std::optional<int> known_rank(const Term& given) const;
    std::optional<std::string> known_axis(const Term& axis, int rank) const;

    // ---- windows and joined parts (check_joined.cpp)

    std::optional<Term> rejoined(const Term& t);
    std::optional<Term> padded_window(const Term& t);
    std::optional<Term> phases(const Term& t) const;
    std::optional<Term> rotary(const Term& t) const;
    std::optional<Term> part_of_sum(const Term& t) const;
    std::optional<Term> transpose_of_stacked(const Term& t);

    // ---- slices (check_slices.cpp)

    using Linear = std::map<std::string, int64_t>;  // a sum of multiples; "" is 1
    Linear linear(const Term& t) const;
    static Linear combined(Linear a, const Linear& b, int sign);
    static std::string linear_text(const Linear& sum);
    bool is_not_negative(const Term& t) const;
    std::optional<std::pair<std::string, Linear>> shift_of(const Term& t);
    std::optional<Term> merged_movement(const Term& t) const;

    // ---- facts about a tensor

    // Terms that stand at many places, as a let does, may be read more often than can be waited for: such a rule is
    // refused.
    void count_step() const {
        constexpr int64_t kMostSteps = 2'000'000;
        if (++steps_ > kMostSteps) throw NoElement{"its terms are too large to check"};
    }

    // A variable that stands for an op's result, as that op.
    const Term& resolved(const Term& t) const {
        count_step();
        if (t.form != Term::Form::Variable || t.slot < 0) return t;
        if (auto it = bound_.find(t.slot); it != bound_.end()) return *it->second;
        if (const Term* l = facts_.let(t.slot); l && l->form == Term::Form::Op) return resolved(*l);
        return t;
    }
    std::string variable(const Term& t) const {
        return t.form == Term::Form::Variable && t.slot >= 0 ? facts_.name(t.slot) : fmt::format("_@{}", t.at);
    }
    std::string canonical(std::string sizes) const {
        auto it = roots_.find(sizes);
        return it == roots_.end() ? sizes : it->second;
    }

    bool elementwise(const Term& t) const {
        if (is_one_of(t.op->name, {"cast_like", "swiglu"})) return false;
        if (has_parameters(t) && t.op->name != "clip") {
            const Term& scale = t.args.at(1);
            return scale.form == Term::Form::Variable && facts_.same_rank(variable(scale)) == "0" && t.rest_slot < 0;
        }
        return t.op->has(Trait::Elementwise) && t.op->has(Trait::Pure);
    }

    // A literal, an attribute, or what is computed of them.
    bool is_number(const Term& t) const {
        return t.form == Term::Form::Number || t.form == Term::Form::Call ||
               (t.form == Term::Form::Variable && t.slot >= 0 &&
                rule_.variables[static_cast<size_t>(t.slot)].kind == TermKind::Float);
    }

    // The tensors that give an element-wise op its sizes.
    std::vector<const Term*> operands(const Term& t) const {
        std::vector<const Term*> out;
        for (const Term& a : t.args)
            if (!is_number(resolved(a)) && !(has_parameters(t) && !out.empty())) out.push_back(&a);
        return out;
    }

    // A name for the sizes of a tensor: two of one name have the same. One that needs itself is like no other.
    std::string sizes(const Term& given) {
        const Term& t = resolved(given);
        if (t.form != Term::Form::Op) return sizes_of(t);
        const Asked key(left_, facts_.text(t));
        if (auto known = sizes_known_.find(key); known != sizes_known_.end()) return known->second;
        if (!naming_.insert(&t).second) return fmt::format("unknown {}", ++unknown_);
        const int before = unknown_;
        std::string name = canonical(short_name(sizes_of(t)));
        naming_.erase(&t);
        if (unknown_ == before) sizes_known_.emplace(key, name);
        return name;
    }

    // A long name as a number of its own, so that names of nested terms do not grow with each other.
    std::string short_name(std::string name) {
        constexpr size_t kLong = 400;
        if (name.size() <= kLong) return name;
        const size_t id = long_names_.emplace(std::move(name), long_names_.size()).first->second;
        return fmt::format("#{}", id);
    }

    std::string sizes_of(const Term& t) {
        if (t.form == Term::Form::Variable)
            return canonical(t.list ? variable(t) + "..." : facts_.same_sizes(variable(t)));
        if (t.form != Term::Form::Op) return facts_.text(t);
        if (elementwise(t)) return canonical(joined(operands(t)));
        if (is_op(t, "transpose"))
            return canonical(fmt::format("transpose[{}]({})", facts_.attributes(t), sizes(t.args[0])));
        if (is_view(t) || is_move(t) || is_one_of(t.op->name, {"expand", "pad"}))
            return canonical(fmt::format("{}.{}[{}]({}; {})", t.op->name, t.output, facts_.attributes(t),
                                         sizes(t.args[0]), other_operands(t)));
        if (is_one_of(t.op->name, {"batch_normalization", "softmax", "log_softmax"}) && t.output == 0)
            return sizes(t.args[0]);
        if (const std::string product = product_name(t, false, true); !product.empty()) return canonical(product);
        if (is_one_of(t.op->name, {"matmul", "conv", "conv_transpose"}))
            return canonical(
                fmt::format("{}[{}]({}, {})", t.op->name, facts_.attributes(t), sizes(t.args[0]), sizes(t.args[1])));
        if (is_reduction(t) && t.args.size() == 2) return reduced_sizes(t);
        return canonical(fmt::format("{}.{}[{}]({})", t.op->name, t.output, facts_.attributes(t), whole_operands(t)));
    }

    std::string reduced_sizes(const Term& t) {
        const std::string from = sizes(t.args[0]), attributes = facts_.attributes(t);
        std::string out = canonical(fmt::format("reduced[{}]({}, {})", attributes, from, axes_of(t)));
        if (attributes.empty()) reduced_.emplace(out, from);
        return out;
    }

    // Those that no other one covers; of several that cover one another, one stays.
    template <typename Covers>
    static std::vector<const Term*> uncovered(const std::vector<const Term*>& all, const Covers& covers) {
        std::map<const Term*, const Term*> by;
        auto last = [&](const Term* t) {
            for (auto it = by.find(t); it != by.end(); it = by.find(t)) t = it->second;
            return t;
        };
        for (const Term* a : all)
            for (const Term* b : all)
                if (last(b) != a && covers(*b, *a)) {
                    by.emplace(a, b);
                    break;
                }
        std::vector<const Term*> out = all;
        std::erase_if(out, [&](const Term* t) { return by.contains(t); });
        return out;
    }

    // Of operands that are broadcast together, less those that do not enlarge another.
    std::string joined(const std::vector<const Term*>& all) {
        std::set<std::string> names;
        for (const Term* a : uncovered(all, [&](const Term&large, const Term&given) {
                 const Term& t = resolved(given);
                 return t.form == Term::Form::Variable && !t.list && fits_result(variable(t), resolved(large));
             }))
            names.insert(sizes(*a));
        // What is reduced has ones along its axes, and the other sizes of what it was.
        for (const std::string& name : std::set<std::string>(names))
            if (names.contains(name))
                std::erase_if(names, [&](const std::string& n) {
                    auto it = reduced_.find(n);
                    return n != name && it != reduced_.end() && it->second == name;
                });
        if (names.size() > 1) names.erase("joined()");  // of numbers only
        if (names.size() == 1) return *names.begin();
        return fmt::format("joined({})", fmt::join(names, ", "));
    }

    // Whether a variable's sizes broadcast to a tensor's: to those of a variable that the tensor has the sizes of.
    bool fits_result(const std::string& small, const Term& large) {
        if (facts_.same_rank(small) == "0") return true;
        if (large.form == Term::Form::Variable) return !large.list && facts_.fits(small, variable(large));
        for (const auto& [slot, term] : bound_)
            if (large.form == Term::Form::Op && term->op == large.op && facts_.fits(small, facts_.name(slot)) &&
                sizes(*term) == sizes(large))
                return true;
        if (large.form == Term::Form::Op && facts_.one_element(small))
            for (int n = 0, most = known_rank(large).value_or(-1); n <= most; ++n)
                if (facts_.says(fmt::format("<=(rank({}), {})", small, n))) return true;
        if (large.form != Term::Form::Op || !elementwise(large)) return false;
        std::vector<const Term*> all = operands(large);
        return std::any_of(all.begin(), all.end(), [&](const Term* a) { return fits_result(small, resolved(*a)); });
    }

    // A name for its rank, "0" where it has none.
    std::string rank(const Term& given) {
        const Term& t = resolved(given);
        if (t.form == Term::Form::Number) return "0";
        if (t.form == Term::Form::Variable && !t.list) return facts_.same_rank(variable(t));
        if (t.form != Term::Form::Op) return facts_.text(t);
        if (is_op(t, "transpose") || is_one_of(t.op->name, {"slice", "pad", "tile"}) ||
            (along_one_axis(t) && keeps_axes(t)))
            return rank(t.args[0]);
        if (const Term* longer = leading_ones(t)) return rank(*longer);
        if (is_one_of(t.op->name, {"conv", "conv_transpose"})) return rank(t.args[1]);
        if (!elementwise(t)) return "of " + sizes(t);
        std::set<std::string> ranks;
        for (const Term* a : uncovered(operands(t), [&](const Term&large, const Term&given) {
                 const Term& x = resolved(given);
                 return x.form == Term::Form::Variable && rank_at_most(variable(x), resolved(large));
             }))
            ranks.insert(rank(*a));
        return ranks.size() == 1 ? *ranks.begin() : fmt::format("largest({})", fmt::join(ranks, ", "));
    }
    bool rank_at_most(const std::string& small, const Term& large) {
        if (large.form == Term::Form::Variable) return !large.list && facts_.rank_at_most(small, variable(large));
        return is_op(large, "transpose") && rank_at_most(small, resolved(large.args[0]));
    }

    // reshape(c, join(repeat(1, rank(x) - rank(c)), dims(c))): c with ones before its sizes; gives x.
    const Term* leading_ones(const Term& t) const {
        if (!is_op(t, "reshape") || t.args.size() != 2 || !t.attrs.empty() || t.rest_slot >= 0) return nullptr;
        const Term &c = t.args[0], &list = t.args[1];
        if (c.form != Term::Form::Variable || list.form != Term::Form::Call || list.name != "join") return nullptr;
        const Term& ones = list.args[0];
        const std::string own = fmt::format("dims({})", facts_.text(c));
        if (facts_.text(list.args[1]) != own || ones.name != "repeat" || facts_.text(ones.args[0]) != "1")
            return nullptr;
        const Term& count = ones.args[1];
        if (count.name != "-" || count.args.size() != 2 || count.args[0].name != "rank") return nullptr;
        if (facts_.text(count.args[1]) != fmt::format("rank({})", facts_.text(c))) return nullptr;
        return &count.args[0].args[0];
    }

    // A name for the type of the elements.
    std::string type(const Term& given) {
        const Term& t = resolved(given);
        std::string name = t.form == Term::Form::Variable ? variable(t)
                           : is_op(t, "cast")             ? "to " + facts_.attribute(t, "to")
                           : t.form == Term::Form::Op     ? facts_.text(t)
                                                          : "";
        auto it = types_.find(name);
        return it == types_.end() ? name : it->second;
    }

    // ---- which element

    static Path only_element() { return {{Step::Kind::Only}}; }
    static void broadcast(Path& path, std::string sizes, std::string dest) {
        if (!path.empty() && path.back().kind == Step::Kind::Only) return;
        if (!path.empty() && path.back().kind == Step::Kind::Broadcast) {
            dest = path.back().dest;
            path.pop_back();
        }
        path.push_back({Step::Kind::Broadcast, std::move(sizes), std::move(dest)});
    }

    // o -> i with i[p[k]] = o[k].
    void transpose(Path& path, const std::string& p, const Term& of) {
        std::optional<Step> spread;
        if (!path.empty() && path.back().kind == Step::Kind::Broadcast) {
            if (path.back().dest != rank(of)) return path.push_back({Step::Kind::Transpose, p});
            spread = path.back();
            path.pop_back();
        }
        if (!path.empty() && path.back().kind == Step::Kind::Transpose) {
            const std::string q = path.back().text;
            path.pop_back();
            if (p != fmt::format("inverse({})", q) && q != fmt::format("inverse({})", p))
                path.push_back({Step::Kind::Transpose, fmt::format("permute({}, {})", p, q)});
        } else {
            path.push_back({Step::Kind::Transpose, p});
        }
        if (spread) path.push_back({Step::Kind::Broadcast, sizes(of), spread->dest});
    }

    void view(Path& path, const std::string& from, std::string to) const {
        if (!path.empty() && path.back().kind == Step::Kind::View && path.back().text == to) {
            to = path.back().dest;
            path.pop_back();
        }
        if (from != to) path.push_back({Step::Kind::View, from, to});
    }

    static std::string path_text(const Path& path) {
        std::string out;
        for (const Step& s : path) {
            const char* names[] = {"broadcast", "transpose", "view", "move", "shift", "only", "channel"};
            const bool to = s.kind == Step::Kind::View || s.kind == Step::Kind::Shift;
            out += fmt::format(" {{{} {}; {}}}", names[static_cast<int>(s.kind)], s.text, to ? s.dest : "");
        }
        return out;
    }

    // ---- elements

    // What may become of an op whose operands are numbers, those that its operands stand for included.
    Partial partial(const Term& given) const {
        const Term& t = resolved(given);
        if (t.form != Term::Form::Op) return Partial::None;
        Partial out = partial_of(t);
        const Term& x = resolved(t.args.empty() ? t : t.args[0]);
        if (is_one_of(t.op->name, {"reduce_max", "reduce_min", "reduce_mean"}) && x.form == Term::Form::Variable &&
            facts_.has_elements(variable(x)))
            out = Partial::None;
        for (size_t i = 0; i < (takes_lists(t) ? std::min<size_t>(1, t.args.size()) : t.args.size()); ++i)
            out = std::max(out, partial(t.args[i]));
        return out;
    }

    // The operands as tensors.
    std::string whole_operands(const Term& t) {
        std::vector<std::string> out;
        for (const Term& a : t.args) out.push_back(whole(a, &a != &t.args[0] && takes_lists(t)));
        return fmt::format("{}", fmt::join(out, ", "));
    }
    std::string other_operands(const Term& t) {
        std::vector<std::string> out;
        for (size_t i = 1; i < t.args.size(); ++i) out.push_back(whole(t.args[i], takes_lists(t)));
        return fmt::format("{}", fmt::join(out, ", "));
    }
    std::string whole(const Term& given, bool list) {
        const Term& t = resolved(given);
        if (t.form == Term::Form::Variable) {
            if (const Term* l = t.slot >= 0 ? facts_.let(t.slot) : nullptr) return facts_.text(*l);
            if (t.optional) throw NoElement{fmt::format("{} may be absent", variable(t))};
            std::string name = variable(t) + (t.list ? "..." : "");
            return list ? fmt::format("ints({})", name) : name;
        }
        if (t.form != Term::Form::Op) return facts_.text(t);
        const Asked key(left_, facts_.text(t));
        if (auto known = whole_known_.find(key); known != whole_known_.end()) return known->second;
        const int before = unknown_;
        Term inside = element(t, {});
        if (by_meaning_) inside = rewritten_by_laws(inside, out_);
        std::string name = short_name(fmt::format("<{} of {}>", text(inside), sizes(t)));
        if (unknown_ == before) whole_known_.emplace(key, name);
        return name;
    }

    // A term over numbers in one way of writing; operands that may change places are in order.
    std::string text(const Term& t) const {
        if (t.form != Term::Form::Op) return t.form == Term::Form::Variable ? t.name : facts_.text(t);
        std::vector<std::string> args;
        for (const Term& a : t.args) args.push_back(text(a));
        if (may_swap(t)) std::sort(args.begin(), args.end());
        return fmt::format("{}.{}[{}]({})", t.op->name, t.output, facts_.attributes(t), fmt::join(args, ", "));
    }

    // What every element of a constant is. It may be either zero.
    static Term number(double n) {
        Term t;
        t.form = Term::Form::Number;
        t.number = n;
        return t;
    }

    Term leaf(const std::string& what, const std::string& constraint, Partial partial = Partial::None) {
        auto [it, fresh] = leaves_.emplace(what, static_cast<int>(out_.rule.variables.size()));
        if (fresh) {
            std::string name = fmt::format("e{}", ++last_);
            while (std::any_of(rule_.variables.begin(), rule_.variables.end(),
                               [&](const RuleVariable& v) { return v.name == name; }))
                name = fmt::format("e{}", ++last_);
            out_.rule.variables.push_back({name, TermKind::Tensor, constraint});
            out_.elements[name] = {what, partial};
        }
        Term t;
        t.form = Term::Form::Variable;
        t.kind = TermKind::Tensor;
        t.slot = it->second;
        t.name = out_.rule.variables[static_cast<size_t>(it->second)].name;
        return t;
    }

    Term element(const Term& given, Path path) {
        const Term& t = resolved(given);
        if (t.form == Term::Form::Number || is_absent(t)) return t;
        if (t.form == Term::Form::Variable) return variable_element(t, path);
        if (t.form == Term::Form::Call && t.name == "channel") {
            path.push_back({Step::Kind::Channel});
            return element(t.args[0], path);
        }
        if (t.form == Term::Form::Call && t.name == "beside") {
            broadcast(path, sizes(t.args[0]), rank(t.args[1]));
            return element(t.args[0], path);
        }
        if (t.form == Term::Form::Call) return attribute_element(t);
        if (t.form != Term::Form::Op) throw NoElement{fmt::format("no law for {}", facts_.text(t))};
        if (const Term* same = does_nothing(t)) return element(*same, path);
        if (is_op(t, "split") && t.output == 0 && sizes(t) == sizes(t.args[0])) return element(t.args[0], path);
        // What one of them is depends on how many there are.
        check_literals(t);
        if (t.op->outputs.back().variadic) throw NoElement{t.op->name + " has any number of results"};
        if (!t.op->has(Trait::Pure)) throw NoElement{t.op->name + " is not a function of its operands"};
        if (is_op(t, "cast")) {
            // Rounded once, where the first cast loses nothing.
            const Term& inner = resolved(t.args[0]);
            if (is_op(inner, "cast") && loses_nothing(inner) && to_numbers(t)) {
                Term once = t;
                once.args[0] = inner.args[0];
                return element(once, path);
            }
        }
        if (by_meaning_)
            if (std::optional<Term> meaning = written_out(t)) return element(*meaning, path);
        if (std::optional<Term> moved = rejoined(t)) return element(*moved, path);
        if (elementwise(t)) return elementwise_element(t, path);
        if (is_op(t, "transpose")) {
            if (facts_.says(
                    fmt::format("moves_only_ones({}, dims({}))", facts_.attribute(t, "perm"), facts_.text(t.args[0]))))
                view(path, sizes(t.args[0]), sizes(t));
            else
                transpose(path, facts_.attribute(t, "perm"), t.args[0]);
            return element(t.args[0], path);
        }
        if (leading_ones(t) || is_op(t, "expand")) {
            if (sizes(t) != sizes(t.args[0])) broadcast(path, sizes(t.args[0]), rank(t));
            return element(t.args[0], path);
        }
        if (is_view(t)) {
            view(path, sizes(t.args[0]), sizes(t));
            return element(t.args[0], path);
        }
        if (std::optional<Term> other = transposed_before(t, path)) return element(*other, path);
        if (is_op(t, "gather")) gathers(t);
        if (std::optional<Term> merged = merged_movement(t)) return element(*merged, path);
        if (auto shift = shift_of(t)) {
            Linear by = shift->second;
            if (!path.empty() && path.back().kind == Step::Kind::Shift && path.back().text == shift->first) {
                by = combined(std::move(by), path.back().by, 1);
                path.pop_back();
            }
            std::erase_if(by, [](const auto& term) { return term.second == 0; });
            if (!by.empty()) path.push_back({Step::Kind::Shift, shift->first, linear_text(by), by});
            return element(t.args[0], path);
        }
        if (is_move(t)) {
            if (sizes(t) == sizes(t.args[0]) && keeps_order(t)) return element(t.args[0], path);
            path.push_back({Step::Kind::Move, fmt::format("{}.{}[{}]({}; {})", t.op->name, t.output,
                                                          facts_.attributes(t), sizes(t.args[0]), other_operands(t))});
            return element(t.args[0], path);
        }
        return function_element(t, path);
    }

    // A clip whose limits are one number each.
    std::optional<Term> limited(const Term& t) const;

    // An op as simpler ones. Attributes are f32: what is none of it, or is computed, is right for no wider elements.
    std::optional<Term> written_out(const Term& t);

    // The sum over axes of exp(x - m), with one m for all of them, is that of exp(x) divided by exp(m).
    std::optional<Term> exp_of_difference(const Term& t, bool has_elements) const;
    std::optional<Term> without_shift(const Term& t) const;
    std::optional<Term> reduction_written_out(const Term& t);

    // The axes of a reduction in one way of writing, of the variable that it reads.
    std::string axes_of(const Term& t) const;
    // The variables whose sizes a tensor has, as far as element-wise ops and reductions that keep axes show.
    void collect(const Term& given, std::set<std::string>& read) const;

    Term variable_element(const Term& t, const Path& path);

    // What every element of a tensor is. One of booleans that are all true is 1; of other types that says only that
    // none is 0.
    std::optional<double> known_number(const Term& t) const;
    // Which of these types the pattern's ops and the rule let a variable have: "bool" for that alone, empty for none.
    std::string types_in(const std::string& variable, DTypes these) const;

    std::string constraint_of(const std::string& variable, const std::string& written) const;

    // A number that the rule computes: of constants of one element and attributes.
    Term attribute_element(const Term& t);

    void check_literals(const Term& t);
    Term elementwise_element(const Term& t, const Path& path);

    // An op of which nothing else is known: a number that op, attributes, operands and place decide.
    Term function_element(const Term& t, Path path);
    bool keepdims_is(const Term& t, std::string_view value) const { return facts_.attribute(t, "keepdims") == value; }
    // Whether the reduction provably keeps its axes.
    bool keeps_axes(const Term& t) const { return !t.op->attr("keepdims") || facts_.attribute(t, "keepdims").empty(); }

    // A cast to a type that has every number of its operand's, by a condition or by the types that the rule names.
    bool loses_nothing(const Term& cast) const {
        if (cast.bound_slot >= 0 && facts_.says(fmt::format("widens(dtype({}), dtype({}))", facts_.text(cast.args[0]),
                                                            facts_.name(cast.bound_slot))))
            return true;
        const std::optional<DType> from = known_type(cast.args[0]), to = known_type(cast);
        return from && to && keeps_every_number(*from, *to);
    }
    // Whether a cast gives numbers. Strings show how many digits the operand's type has.
    bool to_numbers(const Term& cast) const {
        const std::optional<DType> to = cast_type(cast);
        return to ? *to != DType::string : facts_.says(fmt::format("!=({}, 8)", facts_.attribute(cast, "to")));
    }
    // The element type, where the rule names it.
    std::optional<DType> known_type(const Term& given) const {
        const Term& t = resolved(given);
        if (t.form == Term::Form::Variable && t.slot >= 0)
            return dtype_from_name(rule_.variables[static_cast<size_t>(t.slot)].constraint);
        return is_op(t, "cast") ? cast_type(t) : std::nullopt;
    }

    // The operand, if the op is the identity on it; else null.
    const Term* does_nothing(const Term& t);

    // Whether an op that leaves the sizes leaves the elements where they are.
    bool keeps_order(const Term& t) const {
        if (t.op->name == "gather") return false;
        if (t.op->name != "slice" || t.args.size() < 5) return true;
        const Term& list = t.args[4];
        const std::string steps =
            facts_.text(list.form == Term::Form::Call && list.name == "ints" ? list.args[0] : list);
        return steps == "[1]" || facts_.says(fmt::format("all_equal(ints({}), 1)", steps)) ||
               facts_.says(fmt::format("==(ints({}), [1])", steps));
    }

    // An op along axes of a transposed tensor is that op along the axes that they were before, then transposed.
    std::optional<Term> transposed_before(const Term& t, Path& path);
};

}  // namespace tessera::checker
