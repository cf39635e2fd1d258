// Branch and bound over the members of each class that is needed: exact where it comes to an end in time.
#include <algorithm>
#include <limits>

#include "search/extract.h"

namespace tessera {

class BranchAndBound {
    static constexpr size_t kLooksBetween = 64;  // looks at the clock

  public:
    using Chosen = std::vector<int>;
    BranchAndBound(const Extractor& all, const ExtractOptions& options)
        : all_(all),
          looks_(options.exact_looks),
          until_(options.until),
          decided_(all.of_class_.size(), -1),
          least_(all.of_class_.size(), 0) {
        for (size_t c = 0; c < least_.size(); ++c) least_[c] = least(c);
        wanted_.assign(least_.size(), false);
        used_.assign(all.options_.size(), 0);
    }

    bool run(Chosen& chosen) {
        fallback_ = incumbent_ = chosen;
        best_ = all_.cost(chosen);
        for (ClassId c : all_.roots_) want(c);
        explore(0);
        chosen = incumbent_;
        return looks_ > 0;
    }

  private:
    const Extractor& all_;
    size_t looks_;
    Deadline until_;
    Chosen incumbent_, fallback_, decided_;
    double best_ = 0, open_least_ = 0;
    std::vector<double> least_;
    std::vector<bool> wanted_;
    std::vector<ClassId> open_;
    std::vector<int> used_;

    // What the class costs at least: a node with several outputs may serve as many classes.
    double least(size_t c) const {
        if (!all_.needed_[c]) return 0;
        double known = std::numeric_limits<double>::infinity();
        for (int m : all_.of_class_[c]) {
            const int option = all_.members_[size_t(m)].option;
            if (option < 0) return 0;
            const Extractor::Option& o = all_.options_[size_t(option)];
            known = std::min(known, o.cost / double(o.outputs));
        }
        return known;
    }

    bool want(ClassId c) {
        if (wanted_[size_t(c)]) return false;
        wanted_[size_t(c)] = true;
        open_.push_back(c);
        open_least_ += least_[size_t(c)];
        return true;
    }

    void explore(double spent) {
        if (looks_ == 0 || spent + open_least_ >= best_ * (1 - 1e-9)) return;
        if (--looks_ % kLooksBetween == 0 && until_.passed()) looks_ = 0;
        if (open_.empty()) {
            Chosen all = fallback_;
            for (size_t c = 0; c < all.size(); ++c)
                if (decided_[c] >= 0) all[c] = decided_[c];
            const double now = all_.cost(all);  // infinite where it goes in a circle
            if (now < best_) {
                best_ = now;
                incumbent_ = std::move(all);
            }
            return;
        }
        const ClassId c = open_.back();
        open_.pop_back();
        open_least_ -= least_[size_t(c)];
        std::vector<int> members = all_.of_class_[size_t(c)];
        std::stable_partition(members.begin(), members.end(), [&](int m) { return m == incumbent_[size_t(c)]; });
        for (int m : members) {
            decided_[size_t(c)] = m;
            const int option = all_.members_[size_t(m)].option;
            const double added = option >= 0 && used_[size_t(option)]++ == 0 ? all_.options_[size_t(option)].cost : 0;
            const size_t before = open_.size();
            const double least_before = open_least_;
            std::vector<ClassId> fresh;
            if (option >= 0)
                for (ClassId i : all_.options_[size_t(option)].inputs)
                    if (want(i)) fresh.push_back(i);
            const std::vector<ClassId> open = open_;
            explore(spent + added);
            open_ = open;
            open_.resize(before);
            open_least_ = least_before;
            for (ClassId f : fresh) wanted_[size_t(f)] = false;
            if (option >= 0) --used_[size_t(option)];
            if (looks_ == 0) break;
        }
        decided_[size_t(c)] = -1;
        open_.push_back(c);
        open_least_ += least_[size_t(c)];
    }
};

bool Extractor::improve_exactly(Chosen& chosen, const ExtractOptions& options) const {
    return BranchAndBound(*this, options).run(chosen);
}

}  // namespace tessera
