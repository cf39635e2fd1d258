#include "shard/local_program.h"

#include <algorithm>
#include <set>

#include "graph/evaluate/evaluate.h"
#include "graph/gradient/tensor_expression.h"
#include "onnx/file.h"
#include "shard/pieces.h"
#include "shard/wires.h"

namespace tessera::shard {
namespace {

Box whole_box(const Sizes& sizes) {
    Box box;
    for (int64_t n : sizes) box.push_back({0, n});
    return box;
}

// Of a mapped file, only the pages of a rank's part stay in memory, as its copy.
Result<Tensor> cut_weight(const Tensor& all, const Box& held, const Box& box) {
    Tensor part = TRY(cut(all, held, box));
    if (part.data() != all.data()) onnx::MappedFile::release_pages(all.data(), size_t(all.bytes()));
    return part;
}

// Bytes of collectives under way, as a rank receives them: their messages are copies.
constexpr int64_t kMostUnderWay = 32 << 20;

// What a reduction over nothing is.
double identity_of(ReduceOp op, DType dtype) {
    const Expr none = op == ReduceOp::Sum || op == ReduceOp::Prod ? constant(op == ReduceOp::Prod, dtype)
                                                                  : infinity(dtype, op == ReduceOp::Max);
    return is_float(dtype) ? none.node().real : double(none.node().integer);
}

// Whether the variable stands nowhere but alone as an index of an input.
bool is_plain(const Expr& body, const Variable& v) {
    const Expr rest = map_loads(body, [&](const Expr& l) {
        std::vector<Expr> at;
        for (const Expr& index : l.args()) at.push_back(index == v.var ? Expr(0) : index);
        return load(l.node().slot, l.dtype(), at);
    });
    return !depends_on(rest, v.var);
}

// An op that checks its operands says of parts what it says of the whole if only plain variables are divided.
bool checks_parts(const ComputeStep& step, const Ranges& ranges) {
    if (!step.unit->node->op().check) return true;
    for (size_t v = 0; v < ranges.size(); ++v)
        if (ranges[v].length() < step.variables[v].extent && !is_plain(*step.body, step.variables[v])) return false;
    return true;
}

class Cutting {
  public:
    Cutting(const Plan& plan, int64_t rank, Transfer transfer) : plan_(plan), rank_(rank), transfer_(transfer) {
        program_.rank = rank;
    }

    Result<LocalProgram> run() {
        for (size_t i = 0; i < plan_.steps.size(); ++i) {
            const PlanStep& step = plan_.steps[i];
            if (i == 0 || starts_collective(i) || starts_collective(i - 1) || is_cut(i)) finish_reads(i);
            if (auto* c = std::get_if<ComputeStep>(&step)) {
                TRY(compute(*c));
            } else if (auto* m = std::get_if<MoveStep>(&step)) {
                TRY(move(*m));
            } else {
                TRY(combine(std::get<CombineStep>(step)));
            }
        }
        close();
        for (int id : plan_.outputs) finish(id);
        needed_.insert(plan_.outputs.begin(), plan_.outputs.end());
        for (int id : plan_.outputs)
            if (is_constant(id)) TRY(local(id));
        close();
        TRY(add_outputs());
        return std::move(program_);
    }

  private:
    struct Open {
        std::shared_ptr<Graph> graph;
        std::map<int, Value*> values;  // of what is held
        std::vector<int> inputs, made;
    };

    const Held& held(int id) const { return plan_.held[size_t(id)]; }
    bool is_buffer(int id) const { return size_t(id) >= plan_.held.size(); }
    bool is_constant(int id) const {
        if (is_buffer(id)) return false;
        return (held(id).source && held(id).value->is_constant()) || constant_parts_.contains(id);
    }
    const Box& box(int id) const { return held(id).boxes[size_t(rank_)]; }

    Open& segment() {
        if (!open_) open_ = Open{std::make_shared<Graph>(), {}, {}, {}};
        return *open_;
    }
    void close() {
        if (open_) segments_.push_back(std::move(*open_));
        if (open_) program_.stages.emplace_back(Segment{segments_.back().graph, {}, {}});
        open_.reset();
    }

    bool starts_collective(size_t step) const {
        auto* move = std::get_if<MoveStep>(&plan_.steps[step]);
        return move ? !is_local(plan_, *move) : std::holds_alternative<CombineStep>(plan_.steps[step]);
    }
    bool is_cut(size_t step) const { return std::binary_search(plan_.cuts.begin(), plan_.cuts.end(), step); }

    // Those that started first make room for others: by the plan, the same on all ranks.
    template <typename Step>
    void start(const Step& step, int made) {
        close();
        const int64_t bytes = received_bytes(plan_, step);
        while (!started_.empty() && under_way_ + bytes > kMostUnderWay) finish(started_.front().first);
        program_.stages.emplace_back(step);
        started_.emplace_back(made, bytes);
        under_way_ += bytes;
    }
    void finish(int id) {
        const auto at = std::find_if(started_.begin(), started_.end(), [&](const auto& s) { return s.first == id; });
        if (at == started_.end()) return;
        close();
        under_way_ -= at->second;
        started_.erase(at);
        program_.stages.emplace_back(FinishStage{id});
    }
    // The collectives that a step reads, and those after it up to the next collective or cut: by the plan, so that all
    // ranks wait for them in the same order.
    void finish_reads(size_t step) {
        if (transfer_ == Transfer::Buffers) return;  // those are finished by the stream
        if (!starts_collective(step)) close();
        for (size_t i = step; i < plan_.steps.size(); ++i) {
            if (i > step && (starts_collective(i) || is_cut(i))) return;
            for_each_read(plan_.steps[i], [&](int id) { finish(id); });
            if (starts_collective(i)) return;
        }
    }

    // Outputs: what somebody else reads.
    Status add_outputs() {
        for (const Open& s : segments_) needed_.insert(s.inputs.begin(), s.inputs.end());
        size_t next = 0;
        for (auto& stage : program_.stages) {
            auto* segment = std::get_if<Segment>(&stage);
            if (!segment) continue;
            Open& open = segments_[next++];
            segment->inputs = open.inputs;
            for (int id : open.made)
                if (needed_.contains(id)) {
                    open.graph->add_output(open.values.at(id), name_of(id));
                    segment->outputs.push_back(id);
                }
            open.graph->erase_unused();
        }
        std::erase_if(program_.stages, [](const auto& stage) {
            auto* segment = std::get_if<Segment>(&stage);
            return segment && segment->outputs.empty();
        });
        return {};
    }

    static std::string name_of(int id) { return fmt::format("t{}", id); }

    Type local_type(int id) const {
        if (is_buffer(id)) {
            const WireBuffer& b = program_.buffers[size_t(id) - plan_.held.size()];
            return Type(b.dtype, Shape(Sizes{b.elements}));
        }
        const Held& h = held(id);
        return h.sizes ? Type(h.dtype, Shape(Sizes(lengths(box(id))))) : h.value->type();
    }

    // The tensor in the open segment's graph: computed there, a constant's part, or an input.
    Result<Value*> local(int id) {
        Open& s = segment();
        if (auto found = s.values.find(id); found != s.values.end()) return found->second;
        Value* v;
        if (is_constant(id)) {
            const Held& h = held(id);
            const Tensor& all = *h.value->tensor();
            v = s.graph->constant(h.sizes ? TRY(cut_weight(all, whole_box(*h.sizes), box(id))) : all);
            s.made.push_back(id);  // where another segment or a collective reads it
        } else {
            v = s.graph->add_input(name_of(id), local_type(id));
            s.inputs.push_back(id);
        }
        s.values.emplace(id, v);
        return v;
    }

    Result<Value*> empty(int id) {
        return segment().graph->constant(TRY(Tensor::zeros(held(id).dtype, lengths(box(id)))));
    }
    Status made(int id, Value* v) {
        segment().values[id] = v;
        segment().made.push_back(id);
        return {};
    }

    Status combine(const CombineStep& step) {
        if (transfer_ == Transfer::Buffers) return combine_buffers(step);
        needed_.insert(step.from);
        start(step, step.to);
        return {};
    }

    // A buffer of this element type.
    int buffer(DType dtype, int64_t elements) {
        program_.buffers.push_back({dtype, elements});
        return int(plan_.held.size() + program_.buffers.size()) - 1;
    }
    // With a box of a tensor in it, in row-major order; from the open segment.
    Result<int> packed(int id, const Box& part) {
        const int made_id = buffer(held(id).dtype, volume(part));
        Value* v = TRY(local(id));
        Builder b(*segment().graph);
        v = volume(part) == 0 ? b.constant(TRY(Tensor::zeros(held(id).dtype, {0})))
                              : b.reshape(box_of(b, {box(id), v}, part), {volume(part)});
        TRY(b.status());
        TRY(made(made_id, v));
        return made_id;
    }
    void wire(Wire w) {
        if (w.from >= 0) needed_.insert(w.from);
        for (const auto& [rank, id] : w.sends) needed_.insert(id);
        close();
        program_.stages.emplace_back(std::move(w));
    }
    std::string name_of_step(const PlanStep& step, int to) const {
        return fmt::format("{} of {}", kind_of(plan_, step), held(to).value->name());
    }

    // The box of `to`, put together in a new segment.
    Status unpacked(int to, const std::vector<BoxValue>& parts) {
        if (volume(box(to)) == 0) return made(to, TRY(empty(to)));
        Builder b(*segment().graph);
        Value* v = assemble(b, box(to), parts);
        TRY(b.status());
        return made(to, v);
    }
    Result<BoxValue> received(int id, const Box& part) {
        Value* v = TRY(local(id));
        Builder b(*segment().graph);
        if (volume(part) > 0) v = b.reshape(v, lengths(part));  // otherwise nobody reads it
        TRY(b.status());
        return BoxValue{part, v};
    }

    Status move_buffers(const MoveStep& m) {
        const Placement &from = held(m.from).boxes, &to = held(m.to).boxes;
        const DType dtype = held(m.from).dtype;
        if (const auto axes = gathered_axes(plan_, m)) {
            const std::vector<int64_t> group = plan_.mesh.group(rank_, *axes);
            const int64_t count = volume(box(m.from));
            const int send = TRY(packed(m.from, box(m.from))), all = buffer(dtype, count * int64_t(group.size()));
            wire(
                {.kind = Wire::Kind::AllGather, .name = name_of_step(m, m.to), .axes = *axes, .from = send, .to = all});
            Value* v = TRY(local(all));
            Builder b(*segment().graph);
            std::vector<BoxValue> parts;
            for (size_t i = 0; i < group.size(); ++i) {
                const Box& part = from[size_t(group[i])];
                Value* own = b.slice(v, {int64_t(i) * count}, {int64_t(i + 1) * count}, {0});
                parts.push_back({part, b.reshape(own, lengths(part))});
            }
            TRY(b.status());
            return unpacked(m.to, parts);
        }
        Wire w{.kind = Wire::Kind::SendReceive, .name = name_of_step(m, m.to)};
        for (size_t r = 0; r < from.size(); ++r)
            if (int64_t(r) != rank_)
                for (const Piece& p : pieces_for(plan_.mesh, int64_t(r), from, to[r]))
                    if (p.from == rank_) w.sends.emplace_back(r, TRY(packed(m.from, p.box)));
        const std::vector<Piece> pieces = pieces_for(plan_.mesh, rank_, from, to[size_t(rank_)]);
        for (const Piece& p : pieces) w.receives.emplace_back(p.from, buffer(dtype, volume(p.box)));
        const bool keeps = volume(intersect(box(m.from), box(m.to))) > 0;
        const auto receives = w.receives;
        wire(std::move(w));
        std::vector<BoxValue> parts;
        if (keeps) parts.push_back({box(m.from), TRY(local(m.from))});
        for (size_t i = 0; i < pieces.size(); ++i) parts.push_back(TRY(received(receives[i].second, pieces[i].box)));
        return unpacked(m.to, parts);
    }

    Status combine_buffers(const CombineStep& step) {
        const Placement& to = held(step.to).boxes;
        const DType dtype = held(step.from).dtype;
        TRY(reducible(step.op, dtype));
        Wire w{.kind = Wire::Kind::AllReduce, .name = name_of_step(step, step.to), .op = step.op, .axes = step.axes};
        if (scatters_evenly(plan_, step)) {
            Value* v = TRY(local(step.from));
            Builder b(*segment().graph);
            std::vector<Value*> parts;
            for (int64_t r : plan_.mesh.group(rank_, step.axes))
                parts.push_back(b.reshape(box_of(b, {box(step.from), v}, to[size_t(r)]), {volume(to[size_t(r)])}));
            w.kind = Wire::Kind::ReduceScatter;
            w.from = buffer(dtype, volume(box(step.to)) * int64_t(parts.size()));
            TRY(made(w.from, b.concat(parts, 0)));
            TRY(b.status());
            w.to = buffer(dtype, volume(box(step.to)));
            const int part = w.to;
            wire(std::move(w));
            return unpacked(step.to, {TRY(received(part, box(step.to)))});
        }
        w.from = TRY(packed(step.from, box(step.from)));
        w.to = buffer(dtype, volume(box(step.from)));
        const int all = w.to;
        wire(std::move(w));
        return unpacked(step.to, {TRY(received(all, box(step.from)))});
    }

    Status move(const MoveStep& m) {
        if (!is_local(plan_, m) && transfer_ == Transfer::Buffers) return move_buffers(m);
        if (!is_local(plan_, m)) {
            if (is_constant(m.from)) TRY(local(m.from));
            needed_.insert(m.from);
            start(m, m.to);
            return {};
        }
        const Held& from = held(m.from);
        if (is_constant(m.from)) {
            constant_parts_.insert(m.to);
            return {};
        }
        if (from.sizes && volume(box(m.to)) == 0) return made(m.to, TRY(empty(m.to)));
        Value* v = TRY(local(m.from));
        std::vector<int64_t> starts, ends, axes;
        for (size_t d = 0; from.sizes && d < box(m.to).size(); ++d) {
            const Interval &outer = box(m.from)[d], &inner = box(m.to)[d];
            if (outer == inner) continue;
            starts.push_back(inner.low - outer.low);
            ends.push_back(starts.back() + inner.length());
            axes.push_back(int64_t(d));
        }
        Builder b(*segment().graph);
        if (!axes.empty()) v = b.slice(v, starts, ends, axes);
        TRY(b.status());
        return made(m.to, v);
    }

    // The node itself: from whole operands, or where its own body on the parts says what the part of its body does.
    Result<Node*> copy_of(const Node& node, const std::vector<std::optional<int>>& inputs) {
        NodeSpec spec{
            .op = &node.op(), .inputs = {}, .attrs = node.attrs(), .outputs = node.output_count(), .name = node.name()};
        for (size_t i = 0; i < node.inputs().size(); ++i) {
            const Value* v = node.input(i);
            if (v && inputs[i])
                spec.inputs.push_back(TRY(local(*inputs[i])));
            else
                spec.inputs.push_back(v ? segment().graph->constant(*v->tensor()) : nullptr);
        }
        for (size_t i = 0; i < node.output_count(); ++i) spec.given.push_back(node.output_given(i));
        return segment().graph->add(std::move(spec));
    }

    Result<Value*> own_node(const ComputeStep& step, const Expr& body, const Type& type) {
        const Node& node = *step.unit->node;
        if (!step.own || node.output_count() != 1 || !checks_parts(step, step.ranges[size_t(rank_)])) return nullptr;
        for (size_t i = 0; i < node.inputs().size(); ++i)
            if (node.input(i) && !step.inputs[i] && !node.input(i)->is_constant()) return nullptr;
        auto made = copy_of(node, step.inputs);
        if (!made.ok()) return nullptr;
        Node& copy = **made;
        if (copy.output()->type() == type && (!copy.op().body_applies || copy.op().body_applies(copy.view()))) {
            OpView view = copy.view();
            std::optional<Expr> own;
            const auto missing =
                view.asks_unknown([&] { own = copy.op().body(view, output_indices(type.tensor().shape)); });
            if (!missing && own && own->same(body)) return copy.output();
        }
        segment().graph->erase(copy);
        return nullptr;
    }

    Status compute(const ComputeStep& step) {
        if (!step.body) {
            Node* copy = TRY(copy_of(*step.unit->node, step.inputs));
            for (size_t i = 0; i < step.results.size(); ++i) TRY(made(step.results[i], copy->output(i)));
            return {};
        }
        const int result = step.results[0];
        const Type type = local_type(result);
        const Ranges& ranges = step.ranges[size_t(rank_)];
        if (volume(box(result)) == 0) return made(result, TRY(empty(result)));
        for (size_t v = 0; v < ranges.size(); ++v)
            if (ranges[v].length() == 0 && step.body->is(ExprKind::Reduce)) {
                const double none = identity_of(step.body->node().reduce_op, held(result).dtype);
                return made(result, segment().graph->constant(
                                        TRY(Tensor::filled(held(result).dtype, lengths(box(result)), none))));
            }
        const Expr moved = within(*step.body, step.variables, ranges);
        const Expr body = map_loads(moved, [&](const Expr& l) {
            std::vector<Expr> at;
            const Box& from = box(*step.inputs[size_t(l.node().slot)]);
            for (size_t d = 0; d < l.args().size(); ++d) at.push_back(l.arg(d) - from[d].low);
            return load(l.node().slot, l.dtype(), at);
        });
        if (Value* own = TRY(own_node(step, body, type))) return made(result, own);
        std::vector<Value*> inputs;
        for (const auto& in : step.inputs) inputs.push_back(in ? TRY(local(*in)) : nullptr);
        std::vector<ReduceAxis> axes;
        for (size_t v = 0; v < ranges.size() && !step.variables[v].reduced; ++v)
            axes.push_back({step.variables[v].var, Expr(ranges[v].length())});
        Builder b(*segment().graph, step.unit->node->where());
        Value* v = tensor_expression(b, inputs, body, axes);
        TRY(b.status());
        return made(result, v);
    }

    const Plan& plan_;
    const int64_t rank_;
    const Transfer transfer_;
    LocalProgram program_;
    std::vector<Open> segments_;
    std::optional<Open> open_;
    std::set<int> constant_parts_;
    std::vector<std::pair<int, int64_t>> started_;  // made by collectives that have started, and bytes
    int64_t under_way_ = 0;
    std::set<int> needed_;  // by collectives, other segments and the caller
};

}  // namespace

Result<LocalProgram> local_program(const Plan& plan, int64_t rank, Transfer transfer) {
    return Cutting(plan, rank, transfer).run();
}

int64_t constant_bytes(const LocalProgram& program) {
    int64_t bytes = 0;
    for (const auto& stage : program.stages)
        if (auto* segment = std::get_if<Segment>(&stage))
            for (const auto& c : segment->graph->constants()) bytes += c->tensor()->bytes();
    return bytes;
}

}  // namespace tessera::shard
