// Meshes and shardings drawn at random, and runs of partitioned graphs on threads that say what each rank exchanged.
#pragma once

#include <gtest/gtest.h>

#include "base/random.h"
#include "graph/evaluate/evaluate.h"
#include "runtime/collectives/run_threads.h"
#include "shard/prepare.h"

namespace tessera::test {

using namespace shard;

class Drawing {
  public:
    explicit Drawing(uint64_t seed) : random_(seed, "shardings") {}
    size_t below(size_t n) { return size_t(random_.bits(next_++) % n); }

    Mesh mesh() {
        static const char* const kMeshes[] = {"a=2",         "a=3",     "a=4",     "a=2,b=2", "a=2,b=2,c=2",
                                              "a=2,b=2,c=2", "a=2,b=3", "a=3,b=2", "a=1,b=2", "a=5"};
        return *Mesh::parse(kMeshes[below(std::size(kMeshes))]);
    }
    // Each axis divides some dimension or none.
    Sharding sharding(size_t rank, const Mesh& mesh) {
        Sharding s;
        s.dims.resize(rank);
        for (size_t a = 0; a < mesh.axes().size() && rank > 0; ++a)
            if (const size_t d = below(rank + 1); d < rank) s.dims[d].axes.push_back(a);
        return s;
    }
    // Of every value: nothing is left to propagation.
    Shardings shardings(const Graph& graph, const Mesh& mesh) {
        Shardings given;
        auto add = [&](const Value* v) {
            if (auto sizes = divisible_sizes(*v)) given[v] = sharding(sizes->size(), mesh);
        };
        for (const auto& v : graph.inputs()) add(v.get());
        for (const auto& v : graph.constants()) add(v.get());
        for (const auto& n : graph.nodes())
            for (size_t i = 0; i < n->output_count(); ++i) add(n->output(i));
        return given;
    }

  private:
    RandomStream random_;
    uint64_t next_ = 0;
};

// Passes exchanges on, and keeps their names.
class Recorded : public Transport {
  public:
    explicit Recorded(Transport& inner) : inner_(inner) {}
    int64_t rank() const override { return inner_.rank(); }
    int64_t ranks() const override { return inner_.ranks(); }
    Status start(Exchange& e) override {
        names.push_back(e.name);
        return inner_.start(e);
    }
    Status finish(Exchange& e) override { return inner_.finish(e); }
    void stop(const Error& error) override { inner_.stop(error); }
    std::vector<std::string> names;

  private:
    Transport& inner_;
};

inline std::string difference(size_t output, const Tensor& is, const Tensor& should) {
    if (is.sizes() != should.sizes())
        return fmt::format("output {} is {} and not {}", output, to_string(is.sizes()), to_string(should.sizes()));
    for (int64_t k = 0; k < is.elements() && !is_complex(is.dtype()) && is.dtype() != DType::string; ++k)
        if (is.real_at(k) != should.real_at(k))
            return fmt::format("output {}, element {} is {} and not {}", output, k, is.real_at(k), should.real_at(k));
    return fmt::format("output {} differs", output);
}

// Runs a plan on threads. Empty where every rank has these outputs, bit by bit, after the same exchanges; otherwise
// what is wrong.
inline std::string wrong_on_threads(const Plan& plan, const std::vector<Datum>& inputs, const std::vector<Datum>& want,
                                    const std::function<bool(const Tensor&, const Tensor&)>& equal) {
    const auto threads = thread_transports(plan.mesh.ranks());
    std::vector<Recorded> recorded;
    for (const auto& t : threads) recorded.emplace_back(*t);
    std::vector<ThreadRank> ranks(threads.size());
    for (size_t r = 0; r < ranks.size(); ++r) {
        auto program = local_program(plan, int64_t(r));
        if (!program.ok()) return program.error().to_string();
        ranks[r] = {&recorded[r], std::move(*program)};
        ranks[r].segments = by_evaluator(ranks[r].program);
    }
    auto got = run_on_threads(plan, inputs, ranks);
    if (!got.ok()) return got.error().to_string();
    for (size_t r = 0; r < recorded.size(); ++r) {
        if (recorded[r].names != recorded[0].names) return fmt::format("rank {} makes other exchanges", r);
        for (size_t i = 0; i < want.size(); ++i) {
            if (!want[i].is_tensor()) continue;
            const Tensor &is = (*got)[r][i].tensor(), &should = want[i].tensor();
            if (!is.same_bits(should) && !equal(is, should))
                return fmt::format("rank {}: {}", r, difference(i, is, should));
        }
    }
    return {};
}

inline bool never_equal(const Tensor&, const Tensor&) { return false; }

// The plan as text, for a failure.
inline std::string describe(const Plan& plan) {
    std::string text = "mesh " + to_string(plan.mesh) + "\n";
    for (const auto& [v, s] : plan.shardings)
        text += fmt::format("  {} {}: {}\n", v->name(), to_string(v->type()), to_string(s, plan.mesh));
    for (const PlanStep& s : plan.steps) {
        text += fmt::format("  {}", kind_of(plan, s));
        if (auto* c = std::get_if<ComputeStep>(&s)) {
            text += " " + c->unit->node->op().name;
            for (size_t i = 0; i < c->variables.size(); ++i)
                text += fmt::format(" {}{}={}..{}", to_string(c->variables[i].var), c->variables[i].reduced ? "+" : "",
                                    c->ranges.back()[i].low, c->ranges.back()[i].high);
        }
        text += "\n";
    }
    return text;
}

}  // namespace tessera::test
