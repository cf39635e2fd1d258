#include "discover/prove/root.h"

namespace tessera::prover {
namespace {

std::string printed(const Atoms& atoms, const Summand& t);

std::string printed(const Atoms& atoms, const Sum& s) {
    std::string out;
    for (const Summand& t : s) out += (out.empty() ? "" : " + ") + printed(atoms, t);
    return out.empty() ? "0" : out;
}

std::string printed(const Atoms& atoms, const Summand& t) {
    std::string out = std::to_string(t.coefficient.numerator);
    if (t.coefficient.denominator != 1) out += "/" + std::to_string(t.coefficient.denominator);
    for (int v : t.variables) out += " sum " + atoms[v].name;
    for (const Poly& g : t.guards) out += " [" + atoms.print(g) + " >= 0]";
    for (const Factor& f : t.factors) {
        out += " * ";
        out += f.kind == Factor::Kind::Load     ? "x" + std::to_string(f.slot)
               : f.kind == Factor::Kind::Number ? "number"
                                                : f.name;
        out += "(";
        for (size_t i = 0; i < f.index.size(); ++i) out += (i ? ", " : "") + atoms.print(f.index[i]);
        for (size_t i = 0; i < f.args.size(); ++i) out += (i ? "; " : "") + printed(atoms, f.args[i]);
        out += ")";
    }
    return out;
}

}  // namespace

RootProof::RootProof(const Comprehension& c, const ProveOptions& options)
    : search_{atoms_, {}}, base_(atoms_), write_out_(options.write_out) {
    atoms_.give_up = options.give_up;
    if (options.max_questions) atoms_.questions_left = options.max_questions;
    atoms_.until = options.until;
    atoms_.stop_when_late();
    for (int64_t d = 0; d < c.shape.rank(); ++d) {
        int id = atoms_.variable("_o" + std::to_string(d));
        search_.outputs.insert(id);
        Poly i = Poly::atom(id);
        base_.add(i);
        base_.add(atoms_.convert(index_bound(c.shape[d])) - Poly(1) - i);
    }
    Expansion expansion(atoms_, static_cast<size_t>(options.max_terms));
    difference_ = expansion.expand(c.left);
    Sum right = negated(expansion.expand(c.right));
    difference_.insert(difference_.end(), right.begin(), right.end());
}

Decision RootProof::run(std::vector<std::string>& steps) {
    std::vector<std::string> header;
    std::string remains;
    for (int round = 0; round < 7; ++round) {
        std::vector<std::string> body;
        search_.cut_outputs = round > 0;
        search_.steps_left = Search::kSteps;
        try {
            Cancel cancel(search_, base_, body, 0);
            if (cancel.run(difference_)) {
                steps.insert(steps.end(), header.begin(), header.end());
                steps.insert(steps.end(), body.begin(), body.end());
                left_.clear();
                return yes();
            }
            left_ = cancel.left();
            if (round == 0) remains = "what remains: " + printed(atoms_, left_);
            if (round > 0 || !search_.cut_wanted) {
                if (write_out_ && run_written_out(header, steps)) return yes();
                return no("{}", remains);
            }
        } catch (const CutOutput& where) {
            cut(where, header);
        }
    }
    return no("{}", remains);
}

// Once more, with sums written out; what was left before stays where that does not help.
bool RootProof::run_written_out(const std::vector<std::string>& header, std::vector<std::string>& steps) {
    std::vector<std::string> body;
    search_.cut_outputs = false;
    search_.write_out = true;
    search_.steps_left = Search::kSteps;
    bool zero = false;
    try {
        zero = Cancel(search_, base_, body, 0).run(difference_);
    } catch (const Unsupported&) {
    }
    search_.write_out = false;
    if (!zero) return false;
    steps.insert(steps.end(), header.begin(), header.end());
    steps.insert(steps.end(), body.begin(), body.end());
    left_.clear();
    return true;
}

// _o1 = high * divisor + low, in everything.
void RootProof::cut(const CutOutput& where, std::vector<std::string>& header) {
    const std::string name = atoms_[where.variable].name;
    const std::string high = name + "h", low = name + "l";
    header.push_back(fmt::format("output {} by {} into {} {}", name, atoms_.print(where.divisor), high, low));
    int h = atoms_.variable(high), l = atoms_.variable(low);
    Atoms::Map map{{where.variable, Poly::atom(h) * where.divisor + Poly::atom(l)}};
    Facts cut_base(atoms_);
    for (const Poly& p : base_.all()) cut_base.add(atoms_.substitute(p, map));
    cut_base.add(Poly::atom(l));
    cut_base.add(where.divisor - Poly(1) - Poly::atom(l));
    base_ = std::move(cut_base);
    search_.outputs.erase(where.variable);
    search_.outputs.insert(h);
    search_.outputs.insert(l);
    substitute_in(atoms_, difference_, map);
    cuts_.push_back({where.variable, where.divisor, h, l});
}

}  // namespace tessera::prover
