#include "kernel/written/write_kernel.h"

#include <array>
#include <map>

#include "kernel/ir/narrow_floats.h"
#include "kernel/ir/verified.h"
#include "kernel/passes/clean_up.h"

namespace tessera {
namespace {

constexpr int64_t kLanes = 16, kBlock = 4096;

bool narrow(DType t) { return kFloats.without({DType::f32, DType::f64}).has(t); }

// The graph's symbols as n0, n1, ... in the order of the parameters' sizes, so that equal kernels are one.
void name_symbols(WrittenKernel& made) {
    Bindings loops;  // by names without the mark that kept them apart from the graph's
    visit(made.kernel.body, [&](const Stmt& s) {
        const For* loop = s->as<For>();
        if (!loop) return;
        const std::string& name = loop->var.node().name;
        loops.emplace(name, index_var(name.substr(1), loop->extent.as_int()));
    });
    Bindings own;
    auto meet = [&](const Expr& e) {
        for (const std::string& name : free_symbols(e)) {
            if (loops.contains(name) || own.contains(name)) continue;
            std::string fresh = fmt::format("n{}", made.kernel.symbols.size());
            own.emplace(name, symbol(fresh));
            made.kernel.symbols.push_back(fresh);
            made.symbols.push_back(symbol(name));
        }
    };
    for (const Buffer& b : made.kernel.buffers)
        for (const Expr& e : b.shape) meet(e);
    visit_exprs(made.kernel.body, meet);
    own.insert(loops.begin(), loops.end());
    for (Buffer& b : made.kernel.buffers)
        for (Expr& e : b.shape) e = substitute(e, own);
    made.kernel.body = substitute(made.kernel.body, own);
}

}  // namespace

DType Elements::read_as() const { return narrow(dtype) ? DType::f32 : dtype; }

Expr Elements::at(std::vector<Expr> indices) const {
    Expr x = load(slot, stored_as(dtype), std::move(indices));
    return kNarrowFloats.has(dtype) ? decoded(dtype, x) : cast(x, read_as());
}

Stmt Elements::set(std::vector<Expr> indices, const Expr& value) const {
    const bool bits = kNarrowFloats.has(dtype);
    return store(slot, std::move(indices), bits ? encoded(dtype, value, false) : cast(value, dtype));
}

Stmt Elements::combine(ReduceOp op, std::vector<Expr> indices, const Expr& value) const {
    return store(slot, std::move(indices), cast(value, dtype), op);
}

Stmt Elements::update(ReduceOp op, std::vector<Expr> indices, const Expr& value) const {
    const char* name = op == ReduceOp::Sum   ? "atomic_add"
                       : op == ReduceOp::Max ? "atomic_max"
                       : op == ReduceOp::Min ? "atomic_min"
                                             : "atomic_mul";
    return make_stmt(Call{name, {{slot, std::move(indices)}}, {}, {cast(value, dtype)}});
}

KernelWriter::KernelWriter(const Node& node, WrittenFor how) : node_(node), view_(node.view()), how_(how) {
    made_.kernel.name = node.op().name;
}

Elements KernelWriter::param(WrittenKernel::Role role, size_t index, DType dtype, std::vector<Expr> shape) {
    constexpr std::array<std::string_view, 3> kNames{"x", "y", "t"};
    int count = 0;
    for (const WrittenKernel::Param& p : made_.params) count += p.role == role;
    Elements e{int(made_.kernel.buffers.size()), dtype};
    made_.kernel.buffers.push_back({.name = fmt::format("{}{}", kNames[size_t(role)], count),
                                    .dtype = stored_as(dtype),
                                    .shape = std::move(shape)});
    made_.params.push_back({role, index});
    return e;
}

Elements KernelWriter::in(size_t i) { return in(i, view_.shape(i).dims()); }
Elements KernelWriter::in(size_t i, std::vector<Expr> shape) { return in(i, view_.dtype(i), std::move(shape)); }
Elements KernelWriter::in(size_t i, DType as, std::vector<Expr> shape) {
    return param(WrittenKernel::Role::Input, i, as, std::move(shape));
}
Elements KernelWriter::out(size_t i) { return out(i, node_.output(i)->type().tensor().shape.dims()); }
Elements KernelWriter::out(size_t i, std::vector<Expr> shape) {
    return out(i, node_.output(i)->type().tensor().dtype, std::move(shape));
}
Elements KernelWriter::out(size_t i, DType as, std::vector<Expr> shape) {
    return param(WrittenKernel::Role::Output, i, as, std::move(shape));
}
Elements KernelWriter::scratch(DType dtype, std::vector<Expr> shape) {
    return param(WrittenKernel::Role::Scratch, 0, dtype, std::move(shape));
}

Elements KernelWriter::kept(DType dtype, std::vector<Expr> shape) {
    made_.kept.push_back({dtype, shape});
    return param(WrittenKernel::Role::Output, node_.output_count() + made_.kept.size() - 1, dtype, std::move(shape));
}

void KernelWriter::result(size_t output, std::function<Expr(const Indices&)> body) {
    if (wants(output)) made_.results.push_back({output, std::move(body)});
}

bool KernelWriter::wants(size_t i) const { return i < node_.output_count() && !node_.output(i)->uses().empty(); }

// They are numbered from -1 down until all parameters are known.
Stmt KernelWriter::owned(Scope scope, DType dtype, std::vector<Expr> shape,
                         const std::function<Stmt(const Elements&)>& body) {
    Elements e{-int(locals_.size()) - 1, dtype};
    locals_.push_back(
        {.name = fmt::format("l{}", locals_.size()), .dtype = dtype, .shape = std::move(shape), .scope = scope});
    return alloc(e.slot, body(e));
}

Stmt KernelWriter::local(DType dtype, std::vector<Expr> shape, const std::function<Stmt(const Elements&)>& body) {
    const bool in_register = how_.blocks && shape.empty();
    return owned(in_register ? Scope::Register : Scope::Local, dtype, std::move(shape), body);
}

Stmt KernelWriter::shared(DType dtype, std::vector<Expr> shape, const std::function<Stmt(const Elements&)>& body) {
    return owned(Scope::Shared, dtype, std::move(shape), body);
}

Stmt KernelWriter::blocks(const Expr& along_x, const Expr& along_y, const BlockBody& body) {
    auto bound = [&](const char* axis, const Expr& extent) {
        return For{.var = index_var(fmt::format("%i{}", next_++), extent.as_int()),
                   .extent = extent,
                   .kind = LoopKind::Bound,
                   .axis = axis};
    };
    For x = bound("block.x", along_x), y = bound("block.y", along_y);
    y.body = body(x.var, y.var);
    x.body = for_loop(std::move(y));
    return for_loop(std::move(x));
}

Stmt KernelWriter::threads(int64_t count, const Body& body) {
    Expr var = index_var(fmt::format("%i{}", next_++), count);
    return for_loop({.var = var, .extent = count, .kind = LoopKind::Bound, .axis = "thread.x", .body = body(var)});
}

Stmt KernelWriter::loop(const Expr& extent, const Body& body, LoopKind kind) {
    Expr var = index_var(fmt::format("%i{}", next_++), extent.as_int());
    return for_loop({.var = var, .extent = extent, .kind = kind, .body = body(var)});
}

Stmt KernelWriter::lanes(const Expr& extent, const Body& body) {
    auto known = extent.as_int();
    if (known && *known < 4) return loop(extent, body);
    const int64_t width = known && *known < kLanes ? (*known < 8 ? 4 : 8) : kLanes;
    Expr whole = floor_div(extent, width);
    Stmt most = loop(whole, [&](const Expr& o) {
        return loop(
            width, [&](const Expr& l) { return body(o * width + l); }, LoopKind::Vector);
    });
    Stmt rest = loop(extent - whole * width, [&](const Expr& i) { return body(whole * width + i); });
    return seq({most, rest});
}

Stmt KernelWriter::everywhere(const Expr& extent, const Body& body) {
    if (how_.blocks) return parallel(extent, body);
    return parallel(ceil_div(extent, kBlock), [&](const Expr& o) {
        Expr here = min(Expr(kBlock), extent - o * kBlock);
        return lanes(here, [&](const Expr& i) { return body(o * kBlock + i); });
    });
}

Stmt KernelWriter::refuse(std::string reason) {
    can_write_ = no("{}", reason);
    return nullptr;
}

WrittenKernel KernelWriter::finish(Stmt body) {
    Kernel& kernel = made_.kernel;
    kernel.params = kernel.buffers.size();
    kernel.buffers.insert(kernel.buffers.end(), locals_.begin(), locals_.end());
    auto place = [&](int slot) { return slot < 0 ? int(kernel.params) - 1 - slot : slot; };
    body = map_exprs(body, [&](const Expr& e) {
        return rewrite(e, [&](const Expr& x) {
            return x.is(ExprKind::Load) ? load(place(x.node().slot), x.dtype(), x.args()) : x;
        });
    });
    kernel.body = mutate(body, [&](const Stmt& s) -> Stmt {
        if (const Store* to = s->as<Store>())
            return store(place(to->to.buffer), to->to.indices, to->value, to->combine);
        if (const Alloc* a = s->as<Alloc>()) return alloc(place(a->buffer), a->body);
        if (const Call* call = s->as<Call>()) {
            Call placed = *call;
            for (Access& a : placed.writes) a.buffer = place(a.buffer);
            return make_stmt(std::move(placed));
        }
        return s;
    });
    name_symbols(made_);
    drop_unit_loops(kernel);
    merge_dimensions(kernel);
    drop_unused_buffers(kernel);
    check_verified(kernel, "write_kernel");
    return std::move(made_);
}

Expr elements_between(const Shape& shape, int64_t from, int64_t to) {
    Expr n = 1;
    for (int64_t d = from; d < to; ++d) n = n * shape[d];
    return n;
}

const KernelWriting* kernel_writing(const OpDef& op) {
    static const std::map<std::string_view, KernelWriting> kAll = [] {
        std::map<std::string_view, KernelWriting> all;
        for (const auto& list :
             {scatter_kernels(), running_kernels(), selection_kernels(), region_kernels(), matrix_kernels(),
              bit_kernels(), found_kernels(), suppression_kernels(), tree_kernels()})
            for (const KernelWriting& w : list) all.emplace(w.op, w);
        return all;
    }();
    auto found = kAll.find(op.name);
    return found == kAll.end() ? nullptr : &found->second;
}

}  // namespace tessera
