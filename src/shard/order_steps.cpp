#include "shard/order_steps.h"

#include <algorithm>

#include "shard/report.h"

namespace tessera::shard {
namespace {

std::vector<int> results_of(const PlanStep& step) {
    if (auto* c = std::get_if<ComputeStep>(&step)) return c->results;
    if (auto* m = std::get_if<MoveStep>(&step)) return {m->to};
    return {std::get<CombineStep>(step).to};
}

double operations_of(const PlanStep& step) {
    auto* c = std::get_if<ComputeStep>(&step);
    if (!c || c->ranges.empty()) return 0;
    double n = 1;
    for (const Interval& i : c->ranges[0]) n *= double(i.length());
    return n;
}

class Ordering {
  public:
    Ordering(Plan& plan, double operations)
        : plan_(plan), operations_(operations), made_by_(plan.held.size(), -1), round_(plan.steps.size()) {}

    void run() {
        assign_rounds();
        for (int r = 0; r <= last_; ++r) add_round(r);
        plan_.steps = std::move(out_);
        plan_.cuts = std::move(cuts_);
    }

  private:
    bool collective(size_t step) const { return is_collective(plan_, plan_.steps[step]); }
    // Of an input or a constant: it could start before everything else.
    bool of_source(size_t step) const {
        bool source = true;
        for_each_read(plan_.steps[step], [&](int id) { source &= plan_.held[size_t(id)].source; });
        return source;
    }

    // The round of a computation; of a collective, the one after which it starts. Those of sources start one round
    // before they are read.
    void assign_rounds() {
        for (size_t i = 0; i < plan_.steps.size(); ++i)
            for (int id : results_of(plan_.steps[i])) made_by_[size_t(id)] = int(i);
        std::vector<int> first_read(plan_.steps.size(), -1);
        for (size_t i = 0; i < plan_.steps.size(); ++i) {
            for_each_read(plan_.steps[i], [&](int id) {
                const int by = made_by_[size_t(id)];
                if (by < 0) return;
                const bool waits = collective(size_t(by)) && !of_source(size_t(by));
                round_[i] = std::max(round_[i], round_[size_t(by)] + (waits ? 1 : 0));
            });
            last_ = std::max(last_, round_[i]);
            for_each_read(plan_.steps[i], [&](int id) {
                const int by = made_by_[size_t(id)];
                if (by >= 0 && (first_read[size_t(by)] < 0 || round_[i] < first_read[size_t(by)]))
                    first_read[size_t(by)] = round_[i];
            });
        }
        for (size_t i = 0; i < plan_.steps.size(); ++i)
            if (collective(i) && of_source(i)) round_[i] = std::max(first_read[i] < 0 ? last_ : first_read[i], 0);
    }

    void add(size_t step) { out_.push_back(std::move(plan_.steps[step])); }
    void cut() {
        if (!out_.empty()) cuts_.push_back(out_.size());
    }

    void add_round(int r) {
        std::vector<size_t> sources, ahead, first, after, rest;
        std::vector<bool> needed(plan_.steps.size());
        for (size_t i = plan_.steps.size(); i-- > 0;) {
            const bool apart = collective(i);
            if (apart && of_source(i)) {
                if (round_[i] == r && r == 0) sources.push_back(i);
                if (round_[i] == r + 1) ahead.push_back(i);
                continue;
            }
            if (round_[i] != r) continue;
            if (!apart && !needed[i]) {
                rest.push_back(i);
                continue;
            }
            (apart ? after : first).push_back(i);
            for_each_read(plan_.steps[i], [&](int id) {
                if (made_by_[size_t(id)] >= 0) needed[size_t(made_by_[size_t(id)])] = true;
            });
        }
        for (auto* list : {&sources, &ahead, &first, &after, &rest}) std::reverse(list->begin(), list->end());
        double rest_operations = 0;
        for (size_t i : rest) rest_operations += operations_of(plan_.steps[i]);
        const bool beside = !after.empty() && !rest.empty() && rest_operations >= operations_;
        if (!beside) {
            first.insert(first.end(), rest.begin(), rest.end());
            std::sort(first.begin(), first.end());
            rest.clear();
        }
        for (size_t i : sources) add(i);
        for (size_t i : ahead) add(i);
        cut();
        add_with_collectives(first, after);
        if (!rest.empty()) cut();
        for (size_t i : rest) add(i);
    }

    // Computation, and the collectives of what it makes: where much of it follows them, as soon as their operands are
    // there.
    void add_with_collectives(const std::vector<size_t>& computed, const std::vector<size_t>& collectives) {
        double since = 0, left = 0;
        for (size_t i : computed) left += operations_of(plan_.steps[i]);
        std::vector<bool> started(collectives.size());
        std::vector<bool> there(plan_.steps.size(), true);
        for (size_t i : computed) there[i] = false;
        const auto ready = [&](size_t c) {
            bool all = !started[c];
            for_each_read(plan_.steps[collectives[c]], [&](int id) {
                const int by = made_by_[size_t(id)];
                all = all && (by < 0 || there[size_t(by)]);
            });
            return all;
        };
        const auto start = [&] {
            bool any = false;
            for (size_t c = 0; c < collectives.size(); ++c) {
                if (!ready(c)) continue;
                started[c] = any = true;
                add(collectives[c]);
            }
            return any;
        };
        for (size_t i : computed) {
            const double own = operations_of(plan_.steps[i]);
            since += own;
            left -= own;
            add(i);
            there[i] = true;
            if (since < operations_ || left < operations_ || !start()) continue;
            cut();
            since = 0;
        }
        start();
    }

    Plan& plan_;
    const double operations_;
    std::vector<int> made_by_;  // step by held tensor; -1: none
    std::vector<int> round_;    // by step
    int last_ = 0;
    std::vector<PlanStep> out_;
    std::vector<size_t> cuts_;
};

}  // namespace

void order_steps(Plan& plan, double operations) { Ordering(plan, operations).run(); }

}  // namespace tessera::shard
