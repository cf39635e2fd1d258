#include "shard/liveness.h"

#include <algorithm>

#include "shard/report.h"

namespace tessera::shard {
namespace {

struct Life {
    size_t from = 0, to = 0;  // steps
    bool used = false, weight = false;
};

class Lives {
  public:
    explicit Lives(const Plan& plan) : plan_(plan), lives_(plan.held.size()) {
        for (size_t i = 0; i < plan.held.size(); ++i)
            lives_[i].weight = plan.held[i].source && plan.held[i].value->is_constant();
        for (size_t s = 0; s < plan.steps.size(); ++s) {
            if (auto* c = std::get_if<ComputeStep>(&plan.steps[s])) {
                for (const auto& in : c->inputs)
                    if (in) use(*in, s);
                for (int id : c->results) make(id, s);
            } else if (auto* m = std::get_if<MoveStep>(&plan.steps[s])) {
                use(m->from, s);
                make(m->to, s);
                // A rank cuts its parts of weights when they are loaded.
                Life& made = lives_[size_t(m->to)];
                made.weight = lives_[size_t(m->from)].weight && is_local(plan, *m);
            } else {
                const auto& combine = std::get<CombineStep>(plan.steps[s]);
                use(combine.from, s);
                make(combine.to, s);
            }
        }
        for (int id : plan.outputs) use(id, plan.steps.size());
    }
    const Life& of(size_t held) const { return lives_[held]; }

  private:
    void use(int id, size_t step) {
        lives_[size_t(id)].used = true;
        lives_[size_t(id)].to = std::max(lives_[size_t(id)].to, step);
    }
    void make(int id, size_t step) {
        lives_[size_t(id)].from = step;
        lives_[size_t(id)].to = std::max(lives_[size_t(id)].to, step);
        lives_[size_t(id)].used = true;
    }

    const Plan& plan_;
    std::vector<Life> lives_;
};

int64_t part_bytes(const Held& held, size_t rank) {
    return held.sizes ? volume(held.boxes[rank]) * element_bytes(held.dtype) : 0;
}

}  // namespace

PeakMemory peak_memory(const Plan& plan) {
    const Lives lives(plan);
    PeakMemory most;
    for (int64_t rank = 0; rank < plan.mesh.ranks(); ++rank) {
        std::vector<int64_t> change(plan.steps.size() + 2, 0);
        for (size_t i = 0; i < plan.held.size(); ++i) {
            const Life& life = lives.of(i);
            if (!life.used || life.weight) continue;
            const int64_t bytes = part_bytes(plan.held[i], size_t(rank));
            change[life.from] += bytes;
            change[life.to + 1] -= bytes;
        }
        PeakMemory own{.rank = rank, .weights = weight_bytes(plan, rank)};
        int64_t now = 0;
        for (size_t s = 0; s + 1 < change.size(); ++s) {
            now += change[s];
            if (now > own.activations) {
                own.activations = now;
                own.step = s;
            }
        }
        if (own.bytes() > most.bytes()) most = own;
    }
    for (size_t i = 0; i < plan.held.size(); ++i) {
        const Life& life = lives.of(i);
        const Value* v = plan.held[i].value;
        if (life.used && !life.weight && life.from <= most.step && most.step <= life.to && v &&
            std::find(most.live.begin(), most.live.end(), v) == most.live.end())
            most.live.push_back(v);
    }
    return most;
}

}  // namespace tessera::shard
