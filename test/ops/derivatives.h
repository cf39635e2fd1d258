// Checks derivatives: against differences of the evaluator's results in f64, in both orders, and by <Jv, u> = <v, J'u>.
#pragma once

#include "base/random.h"
#include "graph/builder.h"
#include "graph/gradient/gradient.h"
#include "graph/text/parse.h"
#include "ops/run_op.h"

namespace tessera::test {

// A graph in text form, whose f64 inputs are what it is differentiated by. The first letter of an input's name says
// where it is sampled: p positive, u inside (-0.9, 0.9), d a permutation of distinct numbers, o above 1, others (-2,
// 2).
class DerivativeCheck {
  public:
    explicit DerivativeCheck(const std::string& text, uint64_t seed = 1) : text_(text), random_(seed, text) {}

    void run(bool second_order = true) {
        auto parsed = parse(text_);
        ASSERT_TRUE(parsed.ok()) << parsed.error().to_string() << "\n" << text_;
        graph_ = std::move(*parsed);
        Builder b(*graph_);
        const std::vector<Value*> outputs = graph_->outputs();
        std::vector<Value*> wanted;
        for (const auto& in : graph_->inputs())
            if (in->type().tensor().dtype == DType::f64) wanted.push_back(in.get());
        std::vector<Seed> seeds = seeds_for(outputs, "seed");
        ASSERT_FALSE(seeds.empty()) << "no output is f64: " << text_;
        auto first = gradients(b, seeds, wanted);
        ASSERT_TRUE(first.ok()) << first.error().to_string() << "\n" << text_;
        std::vector<Seed> second_seeds;
        std::vector<Value*> second;
        if (second_order) {
            std::vector<Value*> flowing;
            for (Value* g : *first)
                if (g) flowing.push_back(g);
            second_seeds = seeds_for(flowing, "second");
            auto made = gradients(b, second_seeds, wanted);
            ASSERT_TRUE(made.ok()) << "second order: " << made.error().to_string() << "\n" << text_;
            second = *made;
        }
        place(seeds), place(second_seeds), place(*first), place(second);
        for (const auto& in : graph_->inputs()) sample(*in);
        auto base = results();
        ASSERT_TRUE(base.ok()) << base.error().to_string() << "\n" << text_;
        for (size_t i = 0; i < wanted.size(); ++i) {
            expect_slopes(*wanted[i], (*first)[i], seeds, *base, 2e-6);
            if (second_order) expect_slopes(*wanted[i], second[i], second_seeds, *base, 2e-5);
        }
    }

  private:
    std::vector<Seed> seeds_for(const std::vector<Value*>& values, const char* name) {
        std::vector<Seed> seeds;
        for (Value* v : values)
            if (v->type().is_tensor() && v->type().tensor().dtype == DType::f64)
                seeds.push_back({v, graph_->add_input(name, v->type())});
        return seeds;
    }

    void place(const std::vector<Seed>& seeds) {
        for (const Seed& s : seeds) graph_->add_output(s.of);
        for (const Seed& s : seeds) places_[s.of] = graph_->outputs().size() - seeds.size() + size_t(&s - seeds.data());
    }
    void place(const Gradients& values) {
        for (Value* v : values) {
            if (!v) continue;
            graph_->add_output(v);
            places_[v] = graph_->outputs().size() - 1;
        }
    }

    void sample(const Value& in) {
        auto sizes = in.type().tensor().shape.sizes();
        ASSERT_TRUE(sizes) << "sizes must be constant: " << text_;
        if (in.type().tensor().dtype != DType::f64) {
            if (in.tensor()) return;
            Tensor t = *Tensor::zeros(in.type().tensor().dtype, *sizes);
            for (int64_t i = 0; i < t.elements(); ++i) t.set_int(i, int64_t(random_.bits(next_++) % 2));
            inputs_[in.name()] = t;
            return;
        }
        std::vector<double> v(size_t(*element_count(*sizes)));
        const char kind = in.name()[0];
        for (size_t i = 0; i < v.size(); ++i) {
            const double r = random_.uniform(next_++);
            v[i] = kind == 'p' ? 0.3 + 1.7 * r : kind == 'o' ? 1.2 + r : kind == 'u' ? 1.8 * r - 0.9 : 4 * r - 2;
            if (kind != 'p' && kind != 'o' && std::fabs(v[i]) < 0.05) v[i] += 0.1;
        }
        if (kind == 'd') {
            std::vector<size_t> order(v.size());
            for (size_t i = 0; i < v.size(); ++i) order[i] = i;
            for (size_t i = v.size(); i > 1; --i) std::swap(order[i - 1], order[random_.bits(next_++) % i]);
            for (size_t i = 0; i < v.size(); ++i) v[i] = 0.3 * double(order[i]) - 0.14 * double(v.size()) + 0.01;
        }
        inputs_[in.name()] = typed(DType::f64, *sizes, v);
    }

    Result<std::vector<Datum>> results() { return evaluate(*graph_, inputs_); }

    // The seeds' weighted sum.
    double energy(const std::vector<Seed>& seeds, const std::vector<Datum>& out) {
        double sum = 0;
        for (const Seed& s : seeds) {
            const Tensor &y = out[places_[s.of]].tensor(), u = inputs_.at(s.gradient->name()).tensor();
            for (int64_t k = 0; k < y.elements(); ++k) sum += y.real_at(k) * u.real_at(k);
        }
        return sum;
    }

    void expect_slopes(const Value& x, const Value* gradient, const std::vector<Seed>& seeds,
                       const std::vector<Datum>& base, double tolerance) {
        const Tensor at = inputs_.at(x.name()).tensor();
        if (gradient) {
            ASSERT_EQ(base[places_[gradient]].tensor().sizes(), at.sizes()) << text_;
        }
        for (int64_t k = 0; k < at.elements(); ++k) {
            constexpr double kStep = 1e-5;
            double sides[2];
            for (int side : {0, 1}) {
                std::vector<double> v = reals(at);
                v[size_t(k)] += side ? kStep : -kStep;
                inputs_[x.name()] = typed(DType::f64, at.sizes(), v);
                auto out = results();
                ASSERT_TRUE(out.ok()) << out.error().to_string() << "\n" << text_;
                sides[side] = energy(seeds, *out);
            }
            const double slope = (sides[1] - sides[0]) / (2 * kStep);
            const double given = gradient ? base[places_[gradient]].tensor().real_at(k) : 0;
            EXPECT_NEAR(given, slope, tolerance * std::max(1.0, std::fabs(slope)))
                << "with respect to " << x.name() << ", element " << k << "\n"
                << text_;
        }
        inputs_[x.name()] = at;
    }

    std::string text_;
    RandomStream random_;
    uint64_t next_ = 0;
    std::unique_ptr<Graph> graph_;
    Inputs inputs_;
    std::map<const Value*, size_t> places_;
};

}  // namespace tessera::test
