#include "graph/ops/einsum.h"

#include <algorithm>
#include <map>

namespace tessera {
namespace {

// A dimension's label: a letter, or kEllipsis + its distance from the ellipsis' end.
using Label = int;
constexpr Label kEllipsis = 256;

struct Equation {
    std::vector<std::vector<Label>> operands;  // one label a dimension
    std::vector<Label> output;
    std::map<Label, Dim> sizes;
};

// One term's labels; an ellipsis stands for `dots` dimensions.
Result<std::vector<Label>> parse_term(const OpView& op, const std::string& term, int64_t dots) {
    std::vector<Label> labels;
    bool seen = false;
    for (size_t i = 0; i < term.size(); ++i) {
        char c = term[i];
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
            labels.push_back(c);
        } else if (term.compare(i, 3, "...") == 0 && !seen) {
            for (int64_t d = dots; d-- > 0;) labels.push_back(kEllipsis + Label(d));
            seen = true;
            i += 2;
        } else {
            return op.error(Code::E0212, "equation \"{}\" has the term \"{}\"", op.string("equation"), term);
        }
    }
    return labels;
}

Result<Equation> parse_equation(const OpView& op) {
    std::string text = op.string("equation");
    std::erase(text, ' ');
    size_t arrow = text.find("->");
    std::vector<std::string> terms(1);
    for (char c : text.substr(0, arrow))
        if (c == ',')
            terms.emplace_back();
        else
            terms.back() += c;
    if (terms.size() != op.input_count())
        return op.error(Code::E0212, "equation \"{}\" has {} terms for {} inputs", op.string("equation"), terms.size(),
                        op.input_count());
    Equation e;
    int64_t most_dots = 0;
    for (size_t i = 0; i < terms.size(); ++i) {
        bool dotted = terms[i].find("...") != std::string::npos;
        int64_t letters = int64_t(terms[i].size()) - (dotted ? 3 : 0), dots = op.rank(i) - letters;
        if (dotted ? dots < 0 : dots != 0)
            return op.shape_error("the term \"{}\" does not match the shape {} of input {}", terms[i], op.shape(i), i);
        most_dots = std::max(most_dots, dots);
        e.operands.push_back(TRY(parse_term(op, terms[i], dots)));
        for (size_t d = 0; d < e.operands[i].size(); ++d) {
            const Dim& size = op.shape(i)[int64_t(d)];
            auto [it, fresh] = e.sizes.emplace(e.operands[i][d], size);
            if (fresh) continue;
            auto have = it->second.as_int(), found = size.as_int();
            if (have && found && *have != *found && *have != 1 && *found != 1)
                return op.shape_error("equation \"{}\": a dimension has both {} and {} elements", op.string("equation"),
                                      *have, *found);
            it->second = broadcast_dim(it->second, size);
        }
    }
    if (arrow != std::string::npos) {
        e.output = TRY(parse_term(op, text.substr(arrow + 2), most_dots));
    } else {  // the ellipsis, then every letter that occurs once, in order
        for (int64_t d = most_dots; d-- > 0;) e.output.push_back(kEllipsis + Label(d));
        std::map<Label, int> count;
        for (const auto& labels : e.operands)
            for (Label l : labels) ++count[l];
        for (auto [label, times] : count)
            if (label < kEllipsis && times == 1) e.output.push_back(label);
    }
    for (size_t i = 0; i < e.output.size(); ++i) {
        if (!e.sizes.contains(e.output[i]))
            return op.error(Code::E0212, "equation \"{}\": the output has a label that no input has",
                            op.string("equation"));
        if (std::count(e.output.begin(), e.output.end(), e.output[i]) > 1)
            return op.error(Code::E0212, "equation \"{}\": the output has a label twice", op.string("equation"));
    }
    return e;
}

}  // namespace

OpDef einsum_op() {
    return {
        .name = "einsum",
        .inputs = {"inputs...: T"},
        .outputs = {"y: T"},
        .attrs = {string_attr("equation").required()},
        .types = {{"T", kNumbers}},
        .onnx = "Einsum",
        .infer = [](const OpView& op) -> Result<Types> {
            if (op.input_count() == 0) return op.error(Code::E0207, "has no inputs");
            Equation e = TRY(parse_equation(op));
            Shape y;
            for (Label l : e.output) y.push_back(e.sizes.at(l));
            return op.like(0, y);
        },
        .body =
            [](const OpView& op, const Indices& o) {
                Equation e = *parse_equation(op);
                std::map<Label, Expr> at;
                for (size_t i = 0; i < e.output.size(); ++i) at.emplace(e.output[i], o[int64_t(i)]);
                std::vector<ReduceAxis> summed;
                for (const auto& [label, size] : e.sizes) {
                    if (at.contains(label)) continue;
                    summed.push_back(op.reduce(size));
                    at.emplace(label, summed.back().var);
                }
                std::optional<Expr> product;
                for (size_t i = 0; i < e.operands.size(); ++i) {
                    auto x = op.in(i);
                    std::vector<Expr> indices;
                    for (size_t d = 0; d < e.operands[i].size(); ++d) {
                        Label l = e.operands[i][d];
                        const Dim& size = x.dim(int64_t(d));
                        indices.push_back(size == e.sizes.at(l) ? at.at(l) : select(eq(size, 1), 0, at.at(l)));
                    }
                    Expr factor = x.at(indices);
                    product = product ? *product * factor : factor;
                }
                return summed.empty() ? *product : sum(summed, *product);
            },
    };
}

}  // namespace tessera
