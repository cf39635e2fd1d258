#include "discover/correct/mutants.h"

#include <algorithm>
#include <map>
#include <set>

#include "discover/correct/moves.h"
#include "discover/enumerate/classes.h"
#include "discover/prove/comprehension.h"
#include "graph/op_def.h"
#include "graph/ops/conv_window.h"

namespace tessera {
namespace {

constexpr int64_t kMostElements = 16384;  // of a term at one assignment of sizes

// The factors that sizes of the original are written with.
std::set<int64_t> factors_of(const Claim& original, const Node& root) {
    std::set<int64_t> factors{2};
    for (int64_t f : window_factors(root)) factors.insert(f);
    std::set<int64_t> used;
    for (int64_t f : factors)
        for (const auto& [name, shape] : original.shapes)
            for (const Dim& d : shape)
                if (!d.as_int() && mod(d, f).is_int(0)) used.insert(f);
    return used;
}

// Two assignments of sizes that leave an inside within the borders of a window; a smaller one where it has more than
// two axes.
std::vector<SymbolValues> small_sizes(const Claim& original, const Node& root) {
    std::map<std::string, int64_t> least;
    std::vector<int64_t> reach(static_cast<size_t>(root.input(0)->type().tensor().shape.rank()), 1);
    int64_t inside = 3;
    if (root.inputs().size() > 1 && root.op().attr("dilations"))
        if (Result<ConvWindow> window = weight_window(root.view(), 0, 1); window.ok()) {
            for (size_t i = 0; i < window->axes.size(); ++i)
                reach[i + 2] = window->axes[i].extent().as_int().value_or(1);
            if (window->axes.size() > 2)
                inside = 1;
            else
                reach.assign(reach.size(), *std::max_element(reach.begin(), reach.end()));
        }
    for (const auto& [name, shape] : original.shapes)
        for (int64_t d = 0; d < shape.rank(); ++d)
            for (const std::string& s : free_symbols(shape[d])) {
                const SymbolValues one{{s, 1}};
                const int64_t step = std::max<int64_t>(1, evaluate_int(shape[d], one).value_or(1));
                const int64_t window = static_cast<size_t>(d) < reach.size() ? reach[static_cast<size_t>(d)] : 1;
                least[s] = std::max(least[s], d >= 2   ? (window + inside + step - 1) / step
                                              : d == 0 ? inside
                                                       : int64_t{1});
            }
    std::vector<SymbolValues> all(2);
    for (size_t i = 0; i < all.size(); ++i) {
        int64_t number = static_cast<int64_t>(i);
        for (const auto& [name, size] : least) all[i][name] = size + number++ % 2;
    }
    return all;
}

// Worlds of the original's operands, with sizes that are numbers, and all templates: variants of the op first, the
// original before the others, then what moves or slices one tensor (`x`), beside the operand that gives sizes (`z`).
struct Templates {
    OpSet set;
    std::vector<std::string> variants;  // as terms, with the operands that are carried along
};

Result<Templates> templates_of(const Claim& original, const Node& root, const std::vector<std::string>& operands,
                               const std::vector<std::string>& carried) {
    std::string text;
    for (const SymbolValues& sizes : small_sizes(original, root)) {
        text += fmt::format("world mutants{}\nsizes unused=1\n", text.size());
        for (const std::string& name : operands) {
            Shape shape;
            for (const Dim& d : original.shapes.at(name)) shape.push_back(evaluate_int(d, sizes).value_or(1));
            text += fmt::format("var {}: {}\n", name, shape);
        }
    }
    std::vector<std::string> all = operands, variants;
    all.insert(all.end(), carried.begin(), carried.end());
    for (const std::string& attrs : attribute_variants(root)) {
        text += fmt::format("op {0}: {1}({0}{2})\n", fmt::join(operands, ", "), root.op().name, attrs);
        variants.push_back(fmt::format("{}({}{})", root.op().name, fmt::join(all, ", "), attrs));
    }
    for (auto* other : {unfolded_texts, padded_texts}) {
        for (const std::string& term : other(root, operands))
            text += fmt::format("op {}: {}\n", fmt::join(operands, ", "), term);
        for (std::string& term : other(root, all)) variants.push_back(std::move(term));
    }
    const int64_t rank = original.shapes.at(operands[0]).rank();
    std::vector<Move> moves;
    auto add = [&](std::vector<Move> more) { moves.insert(moves.end(), more.begin(), more.end()); };
    for (int64_t f : factors_of(original, root)) add(all_moves(rank, Move::Kind::Factor, f));
    if (!root.op().has(Trait::Window)) {  // windows meet their neighbours, whose number is better a number
        add(all_moves(rank, Move::Kind::Whole));
        add(all_moves(rank, Move::Kind::WholeBack));
    }
    for (const Move& m : moves) text += fmt::format("op x, z: {}\n", move_text(m, rank));
    for (int64_t factor : window_factors(root))
        for (int64_t axis = 2; axis < rank; ++axis)
            text += fmt::format("op x, z: slice(x, [0], [dim(x, {0})], [{0}], [{1}]) if rank(x) == {2}\n", axis, factor,
                                rank);
    return Templates{TRY(read_op_set("mutants", text)), std::move(variants)};
}

// A term with other names for its variables.
std::string with_names(const std::string& text, const std::map<std::string, std::string>& names) {
    std::string out;
    for (size_t at = 0; at < text.size();) {  // whole words
        size_t end = at;
        while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) ++end;
        if (end == at) {
            out += text[at++];
            continue;
        }
        const std::string word = text.substr(at, end - at);
        auto found = names.find(word);
        out += found == names.end() ? word : found->second;
        at = end;
    }
    return out;
}

struct Chain {
    int before, variant, after;  // templates; -1 for none
};

struct Made {
    uint16_t shape;
    std::vector<uint64_t> values;
};

// The templates at one assignment of sizes.
class Stage {
  public:
    Stage(const Templates& templates, const World& world)
        : templates_(templates), evaluator_(templates.set, world, 0, kMostElements) {}

    bool begin() {
        const auto& variables = evaluator_.world().variables;
        for (size_t i = 0; i < variables.size(); ++i) {
            auto shape = evaluator_.shape_id(variables[i].shape);
            if (!shape) return false;
            leaves_.push_back({*shape, evaluator_.fresh(*shape, 1 + i)});
        }
        std::optional<Made> own = variant(0, leaves_[0]);
        if (own) original_ = std::move(*own);
        return own.has_value();
    }

    const Made& operand() const { return leaves_[0]; }
    uint16_t shape() const { return original_.shape; }
    std::optional<Made> variant(size_t op, const Made& operand) { return applied(op, operand, leaves_[1]); }
    std::optional<Made> moved(size_t op, const Made& of) { return applied(op, of, leaves_[0]); }
    Fingerprint fingerprint(const Made& m) const {
        return WorldEvaluator::fingerprint(evaluator_.shape(m.shape), m.values.data());
    }
    int64_t terms() const { return terms_; }

    // The share of elements that are the original's.
    double agreement(const Made& m) const {
        if (m.shape != original_.shape) return 0;
        int64_t equal = 0;
        for (size_t i = 0; i < m.values.size(); ++i) equal += m.values[i] == original_.values[i];
        return double(equal) / double(m.values.size());
    }
    double agreement(const Chain& chain) {
        std::optional<Made> made = operand();
        if (chain.before >= 0) made = moved(static_cast<size_t>(chain.before), *made);
        if (made) made = variant(static_cast<size_t>(chain.variant), *made);
        if (made && chain.after >= 0) made = moved(static_cast<size_t>(chain.after), *made);
        return made ? agreement(*made) : 0;
    }

  private:
    const Templates& templates_;
    WorldEvaluator evaluator_;
    std::vector<Made> leaves_;
    Made original_{};
    std::vector<uint64_t> scratch_;
    int64_t terms_ = 0;

    std::optional<Made> applied(size_t op, const Made& a, const Made& b) {
        const uint16_t shapes[3] = {a.shape, b.shape, 0};
        const Applied* how = evaluator_.apply(static_cast<uint16_t>(op), shapes);
        if (!how) return {};
        Made made{how->shape->id, std::vector<uint64_t>(static_cast<size_t>(how->shape->elements))};
        const uint64_t* inputs[3] = {a.values.data(), b.values.data(), nullptr};
        ++terms_;
        if (!evaluator_.run(*how, inputs, made.values.data(), scratch_)) return {};
        return made;
    }
};

class MutantSearch {
  public:
    MutantSearch(const Claim& original, const Templates& templates, std::string operand, const MutantOptions& options)
        : original_(original),
          templates_(templates),
          operand_(std::move(operand)),
          options_(options),
          first_(templates, templates.set.worlds[0]),
          second_(templates, templates.set.worlds[1]) {}

    Result<MutantClaims> run() {
        if (!first_.begin() || !second_.begin())
            return Error(Code::E0303, "{}: it cannot be evaluated in the field at small sizes", original_.rule.name);
        from(first_.operand(), -1);
        for (size_t move = moves(); move < templates_.set.templates.size() && complete_; ++move) {
            if (options_.cancel && *options_.cancel) return Error(Code::E0410, "interrupted");
            if (std::optional<Made> moved = first_.moved(move, first_.operand())) from(*moved, static_cast<int>(move));
        }
        return collected();
    }

  private:
    const Claim& original_;
    const Templates& templates_;
    std::string operand_;
    const MutantOptions& options_;
    Stage first_, second_;
    std::set<Fingerprint> results_, seen_;
    std::set<int> equal_;
    std::vector<std::pair<double, Chain>> alike_;
    bool complete_ = true;

    size_t moves() const { return templates_.variants.size(); }  // the templates from here on

    // Every variant of the op on this operand, and what becomes of its result.
    void from(const Made& operand, int before) {
        for (size_t variant = 0; variant < templates_.variants.size(); ++variant) {
            complete_ = complete_ && !options_.until.passed();
            if (!complete_) return;
            std::optional<Made> result = first_.variant(variant, operand);
            if (!result) continue;
            const bool fresh = results_.insert(first_.fingerprint(*result)).second;
            // Of the operand as it is, a variant may be the original in another form.
            if (fresh || before < 0) offer({before, static_cast<int>(variant), -1}, *result);
            if (!fresh) continue;
            for (size_t move = moves(); move < templates_.set.templates.size(); ++move)
                if (std::optional<Made> back = first_.moved(move, *result))
                    offer({before, static_cast<int>(variant), static_cast<int>(move)}, *back);
        }
    }

    void offer(const Chain& chain, const Made& made) {
        if (made.shape != first_.shape() || (chain.before < 0 && chain.after < 0 && chain.variant == 0)) return;
        double share = first_.agreement(made);
        // One of each kind; of those that are equal everywhere, one for each variant of the op.
        if (share < options_.least_agreement) return;
        if (share < 1 ? !seen_.insert(first_.fingerprint(made)).second : !equal_.insert(chain.variant).second) return;
        share = std::min(share, second_.agreement(chain));
        if (share >= options_.least_agreement) alike_.emplace_back(share, chain);
    }

    std::string text(const Chain& chain) const {
        std::vector<std::string> lets;
        auto name = [&](std::string value) {
            lets.push_back(fmt::format("moved{} = {}", lets.size(), value));
            return fmt::format("moved{}", lets.size() - 1);
        };
        auto moved = [&](int move, const std::string& of) {
            const std::string& whole = templates_.set.templates[static_cast<size_t>(move)].text;
            return with_names(whole.substr(0, whole.find(" if ")), {{"x", of}, {"z", operand_}});
        };
        const std::string operand = chain.before >= 0 ? name(moved(chain.before, operand_)) : operand_;
        std::string result = with_names(templates_.variants[static_cast<size_t>(chain.variant)], {{operand_, operand}});
        if (chain.after >= 0) result = moved(chain.after, name(result));
        return lets.empty() ? result : fmt::format("let {} in {}", fmt::join(lets, ", "), result);
    }

    MutantClaims collected() {
        // Of those that agree alike, first the forms that move nothing around the op.
        std::stable_sort(alike_.begin(), alike_.end(), [](const auto& a, const auto& b) {
            auto moves = [](const Chain& c) { return c.before >= 0 || c.after >= 0; };
            return a.first != b.first ? a.first > b.first : moves(a.second) < moves(b.second);
        });
        MutantClaims found;
        found.terms = first_.terms() + second_.terms();
        found.complete = complete_;
        const std::string left = to_string(original_.rule.pattern[0], original_.rule);
        for (const auto& [share, chain] : alike_) {
            if (found.list.size() == options_.most) break;
            Result<Rules> read = read_rules(
                fmt::format("{} [reassociates, grows]: {} => {}", original_.rule.name, left, text(chain)), "mutant");
            if (!read.ok()) continue;
            found.list.push_back({{std::move((*read)[0]), original_.shapes, original_.values}, share});
        }
        return found;
    }
};

}  // namespace

Result<MutantClaims> find_mutants(const Claim& original, const MutantOptions& options) {
    const Sides sides = TRY(build_sides(original));
    const Node* root = sides.left[0]->node();
    if (!root || root->inputs().size() < 2)
        return Error(Code::E0303, "{}: it is not a product of its operands", original.rule.name);
    std::vector<std::string> operands, carried;
    for (size_t i = 0; i < root->inputs().size(); ++i) {
        const Value* in = root->inputs()[i];
        if (!in || in->kind() != Value::Kind::Input)
            return Error(Code::E0303, "{}: its operands are not variables", original.rule.name);
        (i < 2 ? operands : carried).push_back(in->name());
    }
    const Templates templates = TRY(templates_of(original, *root, operands, carried));
    return MutantSearch(original, templates, operands[0], options).run();
}

}  // namespace tessera
