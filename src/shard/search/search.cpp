#include "shard/search/search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "shard/search/colours.h"
#include "shard/divide.h"
#include "shard/search/few_annotations.h"
#include "shard/search/homes.h"

namespace tessera::shard {
namespace {

constexpr double kTie = 1e-7;       // of the plan's seconds: for all bytes, so that what is free is divided
constexpr double kWorthIt = 0.999;  // of the seconds before, which a refinement must stay below
constexpr double kAsGood = 1.0005;  // few annotations may cost this much more
constexpr double kDifferent = 0.2;  // of the arithmetic is divided otherwise by what counts as another plan
constexpr int kPrices = 16, kHalvings = 8;
constexpr size_t kAxesAtOnce = 2;

class Search {
  public:
    Search(const std::shared_ptr<const Graph>& graph, const Mesh& mesh, const Shardings& given,
           const SearchOptions& options)
        : graph_(graph),
          mesh_(mesh),
          given_(given),
          options_(options),
          rates_(options.plan.chosen_rates()),
          units_(units_of(*graph)),
          colours_(*graph) {
        for (size_t a = 0; a < mesh.axes().size(); ++a)
            if (mesh.size(a) > 1) axes_.push_back(a);
        auto add = [&](const Value* v) {
            if (divisible_sizes(*v)) values_.push_back(v);
        };
        for (const auto& v : graph->inputs()) add(v.get());
        for (const auto& v : graph->constants()) add(v.get());
        for (const auto& n : graph->nodes())
            for (size_t i = 0; i < n->output_count(); ++i) add(n->output(i));
    }

    Result<Found> run() {
        const Judged plain = TRY(judge(given_));
        tie_ = kTie * plain.cost.seconds();
        double all = 1;
        for (const Value* v : values_) all += double(bytes_of(*v));
        tie_ /= all;
        if (axes_.size() <= kAxesAtOnce) homes_.emplace(*graph_, units_, mesh_, given_, rates_, HomeOptions{axes_});
        Judged best = TRY(solve());
        best = TRY(refined(std::move(best)));
        Found found;
        if (options_.second) TRY(find_second(best, found));
        auto any = [](const Judged&) { return true; };
        auto other = [&](const Judged& j) { return different_part(*best.plan, *j.plan) >= kDifferent; };
        found.best = TRY(fewest(best, any));
        if (found.second) {
            found.second = TRY(fewest(*found.second, other));
            found.different = different_part(*found.best.plan, *found.second->plan);
        }
        found.plans = plans_;
        found.bound = bound_;
        found.exact = exact_;
        found.eliminated = eliminated_;
        found.computed = computed_;
        return found;
    }

  private:
    bool fits(const Judged& j) const { return !options_.memory || j.peak.bytes() <= *options_.memory; }
    // What fits before what does not; then the cheaper.
    bool better(const Judged& a, const Judged& b, double worth = 1) const {
        if (fits(a) != fits(b)) return fits(a);
        if (!fits(a)) return a.peak.bytes() < b.peak.bytes();
        return a.cost.seconds() < worth * b.cost.seconds();
    }
    void say(std::string_view step, size_t done, size_t total) {
        if (options_.progress) options_.progress(step, done, total);
    }

    Result<Judged> judge(const Shardings& given) {
        std::shared_ptr<const Plan> plan = TRY(make_plan(graph_, mesh_, given, options_.plan));
        ++plans_;
        return Judged{given, cost_of(*plan, rates_), peak_memory(*plan), plan};
    }

    // Seconds a byte: a little for all, much for what counts at the peak, and what stands in equal places.
    Homes::Prices prices(double price, const std::set<uint64_t>& live) const {
        return {tie_, price, [this, &live](const Value* v) { return live.contains(colours_.of(v)); }};
    }
    void add_live(const PeakMemory& peak, std::set<uint64_t>& live) const {
        for (const Value* v : peak.live) live.insert(colours_.of(v));
    }

    // The homes that cost least at these prices. More axes than can be chosen at once are chosen by turns.
    Homes::Chosen choose(const Homes::Prices& prices) {
        auto count = [&](const Homes::Chosen& c) {
            eliminated_ += c.eliminated;
            computed_ += c.computed;
            exact_ &= c.exact;
        };
        if (homes_) {
            Homes::Chosen chosen = homes_->choose(prices);
            count(chosen);
            return chosen;
        }
        exact_ = false;
        Homes::Chosen chosen;
        Shardings now = given_;
        for (size_t first = 0; first < axes_.size(); first += kAxesAtOnce) {
            const std::vector<size_t> some(axes_.begin() + int64_t(first),
                                           axes_.begin() + int64_t(std::min(first + kAxesAtOnce, axes_.size())));
            chosen = Homes(*graph_, units_, mesh_, now, rates_, HomeOptions{some}).choose(prices);
            count(chosen);
            now = chosen.homes;
            for (auto& [v, sharding] : now) {
                const auto own = given_.find(v);
                for (size_t d = 0; d < sharding.dims.size(); ++d)
                    sharding.dims[d].open = own == given_.end() || own->second.dims[d].open;
            }
        }
        return chosen;
    }

    Result<Judged> solve() {
        say("seconds", 0, 1);
        const Homes::Chosen free = choose(prices(0, {}));
        bound_ = free.priced * (1 - 1e-6);
        Judged best = TRY(judge(free.homes));
        if (fits(best)) return best;
        // A price of memory: the least at which the plan fits, found by doubling and halving.
        Judged last = best;
        const double unit = best.cost.seconds() / double(best.peak.bytes());
        double low = 0, high = 0;
        std::set<uint64_t> live;
        auto at = [&](double price) -> Status {
            add_live(last.peak, live);
            const Homes::Chosen chosen = choose(prices(price, live));
            last = TRY(judge(chosen.homes));
            if (better(last, best)) best = last;
            return {};
        };
        for (int i = 0; i < kPrices && high == 0; ++i) {
            const double price = unit * std::pow(4.0, i - 4);
            say("memory", size_t(i), kPrices + kHalvings);
            TRY(at(price));
            (fits(last) ? high : low) = price;
        }
        if (!fits(best))
            return Error(Code::E0408, "a rank needs {} bytes of memory, {} of them for weights, and {} were allowed",
                         best.peak.bytes(), best.peak.weights, *options_.memory)
                .hint("add ranks to an axis of the mesh, or allow more");
        for (int i = 0; i < kHalvings && high > 0 && high > 1.05 * low; ++i) {
            const double price = low == 0 ? high / 4 : std::sqrt(low * high);
            say("memory", size_t(kPrices + i), kPrices + kHalvings);
            TRY(at(price));
            (fits(last) ? high : low) = price;
        }
        return best;
    }

    // Other homes for values in equal places, one group after the other: copies that readers share, and memory that is
    // left, are not seen by the tables.
    Result<Judged> refined(Judged best) {
        std::map<uint64_t, std::vector<const Value*>> by_colour;
        std::vector<uint64_t> order;
        for (const Value* v : values_) {
            if (given_.contains(v) || v->uses().empty() || divisible_sizes(*v)->empty()) continue;
            auto& group = by_colour[colours_.of(v)];
            if (group.empty()) order.push_back(colours_.of(v));
            group.push_back(v);
        }
        auto size = [&](uint64_t colour) {
            double bytes = 0;
            for (const Value* v : by_colour[colour]) bytes += double(bytes_of(*v));
            return bytes;
        };
        std::stable_sort(order.begin(), order.end(), [&](uint64_t a, uint64_t b) { return size(a) > size(b); });
        const int most = plans_ + std::min<int>(options_.trials, int(6000 / (units_.size() + 1)));
        bool again = true;
        while (again && plans_ < most) {
            again = false;
            for (uint64_t colour : order)
                for (size_t axis : axes_)
                    for (size_t dim = 0; dim <= divisible_sizes(*by_colour[colour][0])->size(); ++dim) {
                        if (plans_ >= most) return best;
                        say("refinement", size_t(options_.trials - (most - plans_)), size_t(options_.trials));
                        Shardings other = best.given;
                        if (!divide(by_colour[colour], dim, axis, other)) continue;
                        Judged tried = TRY(judge(other));
                        if (!better(tried, best, kWorthIt)) continue;
                        best = std::move(tried);
                        again = true;
                    }
        }
        return best;
    }

    // The axis divides this dimension of the values, or none, and no other. False where it does already, or cannot.
    bool divide(const std::vector<const Value*>& group, size_t dim, size_t axis, Shardings& homes) const {
        bool changed = false;
        for (const Value* v : group) {
            Sharding s = homes.at(v);
            const Sizes sizes = *divisible_sizes(*v);
            for (DimSharding& d : s.dims) std::erase(d.axes, axis);
            if (dim < sizes.size()) {
                s.dims[dim].axes.push_back(axis);
                int64_t parts = 1;
                for (size_t a : s.dims[dim].axes) parts *= mesh_.size(a);
                if (parts > sizes[dim]) return false;
            }
            changed |= s.dims != homes.at(v).dims;
            homes[v] = std::move(s);
        }
        return changed;
    }

    Result<Judged> fewest(const Judged& j, const std::function<bool(const Judged&)>& accepted) {
        auto as_good = [&](const Judged& other) {
            return other.cost.seconds() <= kAsGood * j.cost.seconds() && (fits(other) || !fits(j)) && accepted(other);
        };
        say("annotations", 0, 1);
        auto few = TRY(few_annotations(
            *graph_, units_, mesh_, given_, j.given, [&](const Shardings& given) { return judge(given); }, as_good));
        return few ? std::move(*few) : j;
    }

    // Plans that divide the heavy units otherwise: each in turn, all of them, and each axis of the mesh.
    Status find_second(const Judged& best, Found& found) {
        if (!homes_) return {};
        std::map<size_t, double> operations;           // by kind
        std::map<size_t, std::set<size_t>> divisions;  // that it has now
        double all = 0;
        for (size_t u = 0; u < units_.size(); ++u) {
            const size_t kind = homes_->kind(u);
            if (kind == Homes::kNoKind) continue;
            operations[kind] += homes_->operations(kind);
            all += homes_->operations(kind);
            divisions[kind].insert(homes_->division(u, best.given));
        }
        std::vector<size_t> heavy;
        for (const auto& [kind, n] : operations)
            if (n > 0.02 * all) heavy.push_back(kind);
        std::vector<std::vector<std::pair<size_t, size_t>>> tries;
        auto& each = tries.emplace_back();
        for (size_t kind : heavy)
            for (size_t d : divisions[kind]) each.emplace_back(kind, d);
        for (size_t axis : axes_) {
            auto& otherwise = tries.emplace_back();
            for (size_t kind : heavy)
                for (size_t d : divisions[kind])
                    for (size_t n = 0; n < homes_->divisions(kind); ++n)
                        if (same_for(homes_->division(kind, d), homes_->division(kind, n), axis))
                            otherwise.emplace_back(kind, n);
        }
        for (size_t kind : heavy)
            if (operations[kind] > kDifferent * all)
                for (size_t d : divisions[kind]) tries.push_back({{kind, d}});
        for (size_t i = 0; i < tries.size(); ++i) {
            say("second best", i, tries.size());
            homes_->forbid(tries[i]);
            std::set<uint64_t> live;
            add_live(best.peak, live);
            for (int step = 0; step < 5; ++step) {
                const double price = options_.memory && step > 0
                                         ? best.cost.seconds() / double(best.peak.bytes()) * std::pow(8.0, step - 3)
                                         : 0;
                const Homes::Chosen chosen = homes_->choose(prices(price, live));
                if (!std::isfinite(chosen.priced)) break;
                Judged tried = TRY(judge(chosen.homes));
                add_live(tried.peak, live);
                const double different = different_part(*best.plan, *tried.plan);
                if (fits(tried) && different >= kDifferent && (!found.second || better(tried, *found.second))) {
                    found.second = std::move(tried);
                    found.different = different;
                }
                if (!options_.memory || (found.second && fits(*found.second) && price > 0)) break;
            }
        }
        homes_->forbid({});
        return {};
    }

    static bool same_for(const Division& a, const Division& b, size_t axis) {
        for (size_t v = 0; v < a.size(); ++v) {
            const bool in_a = std::find(a[v].begin(), a[v].end(), axis) != a[v].end();
            const bool in_b = std::find(b[v].begin(), b[v].end(), axis) != b[v].end();
            if (in_a != in_b) return false;
        }
        return true;
    }

    const std::shared_ptr<const Graph>& graph_;
    const Mesh& mesh_;
    const Shardings& given_;
    const SearchOptions& options_;
    const Rates rates_;
    const std::vector<Unit> units_;
    const Colours colours_;
    std::vector<const Value*> values_;
    std::vector<size_t> axes_;
    std::optional<Homes> homes_;
    double tie_ = 0, bound_ = 0;
    bool exact_ = true;
    int plans_ = 0;
    size_t eliminated_ = 0, computed_ = 0;
};

}  // namespace

double different_part(const Plan& a, const Plan& b) {
    std::map<std::pair<std::string, size_t>, const ComputeStep*> of;
    for (const PlanStep& s : a.steps)
        if (auto* c = std::get_if<ComputeStep>(&s); c && c->body)
            of.try_emplace({c->unit->value()->name(), c->variables.size()}, c);
    double all = 0, differ = 0;
    for (const PlanStep& s : b.steps) {
        auto* c = std::get_if<ComputeStep>(&s);
        if (!c || !c->body) continue;
        Ranges whole;
        for (const Variable& v : c->variables) whole.push_back({0, v.extent});
        const double operations = operations_in(work_of(*c->body, c->variables), whole);
        all += operations;
        const auto own = of.find({c->unit->value()->name(), c->variables.size()});
        if (own == of.end() || own->second->ranges != c->ranges) differ += operations;
    }
    return all > 0 ? differ / all : 0;
}

Result<Found> search_shardings(const std::shared_ptr<const Graph>& graph, const Mesh& mesh, const Shardings& given,
                               const SearchOptions& options) {
    return Search(graph, mesh, given, options).run();
}

}  // namespace tessera::shard
