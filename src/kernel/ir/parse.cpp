#include <array>
#include <charconv>

#include "expr/text.h"
#include "graph/text/scanner.h"
#include "kernel/ir/compute.h"

namespace tessera {
namespace {

constexpr int kMaxDepth = 200;

class Parser {
  public:
    Parser(std::string_view text, std::string_view source) : text_(text), scan_(text, std::string(source)) {
        names_.variable = [this](const std::string& name) -> std::optional<Expr> {
            auto found = variables_.find(name);
            if (found != variables_.end()) return found->second;
            return any_variable_ ? std::optional(index_var(name, std::nullopt)) : std::nullopt;
        };
        names_.buffer = [this](const std::string& name) -> std::optional<std::pair<int, DType>> {
            auto found = slots_.find(name);
            if (found == slots_.end()) return std::nullopt;
            return std::pair(found->second, kernel_.buffers[static_cast<size_t>(found->second)].dtype);
        };
    }

    Result<std::vector<Kernel>> run() {
        std::vector<Kernel> kernels;
        while (!scan_.done()) kernels.push_back(TRY(kernel()));
        return kernels;
    }

    Result<std::vector<Compute>> computes() {
        std::vector<Compute> all;
        while (!scan_.done()) all.push_back(TRY(compute()));
        return all;
    }

    Result<Compute> only_compute() {
        Compute c = TRY(compute());
        if (!scan_.done()) return scan_.syntax(scan_.at(), "the end");
        return c;
    }

  private:
    Result<Compute> compute() {
        TRY(head("compute"));
        Compute c;
        while (!scan_.take("}")) {
            if (takes_word("halvings")) {
                size_t at = scan_.at();
                Expr number = TRY(expr_of(DType::i64, "a number"));
                if (!number.is_int(1) && !number.is_int(2)) return scan_.syntax(at, "1 or 2");
                c.halvings = static_cast<int>(*number.as_int());
            } else if (takes_word("known")) {
                size_t at = scan_.at();
                std::string buffer = TRY(name("a parameter"));
                auto found = slots_.find(buffer);
                if (found == slots_.end() || static_cast<size_t>(found->second) >= kernel_.params)
                    return scan_.error(at, Code::E0302, "there is no parameter {} here", name_text(buffer));
                c.known.resize(kernel_.params);
                c.known[static_cast<size_t>(found->second)] = true;
            } else if (declares_buffer()) {
                TRY(placed());
            } else {
                c.stages.push_back(TRY(stage()));
            }
        }
        c.name = std::move(kernel_.name);
        c.symbols = std::move(kernel_.symbols);
        c.buffers = std::move(kernel_.buffers);
        c.params = kernel_.params;
        return c;
    }

    std::string_view text_;
    TextScanner scan_;
    ExprNames names_;
    Kernel kernel_;
    std::map<std::string, Expr> variables_;
    std::map<std::string, int> slots_;
    int depth_ = 0;
    bool any_variable_ = false;  // names that mean nothing yet are variables

    Result<Kernel> kernel() {
        TRY(head("kernel"));
        kernel_.body = TRY(block());
        TRY(scan_.expect("}"));
        return std::move(kernel_);
    }

    // Up to the {, which is taken.
    Status head(std::string_view word) {
        kernel_ = {};
        variables_.clear();
        slots_.clear();
        if (!scan_.take_word(word)) return scan_.syntax(scan_.at(), word);
        kernel_.name = TRY(name("its name"));
        TRY(scan_.expect("("));
        while (!scan_.take(")")) {
            if (!kernel_.symbols.empty()) TRY(scan_.expect(","));
            size_t at = scan_.at();
            std::string symbol_name = TRY(name("a size's name"));
            if (!variables_.emplace(symbol_name, symbol(symbol_name)).second) return twice(at, symbol_name);
            kernel_.symbols.push_back(symbol_name);
        }
        TRY(scan_.expect("("));
        while (!scan_.take(")")) {
            if (!kernel_.buffers.empty()) TRY(scan_.expect(","));
            TRY(declaration());
        }
        kernel_.params = kernel_.buffers.size();
        return scan_.expect("{");
    }

    Error twice(size_t at, const std::string& what) {
        return scan_.error(at, Code::E0301, "{} is declared twice", name_text(what));
    }

    Result<std::string> name(std::string_view what) {
        size_t begin = scan_.at(), at = begin;
        std::optional<std::string> found = read_name(text_, at);
        if (!found) return scan_.syntax(begin, what);
        scan_.go_to(at);
        return std::move(*found);
    }

    Result<Expr> expr() {
        ExprText read = parse_expr(text_, scan_.at(), names_);
        if (!read.expr) return scan_.error(read.end, read.undefined ? Code::E0302 : Code::E0301, "{}", read.problem);
        scan_.go_to(read.end);
        return std::move(*read.expr);
    }

    Result<Expr> expr_of(DType dtype, std::string_view what) {
        size_t at = scan_.at();
        Expr e = TRY(expr());
        if (e.dtype() != dtype)
            return scan_.error(at, Code::E0301, "{} is {}, this is {}", what, dtype_name(dtype), dtype_name(e.dtype()));
        return e;
    }

    Result<std::vector<Expr>> indices() {
        TRY(scan_.expect("["));
        std::vector<Expr> list;
        while (!scan_.take("]")) {
            if (!list.empty()) TRY(scan_.expect(","));
            list.push_back(TRY(expr_of(DType::i64, "an index or size")));
        }
        return list;
    }

    // name: dtype[shape] strides [...]
    Result<int> declaration() {
        Buffer b;
        size_t at = scan_.at();
        b.name = TRY(name("a buffer's name"));
        TRY(scan_.expect(":"));
        size_t dtype_at = scan_.at();
        std::optional<DType> dtype = dtype_from_name(scan_.word());
        if (!dtype) return scan_.syntax(dtype_at, "an element type");
        b.dtype = *dtype;
        b.shape = TRY(indices());
        if (scan_.take_word("strides")) b.strides = TRY(indices());
        int slot = static_cast<int>(kernel_.buffers.size());
        if (!slots_.emplace(b.name, slot).second) return twice(at, b.name);
        kernel_.buffers.push_back(std::move(b));
        return slot;
    }

    Result<Access> access() {
        size_t at = scan_.at();
        std::string buffer = TRY(name("a buffer's element"));
        auto found = slots_.find(buffer);
        if (found == slots_.end()) return scan_.error(at, Code::E0302, "there is no buffer {} here", name_text(buffer));
        Access to{found->second, {}};
        to.indices = TRY(indices());
        return to;
    }

    // Up to the } that closes it, which stays.
    Result<Stmt> block() {
        if (++depth_ > kMaxDepth) return scan_.error(scan_.at(), Code::E0301, "loops nested over {} deep", kMaxDepth);
        std::vector<Stmt> stmts;
        while (!scan_.done() && scan_.peek() != '}') stmts.push_back(TRY(statement()));
        --depth_;
        return seq(std::move(stmts));
    }

    Result<Stmt> braced() {
        TRY(scan_.expect("{"));
        Stmt body = TRY(block());
        TRY(scan_.expect("}"));
        return body;
    }

    // A word that begins a statement, unless it is a buffer of that name.
    bool keyword(std::string_view word) {
        size_t begin = scan_.at();
        if (!scan_.take_word(word)) return false;
        if (scan_.peek() != '[') return true;
        scan_.go_to(begin);
        return false;
    }

    Result<Stmt> statement() {
        for (LoopKind kind :
             {LoopKind::Serial, LoopKind::Parallel, LoopKind::Vector, LoopKind::Unrolled, LoopKind::Bound})
            if (keyword(loop_kind_name(kind))) return loop(kind);
        if (keyword("if")) return branch();
        if (keyword("alloc")) return allocation();
        if (keyword("call")) return intrinsic();
        return assignment();
    }

    Result<Stmt> loop(LoopKind kind) {
        For loop;
        loop.kind = kind;
        std::string var = TRY(name("a loop's variable"));
        TRY(scan_.expect("<"));
        loop.extent = TRY(expr_of(DType::i64, "a loop's extent"));
        loop.var = index_var(var, loop.extent.as_int());
        if (scan_.take_word("on")) loop.axis = TRY(name("an axis"));
        if (scan_.take_word("with")) do {
                std::string key = TRY(name("a note's name"));
                TRY(scan_.expect("="));
                size_t at = scan_.at();
                std::string_view digits = scan_.number();
                int64_t value = 0;
                auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
                if (error != std::errc() || end != digits.data() + digits.size()) return scan_.syntax(at, "an integer");
                loop.notes[key] = value;
            } while (scan_.take(","));
        auto [at, fresh] = variables_.emplace(var, loop.var);
        Expr hidden = at->second;
        at->second = loop.var;
        loop.body = TRY(braced());
        if (fresh)
            variables_.erase(var);
        else
            variables_.insert_or_assign(var, hidden);
        return make_stmt(std::move(loop));
    }

    Result<Stmt> branch() {
        If branch;
        branch.condition = TRY(expr_of(DType::boolean, "a condition"));
        branch.then = TRY(braced());
        if (scan_.take_word("else")) branch.otherwise = TRY(braced());
        return make_stmt(std::move(branch));
    }

    // name: dtype[shape] scope
    Result<int> placed() {
        int slot = TRY(declaration());
        size_t at = scan_.at();
        std::string_view word = scan_.word();
        bool known = false;
        for (Scope s : {Scope::Global, Scope::Shared, Scope::Local, Scope::Register}) {
            if (word != scope_name(s)) continue;
            kernel_.buffers[static_cast<size_t>(slot)].scope = s;
            known = true;
        }
        if (!known) return scan_.syntax(at, "a scope: shared, local or register");
        return slot;
    }

    Result<Stmt> allocation() {
        int slot = TRY(placed());
        if (scan_.peek() == '{') return alloc(slot, TRY(braced()));
        return alloc(slot, TRY(block()));
    }

    Result<std::vector<Access>> accesses(std::string_view end) {
        std::vector<Access> all;
        while (!scan_.take(end)) {
            if (!all.empty()) TRY(scan_.expect(","));
            all.push_back(TRY(access()));
        }
        return all;
    }

    // call name(writes; reads; args)
    Result<Stmt> intrinsic() {
        Call call;
        call.name = TRY(name("an intrinsic's name"));
        TRY(scan_.expect("("));
        call.writes = TRY(accesses(";"));
        call.reads = TRY(accesses(";"));
        while (!scan_.take(")")) {
            if (!call.args.empty()) TRY(scan_.expect(","));
            call.args.push_back(TRY(expr()));
        }
        return make_stmt(std::move(call));
    }

    // One of = += *= min= max=
    Result<std::optional<ReduceOp>> sign() {
        constexpr std::array<std::pair<std::string_view, std::optional<ReduceOp>>, 5> kSigns{{{"=", {}},
                                                                                              {"+=", ReduceOp::Sum},
                                                                                              {"*=", ReduceOp::Prod},
                                                                                              {"min=", ReduceOp::Min},
                                                                                              {"max=", ReduceOp::Max}}};
        for (const auto& [text, combine] : kSigns)
            if (scan_.take(text)) return combine;
        return scan_.syntax(scan_.at(), "one of = += *= min= max=");
    }

    Result<Stmt> assignment() {
        Store s;
        s.to = TRY(access());
        s.combine = TRY(sign());
        DType dtype = kernel_.buffers[static_cast<size_t>(s.to.buffer)].dtype;
        s.value = TRY(expr_of(dtype, "what this buffer holds"));
        return make_stmt(std::move(s));
    }

    bool takes_word(std::string_view word) {  // unless it is a name
        size_t begin = scan_.at();
        if (scan_.take_word(word) && scan_.peek() != ':' && !scan_.next_is_word("for")) return true;
        scan_.go_to(begin);
        return false;
    }

    bool declares_buffer() {
        size_t begin = scan_.at();
        bool declares = name("a name").ok() && scan_.take(":");
        std::string_view type = declares ? scan_.word() : "";
        scan_.go_to(begin);
        return declares && dtype_from_name(type) && !slots_.contains(std::string(type));
    }

    // i < M, j < 8
    Result<std::vector<ReduceAxis>> ranges() {
        std::vector<ReduceAxis> axes;
        do {
            size_t at = scan_.at();
            std::string var = TRY(name("an axis"));
            TRY(scan_.expect("<"));
            Expr extent = TRY(expr_of(DType::i64, "an axis's extent"));
            axes.push_back({index_var(var, extent.as_int()), extent});
            if (!variables_.emplace(var, axes.back().var).second) return twice(at, var);
        } while (scan_.take(","));
        return axes;
    }

    // name for axes: buffer[...] += value over axes
    Result<Stage> stage() {
        Stage s;
        std::map<std::string, Expr> sizes = variables_;
        s.name = TRY(name("a stage's name"));
        if (scan_.take_word("for")) s.axes = TRY(ranges());
        TRY(scan_.expect(":"));
        Access to = TRY(access());
        std::optional<ReduceOp> combine = TRY(sign());
        // What is combined over stands behind the value, which is therefore read twice.
        size_t value_at = scan_.at();
        any_variable_ = true;
        Result<Expr> skipped = expr();
        any_variable_ = false;
        if (!skipped.ok()) return std::move(skipped).error();
        const bool over = takes_word("over");
        if (combine && !over) return scan_.syntax(scan_.at(), "over");
        if (over) s.reduce = TRY(ranges());
        s.fold = over && !combine;
        size_t end = scan_.at();
        scan_.go_to(value_at);
        s.value = TRY(expr_of(kernel_.buffers[static_cast<size_t>(to.buffer)].dtype, "what this buffer holds"));
        scan_.go_to(end);
        variables_ = std::move(sizes);
        s.buffer = to.buffer;
        s.store = std::move(to.indices);
        s.combine = combine.value_or(ReduceOp::Sum);
        return s;
    }
};

}  // namespace

Result<std::vector<Kernel>> parse_kernels(std::string_view text, std::string_view source) {
    return Parser(text, source).run();
}

Result<Compute> parse_compute(std::string_view text, std::string_view source) {
    return Parser(text, source).only_compute();
}

Result<std::vector<Compute>> parse_computes(std::string_view text, std::string_view source) {
    return Parser(text, source).computes();
}

}  // namespace tessera
