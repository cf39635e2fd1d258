#include <fmt/format.h>

#include "expr/text.h"
#include "kernel/kernel.h"

namespace tessera {
namespace {

std::string_view assignment(const std::optional<ReduceOp>& combine) {
    if (!combine) return "=";
    switch (*combine) {
        case ReduceOp::Sum: return "+=";
        case ReduceOp::Prod: return "*=";
        case ReduceOp::Min: return "min=";
        case ReduceOp::Max: return "max=";
    }
    return "=";
}

class Printer {
  public:
    explicit Printer(const std::vector<Buffer>& buffers)
        : buffers_(buffers), names_([this](int slot) { return buffer_name(slot); }) {}

    std::string text;

    std::string expr(const Expr& e) const { return to_string(e, names_); }

    std::string list(const std::vector<Expr>& exprs) const {
        std::string out;
        for (const Expr& e : exprs) out += (out.empty() ? "" : ", ") + expr(e);
        return out;
    }

    std::string declaration(const Buffer& b) const {
        std::string out = fmt::format("{}: {}[{}]", name_text(b.name), dtype_name(b.dtype), list(b.shape));
        if (!b.strides.empty()) out += fmt::format(" strides [{}]", list(b.strides));
        return out;
    }

    void block(const Stmt& s, int depth) {
        if (!s) return;
        const Seq* list = s->as<Seq>();
        if (!list) return statement(s, depth, true);
        for (size_t i = 0; i < list->stmts.size(); ++i) statement(list->stmts[i], depth, i + 1 == list->stmts.size());
    }

    // The last of a block needs no brackets around what an Alloc holds.
    void statement(const Stmt& s, int depth, bool last) {
        if (!s) return;
        if (s->as<Seq>()) {
            block(s, depth);
        } else if (const For* loop = s->as<For>()) {
            line(depth, "{} {} < {}{}{} {{", loop_kind_name(loop->kind), expr(loop->var), expr(loop->extent),
                 loop->axis.empty() ? "" : " on " + name_text(loop->axis), notes(*loop));
            block(loop->body, depth + 1);
            line(depth, "}}");
        } else if (const If* branch = s->as<If>()) {
            line(depth, "if {} {{", expr(branch->condition));
            block(branch->then, depth + 1);
            if (branch->otherwise) {
                line(depth, "}} else {{");
                block(branch->otherwise, depth + 1);
            }
            line(depth, "}}");
        } else if (const Store* to = s->as<Store>()) {
            line(depth, "{} {} {}", access(to->to), assignment(to->combine), expr(to->value));
        } else if (const Alloc* a = s->as<Alloc>()) {
            allocation(*a, depth, last);
        } else if (const Call* call = s->as<Call>()) {
            line(depth, "call {}({}; {}; {})", name_text(call->name), accesses(call->writes), accesses(call->reads),
                 list(call->args));
        }
    }

  private:
    const std::vector<Buffer>& buffers_;
    SlotNames names_;

    template <typename... Args>
    void line(int depth, fmt::format_string<Args...> format, Args&&... args) {
        text.append(static_cast<size_t>(depth) * 2, ' ');
        text += fmt::format(format, std::forward<Args>(args)...);
        text += '\n';
    }

    std::string buffer_name(int slot) const {
        if (slot < 0 || static_cast<size_t>(slot) >= buffers_.size()) return fmt::format("`#{}`", slot);
        return name_text(buffers_[static_cast<size_t>(slot)].name);
    }

    std::string access(const Access& a) const { return fmt::format("{}[{}]", buffer_name(a.buffer), list(a.indices)); }

    std::string accesses(const std::vector<Access>& all) const {
        std::string out;
        for (const Access& a : all) out += (out.empty() ? "" : ", ") + access(a);
        return out;
    }

    static std::string notes(const For& loop) {
        std::string out;
        for (const auto& [key, value] : loop.notes)
            out += fmt::format("{}{}={}", out.empty() ? " with " : ", ", name_text(key), value);
        return out;
    }

    void allocation(const Alloc& a, int depth, bool last) {
        bool known = a.buffer >= 0 && static_cast<size_t>(a.buffer) < buffers_.size();
        std::string what = buffer_name(a.buffer);
        if (known) {
            const Buffer& b = buffers_[static_cast<size_t>(a.buffer)];
            what = fmt::format("{} {}", declaration(b), scope_name(b.scope));
        }
        if (last) {
            line(depth, "alloc {}", what);
            block(a.body, depth);
            return;
        }
        line(depth, "alloc {} {{", what);
        block(a.body, depth + 1);
        line(depth, "}}");
    }
};

}  // namespace

std::string to_string(const Kernel& kernel) {
    Printer printer(kernel.buffers);
    std::string symbols, params;
    for (const std::string& s : kernel.symbols) symbols += (symbols.empty() ? "" : ", ") + name_text(s);
    for (size_t i = 0; i < kernel.params && i < kernel.buffers.size(); ++i)
        params += (params.empty() ? "" : ", ") + printer.declaration(kernel.buffers[i]);
    printer.text = fmt::format("kernel {}({}) ({}) {{\n", name_text(kernel.name), symbols, params);
    printer.block(kernel.body, 1);
    return printer.text + "}\n";
}

}  // namespace tessera
