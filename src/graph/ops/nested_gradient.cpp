#include "graph/ops/nested_gradient.h"

#include "graph/copy_nodes.h"

namespace tessera {
namespace {

bool is_float_type(const Type& t) { return t.is_tensor() && is_float(t.tensor().dtype); }

Value* zeros_like(Builder& b, Value* v) { return b.op("expand", {b.scalar_like(0, v), b.op("shape", {v})}); }

// A nested graph that is being written, with its first error.
struct NestedGraph {
    GraphPtr graph;
    Builder build;
    NestedGraph(Graph& around, const char* name) : graph(around.nested(name)), build(*graph) {}

    std::vector<Value*> copy(const Graph& from, const std::vector<Value*>& inputs) {
        auto made = copy_nodes(from, *graph, inputs);
        if (made.ok()) return *made;
        build.fail(std::move(made).error());
        return std::vector<Value*>(from.outputs().size(), nullptr);
    }
    Gradients differentiate(const std::vector<Seed>& seeds, const std::vector<Value*>& wanted) {
        if (build.failed()) return Gradients(wanted.size(), nullptr);
        auto made = gradients(build, seeds, wanted);
        if (made.ok()) return *made;
        build.fail(std::move(made).error());
        return Gradients(wanted.size(), nullptr);
    }
    void give(Value* v, Value* like) {
        Value* given = v ? v : zeros_like(build, like);
        if (!build.failed()) graph->add_output(given);
    }
    bool passes_on_error(Builder& b) const {
        if (auto status = build.status(); !status.ok()) b.fail(status.error());
        return b.failed();
    }
};

class ScanGradient {
  public:
    ScanGradient(const Backward& r, const OpView& op, const ControlForm& form)
        : r_(r), b_(r.b), op_(op), form_(form), body_(op.graph("body")), states_(form.states) {}

    Gradients run() {
        if (!save_states()) return {};
        for (size_t i = 0; i < states_; ++i)
            if (is_float_type(body_.inputs()[i]->type())) carried_.push_back(i);
        for (size_t j = 0; j < form_.sequences.size(); ++j)
            if (is_float_type(body_.inputs()[states_ + j]->type())) scanned_.push_back(j);
        for (size_t c = 0; c < form_.collected.size(); ++c)
            if (states_ + c < r_.gs.size() && r_.gs[states_ + c]) arriving_.push_back(c);
        NestedGraph step(b_.graph(), "step_gradient");
        write_step(step);
        if (step.passes_on_error(b_)) return {};
        return scan_back(step.graph);
    }

  private:
    // The scan once more, in the place of the first, with the states before each step.
    bool save_states() {
        NestedGraph body(b_.graph(), "body");
        std::vector<Value*> inputs;
        for (const auto& in : body_.inputs()) inputs.push_back(body.graph->add_input(in->name(), in->type()));
        for (Value* v : body.copy(body_, inputs))
            if (v) body.graph->add_output(v);
        if (body.passes_on_error(b_)) return false;
        for (size_t i = 0; i < states_; ++i) body.graph->add_output(body.build.op("identity", {inputs[i]}));
        if (body.passes_on_error(b_)) return false;
        AttrMap attrs = r_.node.attrs();
        attrs["body"] = body.graph;
        attrs.erase("scan_output_axes");
        std::vector<int64_t> directions(form_.collected.begin(), form_.collected.end());
        directions.resize(directions.size() + states_);
        attrs["scan_output_directions"] = directions;
        const size_t outputs = body_.outputs().size();
        std::vector<Value*> made = b_.ops("scan", r_.in, attrs, outputs + states_);
        if (b_.failed()) return false;
        for (size_t i = 0; i < r_.outs.size(); ++i) b_.graph().replace_uses(r_.outs[i], made[i]);
        b_.graph().sort();
        saved_.assign(made.begin() + std::ptrdiff_t(outputs), made.end());
        return true;
    }

    void write_step(NestedGraph& step) {
        Graph& g = *step.graph;
        std::vector<Value*> from_next, sums, inputs, arriving;
        for (size_t i : carried_) from_next.push_back(g.add_input("state_gradient", body_.inputs()[i]->type()));
        for (Value* v : r_.captured) sums.push_back(g.add_input("sum", v->type()));
        for (const auto& in : body_.inputs()) inputs.push_back(g.add_input(in->name(), in->type()));
        for (size_t c : arriving_) arriving.push_back(g.add_input("gradient", body_.outputs()[states_ + c]->type()));
        const std::vector<Value*> made = step.copy(body_, inputs);
        std::vector<Seed> seeds;
        std::vector<Value*> wanted;
        for (size_t k = 0; k < carried_.size(); ++k) seeds.push_back({made[carried_[k]], from_next[k]});
        for (size_t k = 0; k < arriving_.size(); ++k) seeds.push_back({made[states_ + arriving_[k]], arriving[k]});
        for (size_t i : carried_) wanted.push_back(inputs[i]);
        for (size_t j : scanned_) wanted.push_back(inputs[states_ + j]);
        wanted.insert(wanted.end(), r_.captured.begin(), r_.captured.end());
        const Gradients d = step.differentiate(seeds, wanted);
        const size_t carried = carried_.size(), scanned = scanned_.size();
        for (size_t k = 0; k < carried; ++k) step.give(d[k], wanted[k]);
        for (size_t k = 0; k < sums.size(); ++k) {
            Value* part = d[carried + scanned + k];
            step.give(part ? step.build.add(sums[k], part) : step.build.op("identity", {sums[k]}), sums[k]);
        }
        for (size_t k = 0; k < scanned; ++k) step.give(d[carried + k], wanted[carried + k]);
    }

    Gradients scan_back(const GraphPtr& body) {
        std::vector<Value*> in;
        for (size_t i : carried_) in.push_back(i < r_.gs.size() && r_.gs[i] ? r_.gs[i] : zeros_like(b_, r_.in[i]));
        for (Value* v : r_.captured) in.push_back(zeros_like(b_, v));
        const int64_t before = int64_t(in.size());
        std::vector<int64_t> reads(states_, 1), writes;
        in.insert(in.end(), saved_.begin(), saved_.end());
        for (size_t j = 0; j < form_.sequences.size(); ++j) {
            in.push_back(r_.in[states_ + j]);
            reads.push_back(!form_.sequences[j]);
        }
        for (size_t c : arriving_) {
            in.push_back(r_.gs[states_ + c]);
            reads.push_back(!form_.collected[c]);
        }
        for (size_t j : scanned_) writes.push_back(!form_.sequences[j]);
        const std::vector<Value*> out = b_.ops("scan", in,
                                               {{"body", Attr(body)},
                                                {"num_scan_inputs", Attr(int64_t(in.size()) - before)},
                                                {"scan_input_directions", Attr(reads)},
                                                {"scan_output_directions", Attr(writes)}},
                                               size_t(before) + scanned_.size());
        Gradients result(r_.in.size() + r_.captured.size(), nullptr);
        for (size_t k = 0; k < carried_.size(); ++k) result[carried_[k]] = out[k];
        for (size_t k = 0; k < scanned_.size(); ++k) result[states_ + scanned_[k]] = out[size_t(before) + k];
        for (size_t k = 0; k < r_.captured.size(); ++k) result[r_.in.size() + k] = out[carried_.size() + k];
        return result;
    }

    const Backward& r_;
    Builder& b_;
    const OpView& op_;
    const ControlForm& form_;
    const Graph& body_;
    const size_t states_;
    std::vector<Value*> saved_;                         // the states before each step
    std::vector<size_t> carried_, scanned_, arriving_;  // float states, float sequences, collected with a gradient
};

}  // namespace

Gradients back_through_scan(const Backward& r) {
    const OpView op = r.node.view();
    auto form = r.node.op().control(op);
    if (!form || r.in.size() != form->states + form->sequences.size()) {
        r.b.fail(Error(Code::E0202, "Gradient: {} scans other axes than the first, or a batch", r.node.where()));
        return {};
    }
    return ScanGradient(r, op, *form).run();
}

Gradients back_through_if(const Backward& r) {
    AttrMap attrs;
    for (const auto& [name, attr] : r.node.attrs()) {
        const auto* branch = std::get_if<GraphPtr>(&attr);
        if (!branch) continue;
        NestedGraph made(r.b.graph(), (*branch)->name().c_str());
        const std::vector<Value*> out = made.copy(**branch, {});
        std::vector<Seed> seeds;
        for (size_t i = 0; i < out.size() && i < r.gs.size(); ++i)
            if (r.gs[i]) seeds.push_back({out[i], r.gs[i]});
        const Gradients d = made.differentiate(seeds, r.captured);
        for (size_t k = 0; k < d.size(); ++k) made.give(d[k], r.captured[k]);
        if (made.passes_on_error(r.b)) return {};
        attrs[name] = made.graph;
    }
    Gradients result = r.b.ops("if", {r.in[0]}, attrs, r.captured.size());
    result.insert(result.begin(), nullptr);
    return result;
}

}  // namespace tessera
