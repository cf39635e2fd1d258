#include <fmt/format.h>

#include "kernel/ir/text.h"

namespace tessera {
namespace {

class Printer {
  public:
    explicit Printer(const std::vector<Buffer>& buffers) : buffers_(buffers), names_(buffer_names(buffers)) {}

    std::string text;

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
            line(depth, "{} {} {}", access_text(to->to, names_), assignment_text(to->combine), expr(to->value));
        } else if (const Alloc* a = s->as<Alloc>()) {
            allocation(*a, depth, last);
        } else if (const Call* call = s->as<Call>()) {
            line(depth, "call {}({}; {}; {})", name_text(call->name), accesses(call->writes), accesses(call->reads),
                 list_text(call->args, names_));
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

    std::string expr(const Expr& e) const { return to_string(e, names_); }

    std::string accesses(const std::vector<Access>& all) const {
        std::string out;
        for (const Access& a : all) out += (out.empty() ? "" : ", ") + access_text(a, names_);
        return out;
    }

    static std::string notes(const For& loop) {
        std::string out;
        for (const auto& [key, value] : loop.notes)
            out += fmt::format("{}{}={}", out.empty() ? " with " : ", ", name_text(key), value);
        return out;
    }

    void allocation(const Alloc& a, int depth, bool last) {
        std::string what = names_(a.buffer);
        if (a.buffer >= 0 && static_cast<size_t>(a.buffer) < buffers_.size()) {
            const Buffer& b = buffers_[static_cast<size_t>(a.buffer)];
            what = fmt::format("{} {}", declaration(b, names_), scope_name(b.scope));
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

SlotNames buffer_names(const std::vector<Buffer>& buffers) {
    return [&buffers](int slot) {
        if (slot < 0 || static_cast<size_t>(slot) >= buffers.size()) return fmt::format("`#{}`", slot);
        return name_text(buffers[static_cast<size_t>(slot)].name);
    };
}

std::string list_text(const std::vector<Expr>& exprs, const SlotNames& names) {
    std::string out;
    for (const Expr& e : exprs) out += (out.empty() ? "" : ", ") + to_string(e, names);
    return out;
}

std::string declaration(const Buffer& b, const SlotNames& names) {
    std::string out = fmt::format("{}: {}[{}]", name_text(b.name), dtype_name(b.dtype), list_text(b.shape, names));
    if (!b.strides.empty()) out += fmt::format(" strides [{}]", list_text(b.strides, names));
    return out;
}

std::string heading(const std::string& name, const std::vector<std::string>& symbols,
                    const std::vector<Buffer>& buffers, size_t params) {
    SlotNames names = buffer_names(buffers);
    std::string sizes, declared;
    for (const std::string& s : symbols) sizes += (sizes.empty() ? "" : ", ") + name_text(s);
    for (size_t i = 0; i < params && i < buffers.size(); ++i)
        declared += (declared.empty() ? "" : ", ") + declaration(buffers[i], names);
    return fmt::format("{}({}) ({}) {{\n", name_text(name), sizes, declared);
}

std::string access_text(const Access& access, const SlotNames& names) {
    return fmt::format("{}[{}]", names(access.buffer), list_text(access.indices, names));
}

std::string_view assignment_text(const std::optional<ReduceOp>& combine) {
    if (!combine) return "=";
    switch (*combine) {
        case ReduceOp::Sum: return "+=";
        case ReduceOp::Prod: return "*=";
        case ReduceOp::Min: return "min=";
        case ReduceOp::Max: return "max=";
    }
    return "=";
}

std::string to_string(const Stmt& s, const std::vector<Buffer>& buffers) {
    Printer printer(buffers);
    printer.block(s, 0);
    return std::move(printer.text);
}

std::string first_line(const Stmt& s, const std::vector<Buffer>& buffers) {
    std::string all = to_string(s, buffers);
    return all.substr(0, all.find('\n'));
}

std::string to_string(const Kernel& kernel) {
    Printer printer(kernel.buffers);
    printer.text = "kernel " + heading(kernel.name, kernel.symbols, kernel.buffers, kernel.params);
    printer.block(kernel.body, 1);
    return printer.text + "}\n";
}

}  // namespace tessera
