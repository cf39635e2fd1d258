#include <algorithm>
#include <set>

#include "base/decision.h"
#include "graph/infer.h"
#include "kernel/from_graph/definitions.h"
#include "kernel/from_graph/op_lowering.h"
#include "kernel/from_graph/run_contents.h"
#include "kernel/from_tile/write_tile.h"
#include "kernel/ir/narrow_floats.h"
#include "rewrite/edit.h"

namespace tessera {
namespace {

constexpr int64_t kMaxIndices = 1024;  // elements of a constant list of indices that is looked at
constexpr int64_t kFewIndices = 4096;  // that are brought to the processor to be checked
constexpr size_t kMostMixed = 32;      // maps that one half of a tensor is computed by
constexpr int64_t kMovedLine = 16;     // elements that are worth an index of their own when they are moved

bool computable(const Type& t) {
    return t.is_tensor() && t.tensor().shape.ranked() && kBodyTypes.has(t.tensor().dtype);
}

// start + step * i where the elements of a list are that.
std::optional<Expr> progression(const Tensor& t, const std::vector<Expr>& at) {
    if (t.rank() != 1 || t.elements() < 2 || t.elements() > kMaxIndices || t.dtype() != DType::i64) return std::nullopt;
    int64_t start = t.int_at(0), step = t.int_at(1) - start;
    for (int64_t i = 2; i < t.elements(); ++i)
        if (t.int_at(i) - t.int_at(i - 1) != step) return std::nullopt;
    return at[0] * step + start;
}

class Defining {
  public:
    Defining(const Graph& graph, const Machine& machine, bool strict)
        : graph_(graph), machine_(machine), strict_(strict) {}

    Definitions run() {
        for (const auto& v : graph_.inputs()) give(v.get(), nullptr);
        for (const auto& v : graph_.inputs()) learn_symbols(v->type());
        for (const auto& v : graph_.constants()) give(v.get(), nullptr);
        for (const auto& node : graph_.nodes()) {
            if (!used(*node)) continue;
            if (Decision by_kernels = lowered(*node); !by_kernels) on_host(*node, by_kernels.reason());
        }
        for (const Value* v : graph_.outputs()) all_.outputs.push_back(number_of(v));
        return std::move(all_);
    }

  private:
    static bool used(const Node& node) {
        for (size_t i = 0; i < node.output_count(); ++i)
            if (!node.output(i)->uses().empty()) return true;
        return false;
    }

    int add(Definition d) {
        all_.list.push_back(std::move(d));
        return int(all_.list.size()) - 1;
    }

    // A reduction of a node, unless an output before has the same: the maxima of a pool serve their indices too.
    int add_once(Definition r) {
        auto same_extent = [](const ReduceAxis& x, const ReduceAxis& y) { return x.extent == y.extent; };
        for (int n = int(all_.list.size()) - 1; n >= 0 && all_.list[size_t(n)].node == r.node; --n) {
            const Definition& d = all_.list[size_t(n)];
            if (d.kind == r.kind && d.dtype == r.dtype && d.combine == r.combine && d.shape == r.shape &&
                d.body == r.body && std::ranges::equal(d.reduce, r.reduce, same_extent))
                return n;
        }
        return add(std::move(r));
    }

    void give(const Value* v, const Node* node) {
        Definition d;
        d.node = node;
        d.value = v;
        if (v->type().is_tensor()) d.dtype = stored_as(v->type().tensor().dtype);
        if (computable(v->type())) d.shape = v->type().tensor().shape.dims();
        all_.numbers[v] = add(std::move(d));
    }

    int number_of(const Value* v) {
        auto found = all_.numbers.find(v);
        if (found == all_.numbers.end()) {
            CHECK(v->is_constant(), "value {} is used before it is computed", v->name());
            give(v, nullptr);  // a constant of a graph around this one
            return all_.numbers[v];
        }
        return found->second;
    }

    // Sizes that a value has on its own are known from then on; `made`: the definition of a value that a host step
    // makes.
    void learn_symbols(const Type& t, int made = -1) {
        if (!t.is_tensor() || !t.tensor().shape.ranked()) return;
        for (const Dim& d : t.tensor().shape)
            if (d.is(ExprKind::Var) && symbols_.insert(d.node().name).second && made >= 0)
                all_.sizes.emplace(d.node().name, made);
    }

    bool known_sizes(const std::vector<Expr>& shape) const {
        for (const Expr& d : shape)
            for (const std::string& name : free_symbols(d))
                if (!symbols_.contains(name)) return false;
        return true;
    }

    struct Mark {
        size_t definitions, hosts;
    };
    Mark mark() const { return {all_.list.size(), all_.hosts.size()}; }
    void back_to(const Mark& before) {
        if (before.definitions == all_.list.size() && before.hosts == all_.hosts.size()) return;
        all_.list.resize(before.definitions);
        all_.hosts.resize(before.hosts);
        std::erase_if(all_.numbers, [&](const auto& entry) { return entry.second >= int(before.definitions); });
    }

    // Defines the node's outputs; or says why that is left to the evaluator, and leaves everything as it was.
    Decision lowered(const Node& node) {
        const OpLowering how = op_lowering(node.op());
        if (how == OpLowering::Expansion) return no("what it stands for depends on contents that only a run knows");
        if (how == OpLowering::Host || how == OpLowering::Control) return no("{}", host_reason(node.op()));
        const Mark before = mark();
        told_.clear();
        teller_.reset();
        const KernelWriting* writing = kernel_writing(node.op());
        if (!writing || !writing->found) tell_sizes(node);
        Decision done = how == OpLowering::Written ? by_written_kernel(node) : by_body(node);
        if (done) return done;
        back_to(before);
        for (const std::string& name : told_) {
            symbols_.erase(name);
            all_.sizes.erase(name);
        }
        return done;
    }

    // The step that finds what is known of the node only when it runs.
    HostNode& teller(const Node& node) {
        if (teller_) return all_.hosts[*teller_];
        teller_ = all_.hosts.size();
        HostNode host{&node, false, std::vector<int>(node.inputs().size(), -1), {}, {}, "infers sizes"};
        Definition d;
        d.kind = Definition::Kind::Sizes;
        d.node = &node;
        host.outputs.push_back(add(std::move(d)));
        return all_.hosts.emplace_back(std::move(host));
    }

    void tell(const HostNode& host, const std::string& name) {
        symbols_.insert(name);
        all_.sizes.emplace(name, host.outputs[0]);
        told_.push_back(name);
    }

    // Sizes of the node's outputs that depend on what only a run knows are inferred before; those that the model
    // declares are seen to hold.
    void tell_sizes(const Node& node) {
        for (size_t i = 0; i < node.output_count(); ++i) {
            const Value* v = node.output(i);
            if (v->uses().empty() || !computable(v->type())) continue;
            for (const Dim& d : v->type().tensor().shape)
                if (d.is(ExprKind::Var) && !symbols_.contains(d.node().name)) {
                    HostNode& host = teller(node);
                    host.sizes.push_back(d.node().name);
                    tell(host, d.node().name);
                }
        }
        if (!teller_ && !declares_sizes(node)) return;
        HostNode& host = teller(node);
        host.infers = true;
        for (size_t i = 0; i < node.inputs().size(); ++i)
            if (const Value* v = node.inputs()[i]; v && !v->is_constant() && may_tell_sizes(v->type()))
                host.inputs[i] = number_of(v);
    }

    // Whether the model declares a size that inference leaves to the run.
    static bool declares_sizes(const Node& node) {
        auto unknown = [](const Value* v) {
            return v && !v->is_constant() && !v->contents() && may_tell_sizes(v->type());
        };
        if (std::none_of(node.inputs().begin(), node.inputs().end(), unknown)) return false;
        auto types = infer_types(node.view());
        for (size_t i = 0; types.ok() && i < node.output_count(); ++i) {
            const Value* v = node.output(i);
            if (v->uses().empty() || !computable(v->type()) || !computable((*types)[i])) continue;
            const Shape &own = v->type().tensor().shape, &inferred = (*types)[i].tensor().shape;
            for (int64_t d = 0; d < own.rank() && own.rank() == inferred.rank(); ++d)
                if (!(own[d] == inferred[d]) && inferred[d] == node.view().fresh(i, size_t(d))) return true;
        }
        return false;
    }

    // Whether inference may look at the contents: it does so of lists and of single numbers only.
    static bool may_tell_sizes(const Type& t) {
        if (!computable(t)) return false;
        return t.tensor().rank() <= 1 || t.tensor().shape.elements().as_int().value_or(INT64_MAX) <= kMaxContents;
    }

    // What an input holds as symbols, which are read before; nothing where it holds no few whole numbers.
    std::optional<std::vector<Expr>> told_contents(const Node& node, size_t i) {
        const Value& v = *node.inputs()[i];
        auto contents = run_contents(v);
        if (!contents) return {};
        for (const Expr& e : *contents)
            for (const std::string& name : free_symbols(e)) {
                if (symbols_.contains(name)) continue;
                HostNode& host = teller(node);
                host.inputs[i] = number_of(&v);
                if (host.contents.empty() || host.contents.back() != i) host.contents.push_back(i);
                tell(host, name);
            }
        return contents;
    }

    // Whether a kernel can read the node's inputs and write its outputs.
    Decision fits(const Node& node) const {
        // Sizes that became known may show that a run would fail; the evaluator then says how.
        if (auto types = infer_types(node.view()); !types.ok()) return no("{}", types.error().message());
        for (const Value* v : node.inputs()) {
            if (v && !v->type().is_tensor()) return no("sequences and optionals");
            if (v && !v->type().tensor().shape.ranked()) return no("{} has no known rank", v->name());
            if (v && !computable(v->type())) return no("{} elements", dtype_name(v->type().tensor().dtype));
        }
        for (size_t i = 0; i < node.output_count(); ++i) {
            const Value* v = node.output(i);
            if (v->uses().empty()) continue;
            if (!computable(v->type())) return no("{} is {}", v->name(), to_string(v->type()));
            if (!known_sizes(v->type().tensor().shape.dims()))
                return no("the sizes of {}, {}, are known only when it is computed", v->name(),
                          to_string(v->type().tensor().shape));
        }
        return yes();
    }

    // Writes a kernel out for the node; or says why that is not possible.
    Decision by_written_kernel(const Node& node) {
        if (node.op().tile) return by_tile_program(node);
        const KernelWriting& writing = *kernel_writing(node.op());
        if (writing.found) tell_found(node, writing.found(node.view()));
        if (Decision fit = fits(node); !fit) return fit;
        KernelWriter writer(node, {.blocks = machine_.blocks, .strict = strict_});
        Stmt body = writing.write(writer);
        if (!writer.can_write()) return writer.can_write();
        Decision checked = add_check(node, [&](size_t i) {
            return std::find(writing.checked.begin(), writing.checked.end(), i) != writing.checked.end();
        });
        if (!checked) return checked;
        auto written = std::make_shared<const WrittenKernel>(writer.finish(std::move(body)));
        const std::vector<int> kept = keep(node, *written);
        if (writing.found) all_.hosts[*teller_].inputs = {kept[0]};
        on_host(node, {}, [&](size_t i) {
            return std::none_of(written->results.begin(), written->results.end(),
                                [&](const auto& r) { return r.output == i; });
        });
        HostNode& host = all_.hosts.back();
        host.outputs.insert(host.outputs.end(), kept.begin(), kept.end());
        host.kernel = written;
        for (const WrittenKernel::Result& r : written->results) {
            const std::vector<Expr> vars = index_vars(node.output(r.output)->type().tensor().shape.dims());
            auto number = define_as(node, r.output, r.body(Indices(vars)), kept);
            if (!number) return no("its results need sizes that depend on the data");
            all_.numbers[node.output(r.output)] = *number;
        }
        return yes();
    }

    // The kernel of the tile program that the node runs.
    Decision by_tile_program(const Node& node) {
        if (Decision fit = fits(node); !fit) return fit;
        auto written = write_tile_kernel(node, machine_);
        if (!written.ok()) return no("{}", written.error().message());
        on_host(node, {}, [](size_t) { return true; });
        all_.hosts.back().kernel = std::make_shared<const WrittenKernel>(std::move(*written));
        return yes();
    }

    // Definitions of what the node's kernel keeps for its results.
    std::vector<int> keep(const Node& node, const WrittenKernel& written) {
        std::vector<int> numbers;
        for (const WrittenKernel::Kept& kept : written.kept) {
            Definition d;
            d.node = &node;
            d.dtype = stored_as(kept.dtype);
            d.shape = kept.shape;
            numbers.push_back(add(std::move(d)));
        }
        return numbers;
    }

    // Sizes that the node's kernel finds are known after it.
    void tell_found(const Node& node, const std::vector<int64_t>& dims) {
        HostNode& host = teller(node);
        host.found.assign(node.output_count(), -1);
        for (size_t i = 0; i < node.output_count(); ++i) {
            const Value* v = node.output(i);
            if (dims[i] < 0 || !computable(v->type())) continue;
            host.found[i] = dims[i];
            const Dim& d = v->type().tensor().shape[dims[i]];
            if (d.is(ExprKind::Var) && !symbols_.contains(d.node().name)) tell(host, d.node().name);
        }
    }

    // Defines the node's outputs by its body; or says why that is not possible.
    Decision by_body(const Node& node) {
        if (Decision fit = fits(node); !fit) return fit;
        if (node.op().joined_axis && (roll(node) || (!mixes_one(node) && join(node)))) return yes();
        Contents told(node.inputs().size());
        std::optional<size_t> unknown;
        if (Decision done = by_body(node, told, unknown)) return done;
        for (size_t i = 0; i < told.size(); ++i)
            if (const Value* v = node.inputs()[i]; v && !v->is_constant() && !v->contents())
                told[i] = told_contents(node, i);
        Decision done = by_body(node, told, unknown);
        // Numbers that are not whole are asked for only to see whether they are constants.
        const bool real = !done && unknown && is_float(node.input(*unknown)->type().tensor().dtype);
        return real ? by_body(node, told, unknown, false) : done;
    }

    // By a body that knows these contents besides those that the graph knows. Where it fails for one that is not known,
    // `unknown` says which.
    using Contents = std::vector<std::optional<std::vector<Expr>>>;
    Decision by_body(const Node& node, const Contents& told, std::optional<size_t>& unknown, bool all = true) {
        unknown.reset();
        const OpDef& op = node.op();
        OpView view = node.view();
        std::vector<const std::vector<Expr>*> contents;
        for (size_t i = 0; i < told.size(); ++i) {
            const Value* v = node.inputs()[i];
            contents.push_back(told[i] ? &*told[i] : v && v->contents() ? &*v->contents() : nullptr);
        }
        view.with_contents(std::move(contents));
        if (op.body_applies && !op.body_applies(view)) return no("its body needs contents that only a run knows");
        const Mark before = mark();
        std::vector<std::pair<const Value*, int>> made;
        Decision done = yes();
        auto define_outputs = [&] {
            auto whole_numbers = [&](size_t k) { return is_int(node.input(k)->type().tensor().dtype); };
            done = add_check(node, whole_numbers);
            for (size_t i = 0; i < node.output_count() && done; ++i) {
                if (node.output(i)->uses().empty()) continue;
                auto number = define_output(node, view, i);
                if (!number)
                    done = no("its body needs sizes that depend on the data");
                else
                    made.emplace_back(node.output(i), *number);
            }
        };
        if (all)
            unknown = view.asks_unknown(define_outputs);
        else
            define_outputs();
        if (unknown) done = no("its body needs the contents of input {}, which only a run knows", *unknown);
        if (!done) {
            back_to(before);
            return done;
        }
        for (auto& [v, number] : made) all_.numbers[v] = number;
        return yes();
    }

    // The element that a body is; one of 16 bits is widened and narrowed on the way, which changes nothing.
    static Expr moved_element(const Expr& body) {
        const bool there_and_back = body.is(ExprKind::Cast) && body.arg(0).is(ExprKind::Cast) &&
                                    body.arg(0).dtype() == DType::f32 && body.arg(0).arg(0).dtype() == body.dtype() &&
                                    (body.dtype() == DType::f16 || body.dtype() == DType::bf16);
        return there_and_back ? body.arg(0).arg(0) : body;
    }

    // A concat of the end of a tensor and its beginning rotates it: one load, of an index that wraps. Not where it
    // would wrap from lane to lane.
    bool roll(const Node& node) {
        if (node.inputs().size() != 2) return false;
        const Value* v = node.output();
        const std::vector<Expr>& shape = v->type().tensor().shape.dims();
        const int64_t axis = node.op().joined_axis(node.view());
        Expr line = 1;  // that an index moves as one
        for (size_t i = size_t(axis) + 1; i < shape.size(); ++i) line = line * shape[i];
        if (line.as_int().value_or(kMovedLine) < kMovedLine) return false;
        const std::vector<Expr> vars = index_vars(shape);
        int from[2];
        Expr start[2];
        for (size_t k = 0; k < 2; ++k) {
            const Definition& d = all_.list[size_t(number_of(node.inputs()[k]))];
            const Expr element = moved_element(d.body);
            if (d.kind != Definition::Kind::Map || !element.is(ExprKind::Load)) return false;
            if (element.args().size() != d.shape.size()) return false;
            const std::vector<Expr> own = index_vars(d.shape);
            from[k] = element.node().slot;
            for (size_t i = 0; i < own.size(); ++i) {
                if (int64_t(i) == axis)
                    start[k] = element.arg(i) - own[i];
                else if (!(element.arg(i) == own[i]))
                    return false;
            }
        }
        const Definition& first = all_.list[size_t(number_of(node.inputs()[0]))];
        const Expr& cut = first.shape[size_t(axis)];
        if (from[0] != from[1] || !(all_.list[size_t(from[0])].shape == shape) || !start[1].is_int(0)) return false;
        if (!start[0].as_int() || !(start[0] + cut == shape[size_t(axis)])) return false;
        std::vector<Expr> at = vars;
        at[size_t(axis)] = mod(vars[size_t(axis)] + start[0], shape[size_t(axis)]);
        Definition d;
        d.kind = Definition::Kind::Map;
        d.node = &node;
        d.value = v;
        d.dtype = stored_as(v->type().tensor().dtype);
        d.shape = shape;
        d.body = load(from[0], d.dtype, std::move(at));
        all_.numbers[v] = add(std::move(d));
        return true;
    }

    // What a definition is computed from through maps, but for constants; nothing if that is not found soon.
    std::set<int> sources_of(int n) const {
        std::set<int> sources, seen;
        std::vector<int> work{n};
        while (!work.empty()) {
            const int at = work.back();
            work.pop_back();
            if (!seen.insert(at).second) continue;
            if (seen.size() > kMostMixed) return {};
            const Definition& d = all_.list[size_t(at)];
            if (d.kind == Definition::Kind::Map) {
                const std::vector<int> read = loaded_slots(d.body);
                work.insert(work.end(), read.begin(), read.end());
            } else if (!d.value || !d.value->is_constant()) {
                sources.insert(at);
            }
        }
        return sources;
    }

    // A concat of two parts one of which is computed from nothing that the other is not, as in rotary embeddings:
    // blocks of threads compute either part where it is read.
    bool mixes_one(const Node& node) {
        if (!machine_.blocks || node.inputs().size() != 2 || !is_float(node.output()->type().tensor().dtype))
            return false;
        std::set<int> sources[2];
        for (size_t k : {0u, 1u}) {
            const int part = number_of(node.inputs()[k]);
            if (all_.list[size_t(part)].kind != Definition::Kind::Map) return false;
            sources[k] = sources_of(part);
        }
        for (size_t k : {0u, 1u}) {
            const auto &one = sources[k], &other = sources[1 - k];
            if (!one.empty() && std::includes(other.begin(), other.end(), one.begin(), one.end())) return true;
        }
        return false;
    }

    // A concat of more than a few numbers: parts that are copies until somebody makes them in their place.
    bool join(const Node& node) {
        const Value* v = node.output();
        const std::vector<Expr>& shape = v->type().tensor().shape.dims();
        auto elements = v->type().tensor().shape.elements().as_int();
        if (elements && *elements <= kMaxContents) return false;
        Definition d;
        d.kind = Definition::Kind::Joined;
        d.node = &node;
        d.value = v;
        d.dtype = stored_as(v->type().tensor().dtype);
        d.shape = shape;
        d.axis = int(node.op().joined_axis(node.view()));
        for (const Value* from : node.inputs()) {
            Definition part;
            part.kind = Definition::Kind::Map;
            part.node = &node;
            part.dtype = d.dtype;
            part.shape = from->type().tensor().shape.dims();
            part.body = load(number_of(from), d.dtype, index_vars(part.shape));
            d.parts.push_back(add(std::move(part)));
        }
        all_.numbers[v] = add(std::move(d));
        return true;
    }

    std::optional<int> define_output(const Node& node, OpView& view, size_t i) {
        const Value* v = node.output(i);
        const TensorType& type = v->type().tensor();
        view.for_output(i);
        const std::vector<Expr> vars = index_vars(type.shape.dims());
        Expr meaning = without_broadcast(node.op().body(view, Indices(vars)), vars, type.shape);
        auto known = [&](int slot) -> const Tensor* {
            const Value* v = node.inputs()[size_t(slot)];
            return v->is_constant() ? &*v->tensor() : nullptr;
        };
        meaning = without_negative_indices(meaning, known);
        if (may_read_of_nothing(node, meaning, type.shape.dims())) check_sizes(node);
        if (machine_.blocks && node.is(Trait::OwnSums)) return define_as(node, i, meaning);
        return define_as(node, i, spell_out_sums(meaning, known, node.is(Trait::OwnSums)));
    }

    // A reduction whose factors stand in a small constant, as a map.
    void spell_out(Definition& r) const {
        auto known = [&](int slot) -> const Tensor* {
            const Value* v = all_.list[size_t(slot)].value;
            return v && v->is_constant() ? &*v->tensor() : nullptr;
        };
        Expr spelled = spell_out_sums(reduce(r.combine, r.reduce, r.body), known, true);
        if (r.reduce.size() == 1 && r.reduce[0].extent.is_int(1))
            spelled = substitute(r.body, {{r.reduce[0].var.node().name, Expr(0)}});
        if (spelled.is(ExprKind::Reduce)) return;
        r.kind = Definition::Kind::Map;
        r.body = spelled;
        r.reduce.clear();
    }

    // An output by the expression of its elements; loads are of inputs, and after those of what was kept.
    std::optional<int> define_as(const Node& node, size_t i, const Expr& meaning, const std::vector<int>& kept = {}) {
        const Value* v = node.output(i);
        const TensorType& type = v->type().tensor();
        const std::vector<Expr> vars = index_vars(type.shape.dims());
        Expr body = widen(resolved(node, meaning, kept));
        for (const std::string& name : free_symbols(body)) {
            auto is_own = [&](const Expr& var) { return var.node().name == name; };
            if (!symbols_.contains(name) && std::none_of(vars.begin(), vars.end(), is_own)) return std::nullopt;
        }
        Definition d;
        d.kind = Definition::Kind::Map;
        d.node = &node;
        d.value = v;
        d.dtype = stored_as(type.dtype);
        d.shape = type.shape.dims();
        AddReduction add_node = [&](Definition r) {
            r.node = &node;
            return add_once(std::move(r));
        };
        AddReduction add_own = [&](Definition r) {
            r.node = &node;
            if (machine_.blocks && node.is(Trait::OwnSums)) spell_out(r);
            const bool whole = !machine_.blocks || is_between_products(r, all_.list);
            return whole ? add_once(std::move(r)) : add_in_parts(std::move(r), add_node);
        };
        // Processors do the same when they make words of bytes (kernel/cpu/words.h).
        AddReduction add_apart = [&](Definition r) { return add_zero_points_apart(std::move(r), add_own); };
        auto lifted = lift_reductions(body, d.axes(), machine_.blocks ? add_apart : add_own);
        if (!lifted) return std::nullopt;
        // A body that is nothing but a reduction over all of its axes.
        if (lifted->is(ExprKind::Load) && lifted->args() == vars && lifted->dtype() == d.dtype) {
            int number = lifted->node().slot;
            Definition& r = all_.list[size_t(number)];
            if (r.has_body() && r.node == &node && !r.value) {
                r.value = v;
                return number;
            }
        }
        d.body = std::move(*lifted);
        return add(std::move(d));
    }

    // Loads by the numbers of definitions; constants that are one number by that number. An index that is read stays
    // within its dimension whatever it is.
    Expr resolved(const Node& node, const Expr& body, const std::vector<int>& kept) {
        const size_t inputs = node.inputs().size();
        Expr bounded = map_loads(body, [&](const Expr& e) -> Expr {
            const size_t slot = size_t(e.node().slot);
            const std::vector<Expr>& shape = slot < inputs ? node.inputs()[slot]->type().tensor().shape.dims()
                                                           : all_.list[size_t(kept[slot - inputs])].shape;
            std::vector<Expr> at = e.args();
            for (size_t d = 0; d < at.size(); ++d)
                if (at[d].node().reads) at[d] = clamp(at[d], 0, shape[d] - 1);
            return load(e.node().slot, e.dtype(), std::move(at));
        });
        return map_loads(bounded, [&](const Expr& e) -> Expr {
            const size_t slot = size_t(e.node().slot);
            if (slot >= inputs) return load(kept[slot - inputs], e.dtype(), e.args());
            const Value* v = node.inputs()[slot];
            if (v->is_constant()) {
                if (auto value = splat(*v->tensor())) return *value;
                if (auto value = progression(*v->tensor(), e.args())) return *value;
            }
            return load(number_of(v), e.dtype(), e.args());
        });
    }

    // Sees before the kernel that nothing is read of what is empty, which is known with sizes and a few numbers.
    void check_sizes(const Node& node) {
        auto checks_it = [&](const HostNode& h) { return h.node == &node && h.check_only; };
        if (std::any_of(all_.hosts.begin(), all_.hosts.end(), checks_it) || indices_stay_inside(node, all_)) return;
        HostNode host{&node, true, {}, {}, {}, "checks sizes"};
        for (const Value* v : node.inputs()) {
            const bool few = v && v->type().tensor().shape.elements().as_int().value_or(INT64_MAX) <= kMaxContents;
            host.inputs.push_back(few && !v->is_constant() ? number_of(v) : -1);
        }
        all_.hosts.push_back(std::move(host));
    }

    // The op's check of contents, now where they are constants; otherwise before the kernel. It looks at some inputs.
    Decision add_check(const Node& node, const std::function<bool(size_t)>& looks_at) {
        // What is written out may look at sizes in its check as well.
        if (!node.op().check || (!kernel_writing(node.op()) && indices_stay_inside(node, all_))) return yes();
        bool constant = true;
        HostNode host{&node, true, {}, {}, {}, "checks indices"};
        for (size_t i = 0; i < node.inputs().size(); ++i) {
            const Value* v = node.inputs()[i];
            bool looked_at = v && looks_at(i);
            constant &= !looked_at || v->is_constant();
            host.inputs.push_back(looked_at ? number_of(v) : -1);
        }
        if (node.op().indexed_axes)
            for (int64_t axis : node.op().indexed_axes(node.view()))
                constant &= node.input(0)->type().tensor().shape[axis].as_int().has_value();
        if (!constant) {
            if (machine_.blocks) host.inputs.push_back(find_outside(node));
            all_.hosts.push_back(std::move(host));
            return yes();
        }
        Status checked = node.op().check(node.view());
        return checked.ok() ? yes() : no("its check fails: {}", checked.error().message());
    }

    // Of many indices, which take long to bring to the processor: whether one is outside, as a number.
    int find_outside(const Node& node) {
        if (!node.op().indexed_axes) return -1;
        const TensorType& indices = node.input(1)->type().tensor();
        const std::vector<int64_t> axes = node.op().indexed_axes(node.view());
        const bool few = indices.shape.elements().as_int().value_or(INT64_MAX) <= kFewIndices;
        if (few || node.input(1)->is_constant() || axes.empty()) return -1;
        Definition d;
        d.kind = Definition::Kind::Reduction;
        d.dtype = DType::i32;
        d.combine = ReduceOp::Max;
        std::vector<Expr> at;
        for (const Expr& extent : indices.shape.dims()) {
            at.push_back(index_var(fmt::format("%r{}", at.size()), extent.as_int()));
            d.reduce.push_back({at.back(), extent});
        }
        const Shape& from = node.input(0)->type().tensor().shape;
        Expr size = from[axes[0]];
        for (size_t k = 1; k < axes.size(); ++k) size = select(eq(at.back(), int64_t(k)), from[axes[k]], size);
        const Expr index = cast(load(number_of(node.input(1)), indices.dtype, at), DType::i64);
        d.body =
            select(logical_and(ge(index, 0 - size), lt(index, size)), constant(0, DType::i32), constant(1, DType::i32));
        return add_in_parts(std::move(d), [&](Definition x) { return add(std::move(x)); });
    }

    // The node as a step of its own that gives its outputs, those that `gives` says.
    void on_host(const Node& node, std::string reason, const std::function<bool(size_t)>& gives = {}) {
        HostNode host{&node, false, {}, {}, {}, std::move(reason)};
        for (const Value* v : node.inputs()) host.inputs.push_back(v ? number_of(v) : -1);
        for (const auto& [name, attr] : node.attrs())
            if (auto* nested = std::get_if<GraphPtr>(&attr)) capture(**nested, host);
        for (size_t i = 0; i < node.output_count(); ++i) {
            const Value* v = node.output(i);
            host.outputs.push_back(-1);
            if (v->uses().empty() || (gives && !gives(i))) continue;
            give(v, &node);
            host.outputs.back() = all_.numbers[v];
            learn_symbols(v->type(), all_.numbers[v]);
        }
        all_.hosts.push_back(std::move(host));
    }

    void capture(const Graph& nested, HostNode& host) {
        auto consider = [&](const Value* v) {
            if (!v || &v->graph() != &graph_) return;
            int number = number_of(v);
            if (std::find(host.captured.begin(), host.captured.end(), number) == host.captured.end())
                host.captured.push_back(number);
        };
        for (const auto& node : nested.nodes()) {
            for (const Value* v : node->inputs()) consider(v);
            for (const auto& [name, attr] : node->attrs())
                if (auto* inner = std::get_if<GraphPtr>(&attr)) capture(**inner, host);
        }
        for (const Value* v : nested.outputs()) consider(v);
    }

    const Graph& graph_;
    const Machine& machine_;
    const bool strict_;
    Definitions all_;
    std::set<std::string> symbols_;
    std::optional<size_t> teller_;   // of the node in progress: its host that defines symbols
    std::vector<std::string> told_;  // by that
};

}  // namespace

Definitions define(const Graph& graph, const Machine& machine, bool strict) {
    return Defining(graph, machine, strict).run();
}

}  // namespace tessera
