#include "graph/gradient/tensor_expression.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "expr/text.h"
#include "onnx/dtypes.h"

namespace tessera {
namespace {

constexpr uint32_t kDeepest = 160;  // of what is printed, so that it can be read again

// Every reduction's variables under names that the text gives no other meaning.
class Renaming {
  public:
    Expr rename(const Expr& e) {
        if (auto known = done_.find(e.get()); known != done_.end()) return known->second.second;
        Expr made = e;
        if (e.is(ExprKind::Reduce)) {
            std::vector<ReduceAxis> axes;
            Bindings fresh;
            for (const ReduceAxis& axis : e.node().axes) {
                const Expr extent = substitute(axis.extent, fresh);
                axes.push_back({index_var("r" + std::to_string(next_++), extent.as_int()), extent});
                fresh.insert_or_assign(axis.var.node().name, axes.back().var);
            }
            made = reduce(e.node().reduce_op, axes, rename(substitute(e.arg(0), fresh)));
        } else if (e.node().reads && !e.args().empty()) {
            std::vector<Expr> args;
            for (const Expr& a : e.args()) args.push_back(rename(a));
            made = with_args(e, std::move(args));
        }
        done_.emplace(e.get(), std::pair(e, made));
        return made;
    }

  private:
    std::unordered_map<const ExprNode*, std::pair<Expr, Expr>> done_;  // keeps what it was, so that addresses stay
    int next_ = 0;
};

// The inputs that a body loads, numbered anew, and names for the sizes that it mentions.
class Naming {
  public:
    Naming(Builder& b, const std::vector<Value*>& inputs) : b_(b), all_(inputs) {}

    Expr number_loads(const Expr& body) {
        return map_loads(
            body, [&](const Expr& l) { return load(slot_of(all_[size_t(l.node().slot)]), l.dtype(), l.args()); });
    }

    // Sizes as those of an input that has them, or else as an element of some input's shape.
    Bindings name_sizes(const std::vector<std::string>& symbols) {
        Bindings names;
        for (const std::string& name : symbols) {
            auto found = place_of(used_, name);
            if (found) {
                names.emplace(name, symbol(fmt::format("x{}.d{}", found->first, found->second)));
                continue;
            }
            found = place_of(all_, name);
            if (!found) {
                b_.fail(Error(Code::E0202, "Gradient: the size {} is not a dimension of an input", name));
                return names;
            }
            Value* shape = b_.op("shape", {all_[found->first]});
            if (b_.failed()) return names;
            names.emplace(name, symbol(fmt::format("x{}.v{}", slot_of(shape), found->second)));
        }
        return names;
    }

    const std::vector<Value*>& used() const { return used_; }

  private:
    int slot_of(Value* v) {
        auto known = std::find(used_.begin(), used_.end(), v);
        if (known == used_.end()) known = used_.insert(known, v);
        return int(known - used_.begin());
    }

    static std::optional<std::pair<size_t, int64_t>> place_of(const std::vector<Value*>& values,
                                                              const std::string& name) {
        for (size_t i = 0; i < values.size(); ++i) {
            if (!values[i] || !values[i]->type().is_tensor()) continue;
            const Shape& shape = values[i]->type().tensor().shape;
            for (int64_t d = 0; d < shape.rank(); ++d)
                if (shape[d].is(ExprKind::Var) && shape[d].node().name == name) return std::pair(i, d);
        }
        return {};
    }

    Builder& b_;
    const std::vector<Value*>& all_;
    std::vector<Value*> used_;
};

std::string text_of(const Expr& e) {
    return to_string(e, [](int slot) { return fmt::format("x{}", slot); });
}

// x3.d1: 3, 'd', 1.
struct SizeName {
    size_t input, number;
    char kind;
};
std::optional<SizeName> parse_size_name(const std::string& name) {
    SizeName out{};
    const char *at = name.data() + 1, *end = name.data() + name.size();
    if (name.size() < 5 || name[0] != 'x') return {};
    auto [dot, error] = std::from_chars(at, end, out.input);
    if (error != std::errc() || end - dot < 3 || *dot != '.' || (dot[1] != 'd' && dot[1] != 'v')) return {};
    out.kind = dot[1];
    auto [last, error_too] = std::from_chars(dot + 2, end, out.number);
    return error_too == std::errc() && last == end ? std::optional(out) : std::nullopt;
}

std::optional<size_t> number_after(char letter, const std::string& name) {
    size_t n = 0;
    if (name.size() < 2 || name[0] != letter) return {};
    auto [last, error] = std::from_chars(name.data() + 1, name.data() + name.size(), n);
    return error == std::errc() && last == name.data() + name.size() ? std::optional(n) : std::nullopt;
}

}  // namespace

Value* tensor_expression(Builder& b, const std::vector<Value*>& inputs, const Expr& body,
                         const std::vector<ReduceAxis>& axes) {
    if (b.failed()) return nullptr;
    std::vector<Expr> at, sizes;
    Bindings indices;
    for (const ReduceAxis& axis : axes) {
        at.push_back(axis.var);
        sizes.push_back(axis.extent);
        indices.emplace(axis.var.node().name, index_var(fmt::format("i{}", indices.size()), axis.extent.as_int()));
    }
    if (body.is(ExprKind::Load) && body.args() == at) {
        Value* whole = inputs[size_t(body.node().slot)];
        if (whole->type().tensor().shape.dims() == sizes) return whole;
    }
    Naming naming(b, inputs);
    Expr named = naming.number_loads(Renaming().rename(substitute(body, indices)));
    std::vector<std::string> symbols = free_symbols(named);
    for (const Expr& size : sizes)
        for (std::string& name : free_symbols(size)) symbols.push_back(std::move(name));
    std::erase_if(symbols, [&](const std::string& name) {
        auto own = number_after('i', name);
        return own && *own < axes.size();
    });
    const Bindings names = naming.name_sizes(symbols);
    if (b.failed()) return nullptr;
    named = substitute(named, names);
    if (named.node().depth > kDeepest) {
        b.fail(Error(Code::E0202, "Gradient: an expression nested {} deep", named.node().depth));
        return nullptr;
    }
    std::vector<std::string> shape;
    for (const Expr& size : sizes) shape.push_back(text_of(substitute(size, names)));
    return b.op("tensor_expression", naming.used(),
                {{"body", Attr(text_of(named))},
                 {"dtype", Attr(int64_t{onnx::dtype_to_onnx(body.dtype())})},
                 {"shape", Attr(shape)}});
}

Result<Expr> read_tensor_expression(const OpView& op, const std::string& text, const Indices* at) {
    std::optional<Error> wrong;
    ExprNames names;
    names.variable = [&](const std::string& name) -> std::optional<Expr> {
        if (auto i = number_after('i', name)) {
            if (!at || int64_t(*i) >= at->rank()) return {};
            return (*at)[int64_t(*i)];
        }
        auto size = parse_size_name(name);
        if (!size || !op.has(size->input) || !op.type(size->input).is_tensor()) return {};
        if (size->kind == 'd') {
            const Shape& shape = op.shape(size->input);
            if (int64_t(size->number) >= shape.rank()) return {};
            return shape[int64_t(size->number)];
        }
        auto contents = op.contents(size->input);
        if (!contents) return symbol(fmt::format("{}.{}", op.def().name, name));
        if (size->number >= contents->size()) return {};
        return (*contents)[size->number];
    };
    names.buffer = [&](const std::string& name) -> std::optional<std::pair<int, DType>> {
        auto i = number_after('x', name);
        if (!i || !op.has(*i) || !op.type(*i).is_tensor()) return {};
        return std::pair(int(*i), op.dtype(*i));
    };
    ExprText read = parse_expr(text, 0, names);
    if (!read.expr || read.end != text.size())
        return op.error(Code::E0212, "\"{}\" cannot be read at character {}: {}", text, read.end,
                        read.problem.empty() ? "something follows" : read.problem);
    bool ranks_fit = true;
    visit(*read.expr, [&](const Expr& e) {
        if (e.is(ExprKind::Load)) ranks_fit &= int64_t(e.args().size()) == op.rank(size_t(e.node().slot));
    });
    if (!ranks_fit)
        return op.error(Code::E0212, "\"{}\" reads an input with indices that are not its dimensions", text);
    return *read.expr;
}

}  // namespace tessera
