#include "graph/evaluate/bind_inputs.h"

namespace tessera {
namespace {

std::string listed(const Graph& graph) {
    std::string out;
    for (const auto& v : graph.inputs()) {
        if (!out.empty()) out += ", ";
        out += fmt::format("{}: {}", v->name(), v->type());
    }
    return out.empty() ? "it takes no inputs" : "it takes " + out;
}

// The number of a GPU other than this one that something of it lies on. Sequences are the processor's.
std::optional<int> gpu_of(const Datum& d, int allowed) {
    if (d.is_tensor()) {
        const int gpu = d.tensor().gpu();
        return gpu == kNoGpu || gpu == allowed ? std::nullopt : std::optional(gpu);
    }
    for (const Datum& item : d.items())
        if (auto gpu = gpu_of(item, kNoGpu)) return gpu;
    return {};
}

// Checks one tensor; symbols that stand alone in a dimension are bound to the size met first.
class Binder {
  public:
    explicit Binder(std::optional<Error>* contradiction) : contradiction_(contradiction) {}

    Status tensor(const Value& v, const Tensor& t) {
        const TensorType& declared = v.type().tensor();
        if (t.dtype() != declared.dtype)
            return Error(Code::E0403, "input \"{}\": expected {}, got {}", v.name(), dtype_name(declared.dtype),
                         dtype_name(t.dtype()))
                .hint("convert it to {} first", dtype_name(declared.dtype));
        if (!declared.shape.ranked()) return {};
        if (t.rank() != declared.rank())
            return Error(Code::E0404, "input \"{}\": expected rank {} ({}), got {}", v.name(), declared.rank(),
                         v.type(), to_string(t.sizes()));
        for (int64_t d = 0; d < t.rank(); ++d) {
            const Dim& dim = declared.shape[d];
            if (dim.is(ExprKind::Var)) {
                auto [at, fresh] = sizes_.try_emplace(dim.node().name, t.size(d));
                if (fresh) origin_.emplace_back(dim.node().name, &v, d);
                if (at->second != t.size(d))
                    TRY(contradicts(wrong_size(v, t, d, at->second)
                                        .hint("{} is {} by {}", dim.node().name, at->second, origin(dim.node().name))));
                continue;
            }
            auto size = evaluate_int(dim, sizes_);
            if (!size || *size == t.size(d)) continue;
            if (dim.as_int()) return wrong_size(v, t, d, *size);
            TRY(contradicts(wrong_size(v, t, d, *size)));
        }
        return {};
    }

    Result<Datum> datum(const Value& v, const Datum& d) {
        const Type& declared = v.type();
        if (declared.is_none()) return d;
        if (declared.is_tensor() && d.is_tensor()) {
            TRY(tensor(v, d.tensor()));
            return d;
        }
        if (declared.is_optional() && !d.is_optional()) return TRY(datum(v, Datum::some(d)));
        SymbolValues ignored;
        if (!binds(declared, type_of(d), ignored) && !(d.items().empty() && !d.is_tensor() && same_kind(declared, d)))
            return Error(Code::E0403, "input \"{}\": expected {}, got {}", v.name(), declared, type_of(d));
        return d;
    }

  private:
    static Error wrong_size(const Value& v, const Tensor& t, int64_t d, int64_t expected) {
        return Error(Code::E0405, "input \"{}\": expected size {} in dimension {} ({}), got {}", v.name(), expected, d,
                     v.type(), to_string(t.sizes()));
    }
    Status contradicts(Error error) {
        if (!contradiction_) return error;
        if (!*contradiction_) *contradiction_ = std::move(error);
        return {};
    }
    static bool same_kind(const Type& t, const Datum& d) {
        return (t.is_sequence() && d.is_sequence()) || (t.is_optional() && d.is_optional());
    }
    std::string origin(std::string_view symbol) const {
        for (const auto& [name, v, d] : origin_)
            if (name == symbol) return fmt::format("dimension {} of \"{}\"", d, v->name());
        return {};
    }

    std::optional<Error>* contradiction_;
    SymbolValues sizes_;
    std::vector<std::tuple<std::string_view, const Value*, int64_t>> origin_;  // where a symbol got its size
};

}  // namespace

Status check_places(const Inputs& inputs, int gpu) {
    for (const auto& [name, datum] : inputs) {
        const auto elsewhere = gpu_of(datum, gpu);
        if (!elsewhere) continue;
        auto wrong = Error(Code::E0701, "input \"{}\" is on GPU {}, but the model runs on {}", name, *elsewhere,
                           gpu == kNoGpu ? "the CPU" : fmt::format("GPU {}", gpu));
        if (gpu == kNoGpu) return std::move(wrong).hint("copy it to the host, or compile for cuda:{}", *elsewhere);
        return std::move(wrong).hint("copy it to GPU {}, or compile for cuda:{}", gpu, *elsewhere);
    }
    return {};
}

Result<std::vector<Datum>> bind_inputs(const Graph& graph, const Inputs& inputs, std::optional<Error>* contradiction) {
    for (const auto& [name, datum] : inputs) {
        bool known = false;
        for (const auto& v : graph.inputs()) known |= v->name() == name;
        if (!known)
            return Error(Code::E0401, "graph \"{}\" has no input \"{}\"", graph.name(), name).hint("{}", listed(graph));
    }
    Binder binder(contradiction);
    std::vector<Datum> bound;
    for (const auto& v : graph.inputs()) {
        auto given = inputs.find(v->name());
        if (given == inputs.end() && !v->tensor())
            return Error(Code::E0402, "input \"{}\" ({}) is not given", v->name(), v->type()).hint("{}", listed(graph));
        bound.push_back(TRY(binder.datum(*v, given == inputs.end() ? Datum(*v->tensor()) : given->second)));
    }
    return bound;
}

}  // namespace tessera
