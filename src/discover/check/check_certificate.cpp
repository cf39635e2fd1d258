#include "discover/check/check_certificate.h"

#include <algorithm>
#include <sstream>

#include "discover/check/check_cancellation.h"
#include "discover/check/check_meaning.h"
#include "discover/check/check_statement.h"
#include "discover/check/check_types.h"

namespace tessera {
namespace checker {
namespace {

// The lines of a certificate, one after the other.
class Lines {
  public:
    explicit Lines(const std::string& text) {
        std::istringstream in(text);
        for (std::string line; std::getline(in, line);) {
            size_t first = line.find_first_not_of(' ');
            lines_.push_back(first == line.npos ? "" : line.substr(first));
        }
    }
    bool done() const { return at_ == lines_.size(); }
    const std::string& peek() const { return done() ? none_ : lines_[at_]; }
    std::string next() { return done() ? none_ : lines_[at_++]; }
    size_t number() const { return at_; }
    const std::string& last() const { return at_ ? lines_[at_ - 1] : none_; }

  private:
    std::vector<std::string> lines_;
    std::string none_;
    size_t at_ = 0;
};

// Takes a sum to nothing by the steps of a certificate.
class Replay {
  public:
    Replay(Names& names, Lines& lines, Conjunction base, const Items& items, const Items* others = nullptr,
           bool largest = true)
        : names_(names), lines_(lines), base_(std::move(base)), others_(others), largest_(largest) {
        for (const Item& i : items) items_.emplace(++last_, i);
    }

    // Until a line that is no step: "}" or "]", another root, or the end.
    void run() {
        auto ends = [](const std::string& line) { return line == "}" || line == "]" || line.starts_with("root "); };
        while (!lines_.done() && !ends(lines_.peek())) {
            std::istringstream in(lines_.next());
            std::string law;
            in >> law;
            if (law == "output")
                output(in);
            else if (law == "merge" && !others_)
                merge(in);
            else if ((law == "inside" || law == "beyond") && others_)
                inside(in, law == "beyond");
            else if (law == "square" && !others_)
                square(in);
            else if (law == "collapse" && !others_)
                collapse(in);
            else if (law == "negate" && !others_)
                negate(in);
            else if (law == "shift" && !others_)
                shift(in);
            else if (law == "unit" && !others_)
                unit(in);
            else
                change(law, in);
        }
        if (!items_.empty()) throw Refused{std::to_string(items_.size()) + " terms are left"};
    }

  private:
    Names& names_;
    Lines& lines_;
    Conjunction base_;
    const Items* others_;  // where the items are points that are to be found among these
    bool largest_;
    std::map<int, Item> items_;
    int last_ = 0;
    bool begun_ = false;
    using Map = std::map<int, Whole>;

    static void demand(bool holds, const char* what) {
        if (!holds) throw Refused{what};
    }
    Conjunction known(const Item& item) const {
        Conjunction all = base_;
        append(all, item.where);
        return all;
    }
    int id(std::istringstream& in) const {
        int n = 0;
        in >> n;
        demand(!in.fail() && items_.contains(n), "there is no such term");
        return n;
    }
    Whole one(int atom) const { return {{{atom}, 1}}; }
    static std::string rest(std::istringstream& in) {
        std::string text;
        std::getline(in, text);
        return text;
    }
    // "A mark B" as A and B.
    static std::pair<std::string, std::string> around(const std::string& text, const std::string& mark) {
        size_t at = text.rfind(mark);
        demand(at != text.npos, "it is not written as that law is");
        return {text.substr(0, at), text.substr(at + mark.size())};
    }
    int variable_of(const Item& item, const std::string& name) const {
        int v = names_.find(name);
        demand(std::find(item.variables.begin(), item.variables.end(), v) != item.variables.end(),
               "it does not sum over that variable");
        return v;
    }

    // Replaces atoms everywhere. A variable bound inside must neither be replaced nor get into its own scope by that.
    void replace(Items& items, const Map& by, bool inside) {
        std::set<int> touched;
        for (const auto& [atom, value] : by) {
            names_.atoms_in(one(atom), touched);
            names_.atoms_in(value, touched);
        }
        for (Item& item : items) {
            if (inside)
                for (int v : item.variables) demand(!touched.contains(v), "a variable would be captured");
            for (Whole& p : item.where) p = names_.replace(p, by);
            for (Part& part : item.parts) {
                for (Whole& p : part.at) p = names_.replace(p, by);
                for (Items& arg : part.of) replace(arg, by, true);
            }
        }
    }
    void replace(Item& item, const Map& by) {
        Items single{std::move(item)};
        replace(single, by, false);
        item = std::move(single[0]);
    }

    bool mentions(const Items& items, int atom) const {
        for (const Item& item : items) {
            for (int v : item.variables)
                if (v == atom) return true;
            for (const Whole& p : item.where)
                if (names_.occurs(atom, p)) return true;
            for (const Part& part : item.parts) {
                for (const Whole& p : part.at)
                    if (names_.occurs(atom, p)) return true;
                for (const Items& arg : part.of)
                    if (mentions(arg, atom)) return true;
            }
        }
        return false;
    }

    // A variable that means nothing yet, here and around.
    int fresh(const std::string& name, const Items& here) {
        demand(name.starts_with("_"), "a new variable's name begins with _");
        int v = names_.declare(name, Names::Kind::Variable);
        demand(!mentions(here, v), "the new variable is in use");
        for (const Whole& p : base_) demand(!names_.occurs(v, p), "the new variable is in use");
        return v;
    }

    void change(const std::string& law, std::istringstream& in) {
        begun_ = true;
        const int n = id(in);
        Item& item = items_.at(n);
        if (law == "drop") {
            demand(item.scale.above == 0 || names_.impossible(known(item)), "its conditions can hold");
            items_.erase(n);
        } else if (law == "split") {
            Whole p = names_.parse(around(rest(in), "by ").second);
            Item yes = item, no = item;
            yes.where.push_back(p);
            no.where.push_back(plus(constant_whole(-1), p, -1));
            items_.erase(n);
            items_.emplace(++last_, std::move(yes));
            items_.emplace(++last_, std::move(no));
        } else if (law == "point") {
            std::string name;
            in >> name;
            int v = variable_of(item, name);
            Whole value = names_.parse(around(rest(in), "= ").second);
            demand(!names_.occurs(v, value), "the value depends on the variable");
            demand(names_.equal(known(item), one(v), value), "the variable may have other values");
            std::erase(item.variables, v);
            replace(item, {{v, value}});
        } else if (law == "count") {
            std::string name, from;
            in >> name >> from;
            int v = variable_of(item, name);
            auto [low_text, high_text] = around(rest(in), " to ");
            Whole low = names_.parse(low_text), high = names_.parse(high_text);
            demand(!names_.occurs(v, low) && !names_.occurs(v, high), "the range depends on the variable");
            Conjunction others;
            bool lower = false, upper = false;
            for (const Whole& p : item.where) {
                if (p == plus(one(v), low, -1))
                    lower = true;
                else if (p == plus(high, one(v), -1))
                    upper = true;
                else
                    others.push_back(p);
            }
            Whole size = plus(plus(high, low, -1), constant_whole(1));
            demand(lower && upper, "the range is not what its conditions say");
            demand(size.empty() || (size.size() == 1 && size.contains({}) && size.at({}) > 0),
                   "the range has no fixed size");
            item.where = std::move(others);
            std::erase(item.variables, v);
            demand(!mentions({item}, v), "the variable is used");
            item.scale = item.scale * Fraction{size.empty() ? 0 : size.at({}), 1};
        } else if (law == "quotient") {
            auto [terms, q_text] = around(rest(in), " = ");
            auto [a_text, b_text] = around(terms, " / ");
            Whole a = names_.parse(a_text), b = names_.parse(b_text), q = names_.parse(q_text);
            Conjunction facts = known(item);
            Whole left = plus(a, times(q, b), -1);
            demand(names_.follows(facts, plus(b, constant_whole(-1))), "the divisor may be 0");
            demand(names_.follows(facts, left), "the quotient is too large");
            demand(names_.follows(facts, plus(plus(b, left, -1), constant_whole(-1))), "the quotient is too small");
            Map by;
            for (auto [kind, value] : {std::pair(Names::Kind::Quotient, q), std::pair(Names::Kind::Remainder, left)}) {
                Whole atom = names_.atom(kind, {a, b});
                if (atom.size() == 1 && atom.begin()->first.size() == 1 &&
                    !names_.at(atom.begin()->first[0]).parts.empty())
                    by.emplace(atom.begin()->first[0], value);
            }
            replace(item, by);
        } else if (law == "choose") {
            auto [atom_text, value_text] = around(rest(in), " = ");
            Whole atom = names_.parse(atom_text), value = names_.parse(value_text);
            demand(atom.size() == 1 && atom.begin()->first.size() == 1 && atom.begin()->second == 1,
                   "no choice is named");
            const int a = atom.begin()->first[0];
            demand(chosen(known(item), names_.at(a), value), "the choice is not certain");
            replace(item, {{a, value}});
        } else if (law == "cut") {
            std::string name, by;
            in >> name >> by;
            int v = variable_of(item, name);
            auto [divisor_text, parts] = around(rest(in), " into ");
            Whole divisor = names_.parse(divisor_text);
            demand(!names_.occurs(v, divisor), "the divisor depends on the variable");
            demand(names_.follows(known(item), plus(divisor, constant_whole(-1))), "the divisor may be 0");
            auto [high, low] = halves(parts, {item});
            std::erase(item.variables, v);
            replace(item, {{v, plus(times(one(high), divisor), one(low))}});
            append(item.variables, {high, low});
            append(item.where, {one(low), plus(plus(divisor, constant_whole(-1)), one(low), -1)});
        } else if (law == "rename") {
            rename(item, rest(in));
        } else {
            throw Refused{"there is no such law"};
        }
    }

    std::pair<int, int> halves(const std::string& text, const Items& here) {
        std::istringstream in(text);
        std::string high, low;
        in >> high >> low;
        demand(high != low, "the two parts have one name");
        return {fresh(high, here), fresh(low, here)};
    }

    bool chosen(const Conjunction& facts, const Names::Entry entry, const Whole& value) {
        using Kind = Names::Kind;
        if (entry.kind == Kind::Least || entry.kind == Kind::Largest)
            for (size_t i : {0, 1}) {
                Whole more = plus(entry.parts[1 - i], entry.parts[i], -1);
                if (value == entry.parts[i] &&
                    names_.follows(facts, entry.kind == Kind::Least ? more : plus({}, more, -1)))
                    return true;
            }
        if (entry.kind != Kind::Choice) return false;
        bool all = true, none = false;
        for (size_t i = 2; i < entry.parts.size(); ++i) {
            all = all && names_.follows(facts, entry.parts[i]);
            none = none || names_.follows(facts, plus(constant_whole(-1), entry.parts[i], -1));
        }
        return (all && value == entry.parts[0]) || (none && value == entry.parts[1]);
    }

    // "_v1 = 2; _v2 = _v3 + 1", of an item's variables.
    Map values_of(const Item& item, const std::string& text) {
        Map by;
        std::istringstream values(text);
        for (std::string one_of; std::getline(values, one_of, ';');) {
            auto [name, value] = around(one_of, " = ");
            name.erase(0, name.find_first_not_of(' '));
            by.insert_or_assign(variable_of(item, name), names_.parse(value));
        }
        return by;
    }

    // Other variables, as many, by a change that is one to one on the integers.
    void rename(Item& item, const std::string& text) {
        auto [over, with] = around(text, " with ");
        std::istringstream names(over);
        std::string word;
        names >> word;
        std::vector<int> variables;
        while (names >> word) variables.push_back(names_.declare(word, Names::Kind::Variable));
        const size_t n = variables.size();
        demand(n == item.variables.size() && std::set<int>(variables.begin(), variables.end()).size() == n,
               "the numbers of variables differ");
        for (int v : variables) {
            demand(names_.at(v).kind == Names::Kind::Variable && names_.at(v).name.starts_with("_"),
                   "that is no variable");
            for (const Whole& p : base_) demand(!names_.occurs(v, p), "the variable means something else around here");
        }
        Map by = values_of(item, with);
        demand(by.size() == n, "not every variable has a value");
        // Nothing but what is renamed may mention the new names.
        std::vector<std::vector<int64_t>> m(n, std::vector<int64_t>(n));
        for (size_t i = 0; i < n; ++i) {
            Whole left = by.at(item.variables[i]);
            for (size_t j = 0; j < n; ++j)
                if (auto c = left.find({variables[j]}); c != left.end()) m[i][j] = c->second, left.erase(c);
            for (int v : variables) demand(!names_.occurs(v, left), "a value is not linear in the variables");
            for (int v : item.variables)
                demand(std::find(variables.begin(), variables.end(), v) != variables.end() || !names_.occurs(v, left),
                       "a value mentions an old variable");
        }
        for (int v : variables)
            if (std::find(item.variables.begin(), item.variables.end(), v) == item.variables.end())
                demand(!mentions({item}, v), "the variable is in use");
        demand(std::abs(determinant(std::move(m))) == 1, "the change is not one to one");
        item.variables.clear();
        replace(item, by);
        item.variables = std::move(variables);
    }

    static int64_t determinant(std::vector<std::vector<int64_t>> m) {
        const size_t n = m.size();
        if (n == 0) return 1;
        __int128 sum = 0;
        for (size_t c = 0; c < n; ++c) {
            if (m[0][c] == 0) continue;
            std::vector<std::vector<int64_t>> minor;
            for (size_t r = 1; r < n; ++r) {
                minor.push_back(m[r]);
                minor.back().erase(minor.back().begin() + static_cast<std::ptrdiff_t>(c));
            }
            sum += __int128{m[0][c]} * determinant(std::move(minor)) * (c % 2 ? -1 : 1);
        }
        demand(sum < INT64_MAX && sum > -INT64_MAX, "a number is too large");
        return static_cast<int64_t>(sum);
    }

    void merge(std::istringstream& in) {
        begun_ = true;
        const int n = id(in), m = id(in);
        demand(n != m, "a term is merged with itself");
        Item &a = items_.at(n), &b = items_.at(m);
        std::string word;
        in >> word;
        std::vector<size_t> order;
        for (size_t k; in >> k;) order.push_back(k);
        demand(std::set<int>(a.variables.begin(), a.variables.end()) ==
                   std::set<int>(b.variables.begin(), b.variables.end()),
               "they sum over different variables");
        for (const Whole& p : b.where) demand(names_.follows(known(a), p), "the second has a condition more");
        for (const Whole& p : a.where) demand(names_.follows(known(b), p), "the first has a condition more");
        Conjunction both = known(a);
        append(both, b.where);
        demand(order.size() == a.parts.size() && order.size() == b.parts.size(), "the numbers of factors differ");
        demand(std::set<size_t>(order.begin(), order.end()).size() == order.size(), "a factor is used twice");
        for (size_t k = 0; k < order.size(); ++k) {
            demand(order[k] < b.parts.size(), "there is no such factor");
            const Part &x = a.parts[k], &y = b.parts[order[k]];
            demand(x.what == y.what && x.at.size() == y.at.size() && x.of.size() == y.of.size(), "the factors differ");
            for (size_t d = 0; d < x.at.size(); ++d)
                demand(names_.equal(both, x.at[d], y.at[d]), "the factors are at different places");
            same_arguments(both, x, y);
        }
        a.scale = a.scale + b.scale;
        items_.erase(m);
        if (items_.at(n).scale.above == 0) items_.erase(n);
    }

    void same_arguments(const Conjunction& facts, const Part& x, const Part& y) {
        for (size_t d = 0; d < x.of.size(); ++d) {
            if (lines_.peek() == "[" && (x.what == "max" || x.what == "min")) {
                included(facts, x, y.of[d]);
                included(facts, y, x.of[d]);
                continue;
            }
            demand(lines_.next() == "{", "a proof of equal arguments is missing");
            Items difference = x.of[d];
            append(difference, Meaning::opposite(y.of[d]));
            Replay(names_, lines_, facts, difference).run();
            demand(lines_.next() == "}", "a proof of equal arguments does not end");
        }
    }

    void included(const Conjunction& facts, const Part& extreme, const Items& others) {
        demand(lines_.next() == "[", "a proof that points are among others is missing");
        Replay(names_, lines_, facts, extreme.of[0], &others, extreme.what == "max").run();
        demand(lines_.next() == "]", "a proof that points are among others does not end");
    }

    // A value that is a number where the facts hold: what they rule out is none of it.
    Fraction number(const Item& point, const Conjunction& facts) {
        demand(point.parts.size() == 1 && point.parts[0].of.size() == 1, "that is no number");
        Fraction total{0, 1};
        for (const Item& value : point.parts[0].of[0]) {
            bool gone = false, there = true;
            for (const Whole& p : value.where) {
                gone = gone || names_.follows(facts, plus(constant_whole(-1), p, -1));
                there = there && !gone && names_.follows(facts, p);
            }
            if (gone) continue;
            demand(there && value.variables.empty() && value.parts.empty(), "that is no number");
            total = total + value.scale;
        }
        return total;
    }

    // Each of these points is one of those, with these values of its variables; or a number that is not beyond that
    // one.
    void inside(std::istringstream& in, bool numbers) {
        const int n = id(in);
        size_t which = 0;
        in >> which;
        demand(!in.fail() && which < others_->size(), "there is no such point");
        const Item item = items_.at(n);
        Item other = (*others_)[which];
        Map by = values_of(other, around(rest(in), "with ").second);
        demand(by.size() == other.variables.size(), "not every variable has a value");
        other.variables.clear();
        replace(other, by);
        Conjunction facts = known(item);
        for (const Whole& p : other.where) demand(names_.follows(facts, p), "there is no such point");
        demand(item.parts.size() == 1 && other.parts.size() == 1, "that is no point");
        if (numbers) {
            Fraction mine = number(item, facts), more = number(other, facts) + Fraction{-mine.above, mine.below};
            demand(largest_ ? more.above >= 0 : more.above <= 0, "the number is beyond");
        } else {
            same_arguments(facts, item.parts[0], other.parts[0]);
        }
        items_.erase(n);
    }

    // The item with parts replaced by a product of sums, as new items.
    void put(Item item, std::vector<size_t> parts, const std::vector<Items>& sums) {
        std::sort(parts.rbegin(), parts.rend());
        for (size_t k : parts) item.parts.erase(item.parts.begin() + static_cast<std::ptrdiff_t>(k));
        Items made{std::move(item)};
        for (const Items& s : sums) {
            for (const Item& i : s)
                for (int v : i.variables) demand(!mentions(made, v), "a variable would be captured");
            made = Meaning::product(made, s);
        }
        for (Item& i : made) items_.emplace(++last_, std::move(i));
    }

    // r * r = r * p + r * q - p * q, where r is the larger or smaller of p and q.
    void square(std::istringstream& in) {
        begun_ = true;
        const int n = id(in);
        size_t k = 0, l = 0;
        in >> k >> l;
        const Item item = items_.at(n);
        demand(!in.fail() && k < l && l < item.parts.size(), "there are no such factors");
        const Part r = item.parts[k], other = item.parts[l];
        demand((r.what == "max" || r.what == "min") && r.what == other.what, "that is no maximum");
        Conjunction facts = known(item);
        std::vector<Items> live;
        for (const Item& point : other.of[0]) {
            bool gone = false, there = point.variables.empty();
            for (const Whole& p : point.where) {
                gone = gone || names_.follows(facts, plus(constant_whole(-1), p, -1));
                there = there && !gone && names_.follows(facts, p);
            }
            demand(gone || there, "it is not certain which points there are");
            if (!gone) live.push_back(point.parts.at(0).of.at(0));
        }
        demand(live.size() == 2, "there are not two points");
        same_arguments(facts, r, other);
        items_.erase(n);
        put(item, {l}, {live[0]});
        put(item, {l}, {live[1]});
        put(item, {k, l}, {live[0], Meaning::opposite(live[1])});
    }

    // All points of a maximum or minimum are that one, which there is.
    void collapse(std::istringstream& in) {
        begun_ = true;
        const int n = id(in);
        size_t k = 0, which = 0;
        in >> k >> which;
        Item item = items_.at(n);
        demand(!in.fail() && k < item.parts.size(), "there is no such factor");
        const Part part = item.parts[k];
        demand((part.what == "max" || part.what == "min") && which < part.of[0].size(), "that is no maximum");
        const Item point = part.of[0][which];
        Conjunction facts = known(item);
        demand(point.variables.empty(), "the point is not one");
        for (const Whole& p : point.where) demand(names_.follows(facts, p), "there may be no such point");
        included(facts, part, {point});
        items_.erase(n);
        put(item, {k}, {point.parts.at(0).of.at(0)});
    }

    // 1 / -a = -(1 / a).
    void negate(std::istringstream& in) {
        begun_ = true;
        const int n = id(in);
        size_t k = 0;
        in >> k;
        Item& item = items_.at(n);
        demand(!in.fail() && k < item.parts.size() && item.parts[k].what == "inverse", "that is no inverse");
        item.parts[k].of[0] = Meaning::opposite(item.parts[k].of[0]);
        item.scale.above = -item.scale.above;
    }

    // a * (1 / a) = 1: where both sides are numbers, a is not 0.
    void unit(std::istringstream& in) {
        begun_ = true;
        const int n = id(in);
        size_t k = 0, l = 0;
        in >> k >> l;
        Item& item = items_.at(n);
        demand(!in.fail() && k != l && k < item.parts.size() && l < item.parts.size(), "there are no such factors");
        const Part a = item.parts[k], below = item.parts[l];
        demand(below.what == "inverse" && below.of.size() == 1 && below.of[0].size() == 1, "that is no inverse");
        const Item& one_of = below.of[0][0];
        demand(one_of.variables.empty() && one_of.where.empty() && one_of.parts.size() == 1 &&
                   one_of.scale.above == 1 && one_of.scale.below == 1,
               "that is no inverse of one factor");
        const Part& b = one_of.parts[0];
        const Conjunction facts = known(item);
        demand(a.what == b.what && a.at.size() == b.at.size() && a.of.size() == b.of.size(), "the factors differ");
        for (size_t d = 0; d < a.at.size(); ++d)
            demand(names_.equal(facts, a.at[d], b.at[d]), "the factors are at different places");
        same_arguments(facts, a, b);
        Item& left = items_.at(n);
        left.parts.erase(left.parts.begin() + static_cast<std::ptrdiff_t>(std::max(k, l)));
        left.parts.erase(left.parts.begin() + static_cast<std::ptrdiff_t>(std::min(k, l)));
    }

    // max(a, b, ...) = a + max(0, b - a, ...), where there is a point a.
    void shift(std::istringstream& in) {
        begun_ = true;
        const int n = id(in);
        size_t k = 0, which = 0;
        in >> k >> which;
        Item item = items_.at(n);
        demand(!in.fail() && k < item.parts.size(), "there is no such factor");
        Part& part = item.parts[k];
        demand((part.what == "max" || part.what == "min") && which < part.of[0].size(), "that is no maximum");
        const Item point = part.of[0][which];
        demand(point.variables.empty(), "the point is not one");
        const Conjunction facts = known(item);
        for (const Whole& p : point.where) demand(names_.follows(facts, p), "there may be no such point");
        const Items by = point.parts.at(0).of.at(0);
        items_.erase(n);
        put(item, {k}, {by});
        for (size_t i = 0; i < part.of[0].size(); ++i) {
            Items& value = part.of[0][i].parts.at(0).of.at(0);
            if (i == which)
                value.clear();
            else
                append(value, Meaning::opposite(by));
        }
        items_.emplace(++last_, std::move(item));
    }

    // An index of the output as quotient and remainder, in all terms.
    void output(std::istringstream& in) {
        demand(!begun_, "outputs are cut before anything else");
        std::string name, by;
        in >> name >> by;
        int v = names_.find(name);
        demand(name.starts_with("_o") && v >= 0, "that is no index of the output");
        auto [divisor_text, parts] = around(rest(in), " into ");
        Whole divisor = names_.parse(divisor_text);
        demand(!names_.occurs(v, divisor), "the divisor depends on the index");
        demand(names_.follows(base_, plus(divisor, constant_whole(-1))), "the divisor may be 0");
        Items all;
        for (auto& [n, item] : items_) all.push_back(item);
        auto [high, low] = halves(parts, all);
        Map to{{v, plus(times(one(high), divisor), one(low))}};
        for (auto& [n, item] : items_) {
            Items single{item};
            replace(single, to, true);
            item = std::move(single[0]);
        }
        for (Whole& p : base_) p = names_.replace(p, to);
        append(base_, {one(low), plus(plus(divisor, constant_whole(-1)), one(low), -1)});
    }
};

void replay_root(const Statement& c, Lines& lines) {
    Names names;
    Conjunction base;
    for (int64_t d = 0; d < c.shape.rank(); ++d) {
        int o = names.declare("_o" + std::to_string(d), Names::Kind::Variable);
        base.push_back({{{o}, 1}});
        base.push_back(plus(plus(names.read(index_bound(c.shape[d])), constant_whole(-1)), {{{o}, 1}}, -1));
    }
    Meaning meaning(names);
    Items difference = meaning.of(c.left);
    append(difference, Meaning::opposite(meaning.of(c.right)));
    Replay(names, lines, base, difference).run();
}

}  // namespace
}  // namespace checker

Status check_certificate(const Claim& claim, const Certificate& certificate) {
    TRY(checker::check_types(claim.rule));
    const std::vector<checker::Statement> roots = TRY(checker::statements_of(claim));
    TRY(check_definedness(claim, roots));
    TRY(check_cancellation(claim, roots));
    checker::Lines lines(certificate.text);
    try {
        for (size_t i = 0; i < roots.size(); ++i) {
            if (lines.next() != "root " + std::to_string(i)) throw checker::Refused{"the proof of a result is missing"};
            checker::replay_root(roots[i], lines);
        }
        if (!lines.done()) throw checker::Refused{"there is more than the proof"};
    } catch (const checker::Refused& refused) {
        return Error(Code::E0305, "the certificate of {} does not hold: step {}, \"{}\": {}", claim.rule.name,
                     lines.number(), lines.last(), refused.why);
    }
    return {};
}

}  // namespace tessera
