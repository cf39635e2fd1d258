// Branch and bound over the members of each class that is needed: exact where it comes to an end in time.
#include <algorithm>
#include <chrono>
#include <limits>

#include "search/extract.h"

namespace tessera {
namespace {

class BranchAndBound {
  public:
    using Chosen = std::vector<Value*>;
    BranchAndBound(const EGraph& egraph, std::function<double(const Node&)> node_cost,
                   std::function<double(const Chosen&)> cost, double seconds)
        : egraph_(egraph), node_cost_(std::move(node_cost)), cost_(std::move(cost)), seconds_(seconds) {}

    bool run(Chosen& chosen) {
        incumbent_ = chosen;
        best_ = cost_(chosen);
        fallback_ = chosen;
        decided_.assign(chosen.size(), nullptr);
        least_.assign(chosen.size(), -1);
        wanted_.assign(chosen.size(), false);
        for (const Value* v : egraph_.graph().outputs()) want(egraph_.class_of(*v));
        explore(0);
        chosen = incumbent_;
        return !late_;
    }

  private:
    const EGraph& egraph_;
    std::function<double(const Node&)> node_cost_;
    std::function<double(const Chosen&)> cost_;
    double seconds_;
    std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
    Chosen incumbent_, fallback_, decided_;
    double best_ = 0, open_least_ = 0;
    std::vector<double> least_;
    std::vector<bool> wanted_;
    std::vector<ClassId> open_;
    std::unordered_map<const Node*, int> used_;
    size_t looked_ = 0;
    bool late_ = false;

    // What the class costs at least: a node with several outputs may serve as many classes.
    double least(ClassId c) {
        double& known = least_[size_t(c)];
        if (known >= 0) return known;
        known = std::numeric_limits<double>::infinity();
        for (const Value* v : egraph_.members(c))
            known = std::min(known, v->node() ? node_cost_(*v->node()) / double(v->node()->output_count()) : 0.0);
        return known;
    }

    bool want(ClassId c) {
        if (wanted_[size_t(c)] || egraph_.weight_only(c)) return false;
        wanted_[size_t(c)] = true;
        open_.push_back(c);
        open_least_ += least(c);
        return true;
    }

    bool late() {
        if (!late_ && ++looked_ % 256 == 0)
            late_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count() > seconds_;
        return late_;
    }

    void explore(double spent) {
        if (late() || spent + open_least_ >= best_ * (1 - 1e-9)) return;
        if (open_.empty()) {
            Chosen all = fallback_;
            for (size_t c = 0; c < all.size(); ++c)
                if (decided_[c]) all[c] = decided_[c];
            double now = cost_(all);  // infinite where it goes in a circle
            if (now < best_) {
                best_ = now;
                incumbent_ = std::move(all);
            }
            return;
        }
        const ClassId c = open_.back();
        open_.pop_back();
        open_least_ -= least(c);
        std::vector<Value*> members = egraph_.members(c);
        std::stable_partition(members.begin(), members.end(), [&](Value* v) { return v == incumbent_[size_t(c)]; });
        for (Value* v : members) {
            decided_[size_t(c)] = v;
            const Node* node = v->node();
            const double added = node && used_[node]++ == 0 ? node_cost_(*node) : 0;
            const size_t before = open_.size();
            const double least_before = open_least_;
            std::vector<ClassId> fresh;
            if (node)
                for (const Value* i : node->inputs())
                    if (i && want(egraph_.class_of(*i))) fresh.push_back(egraph_.class_of(*i));
            const std::vector<ClassId> open = open_;
            explore(spent + added);
            open_ = open;
            open_.resize(before);
            open_least_ = least_before;
            for (ClassId f : fresh) wanted_[size_t(f)] = false;
            if (node) --used_[node];
            if (late_) break;
        }
        decided_[size_t(c)] = nullptr;
        open_.push_back(c);
        open_least_ += least(c);
    }
};

}  // namespace

bool Extractor::improve_exactly(Chosen& chosen, double seconds) const {
    return BranchAndBound(
               egraph_, [this](const Node& n) { return node_cost(n); }, [this](const Chosen& c) { return cost(c); },
               seconds)
        .run(chosen);
}

}  // namespace tessera
