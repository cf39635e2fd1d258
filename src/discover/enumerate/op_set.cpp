#include "discover/enumerate/op_set.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

#include "base/hash.h"
#include "base/nearest.h"

namespace tessera {
namespace {

constexpr const char* kWhatThereIs = "taso, extended, a file that ends in .ops, or names of ops (tessera ops)";

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
    return text;
}

std::vector<std::string> parts_of(std::string_view text, char separator) {
    std::vector<std::string> parts;
    for (size_t at = 0; at <= text.size();) {
        const size_t end = std::min(text.find(separator, at), text.size());
        if (std::string_view part = trimmed(text.substr(at, end - at)); !part.empty()) parts.emplace_back(part);
        at = end + 1;
    }
    return parts;
}

bool is_name(std::string_view text) {
    return !text.empty() && std::isalpha(static_cast<unsigned char>(text[0])) &&
           std::all_of(text.begin(), text.end(),
                       [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; });
}

// What two terms are compared by: a body, of its own or of what it stands for.
Status has_meaning(const OpDef& op) {
    Error error(Code::E0501, "discovery cannot compare what \"{}\" computes: {}", op.name,
                op.has(Trait::Random) ? "it is random" : "it has neither a body nor an expansion");
    if (op.has(Trait::Random)) return std::move(error).hint("leave it out");
    if (op.body || op.expand) return {};
    return std::move(error).hint("leave it out, or define it by a body (docs/add_an_op.md); tessera ops {}", op.name);
}
Status has_meaning(const Term& term) {
    if (term.op) TRY(has_meaning(*term.op));
    for (const Term& arg : term.args) TRY(has_meaning(arg));
    return {};
}

// "x, w: conv(x, w) if rank(x) == 4". The pattern is there to bind the operands.
Result<OpTemplate> read_template(std::string_view line, const std::string& where) {
    constexpr size_t kMostOperands = 3;
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos)
        return Error(Code::E0301, "expected a template of the form \"operands: term\"").at(where);
    std::vector<std::string> operands = parts_of(line.substr(0, colon), ',');
    if (operands.size() > kMostOperands)
        return Error(Code::E0301, "a template takes at most {} operands, not {}", kMostOperands, operands.size())
            .at(where);
    const std::string text(trimmed(line.substr(colon + 1)));
    std::string bind = operands.empty() ? "unused" : fmt::format("{}", fmt::join(operands, ", "));
    Rules rules = TRY(read_rules(fmt::format("t: sum({}) => {}", bind, text), where));
    OpTemplate made;
    made.rule = std::move(rules[0]);
    made.text = text;
    made.operands = static_cast<int>(operands.size());
    const Term& term = made.term();
    if (Status meant = has_meaning(term); !meant.ok()) return std::move(meant).error().at(where);
    auto is_operand = [](const Term& t) { return t.form == Term::Form::Variable; };
    made.commutative = term.op && term.op->has(Trait::Commutative) && term.args.size() == 2 &&
                       is_operand(term.args[0]) && is_operand(term.args[1]);
    return made;
}

Result<Shape> read_shape(std::string_view text, const std::string& where) {
    text = trimmed(text);
    if (text.size() < 2 || text.front() != '[' || text.back() != ']')
        return Error(Code::E0301, "expected a shape such as [m, k], found \"{}\"", text).at(where);
    Shape shape;
    for (const std::string& part : parts_of(text.substr(1, text.size() - 2), ',')) {
        auto dim = parse_dim(part);
        if (!dim) return Error(Code::E0301, "\"{}\" is not a size", part).at(where);
        shape.push_back(*dim);
    }
    return shape;
}

class OpSetReader {
  public:
    OpSetReader(OpSet& set) : set_(set) {}

    // world NAME | sizes m=2 k=3; m=3 k=2 | var x y: [m, k] | constant e: [k, k]: eye_like(e) | op x, y: add(x, y)
    Status line(std::string_view text, const std::string& where) {
        const size_t space = text.find(' ');
        const std::string_view word = text.substr(0, space);
        const std::string_view rest = space == std::string_view::npos ? "" : trimmed(text.substr(space));
        if (word == "op") {
            if (rest.starts_with(":")) return Error(Code::E0301, "an op takes operands: op x, y: add(x, y)").at(where);
            set_.templates.push_back(TRY(read_template(rest, where)));
            return {};
        }
        if (word == "world") {
            if (!is_name(rest)) return Error(Code::E0301, "\"{}\" is not a valid name for a world", rest).at(where);
            for (const World& w : set_.worlds)
                if (w.name == rest) return Error(Code::E0301, "there are two worlds named \"{}\"", rest).at(where);
            set_.worlds.emplace_back().name = rest;
            return {};
        }
        if (set_.worlds.empty()) return Error(Code::E0301, "\"{}\" precedes the first world", word).at(where);
        World& world = set_.worlds.back();
        if (word == "sizes") return sizes(world, rest, where);
        if (word == "var") {
            const size_t colon = rest.find(':');
            if (colon == std::string_view::npos) return Error(Code::E0301, "a variable needs a shape").at(where);
            Shape shape = TRY(read_shape(rest.substr(colon + 1), where));
            for (std::string& name : parts_of(rest.substr(0, colon), ' ')) TRY(add_variable(world, name, shape, where));
            return {};
        }
        if (word == "constant") return constant(world, rest, where);
        return Error(Code::E0301, "expected world, sizes, var, constant or op, found \"{}\"", word).at(where);
    }

  private:
    OpSet& set_;

    static Status add_variable(World& world, const std::string& name, const Shape& shape, const std::string& where,
                               bool hidden = false) {
        if (!is_name(name)) return Error(Code::E0301, "\"{}\" is not a valid name for a variable", name).at(where);
        for (const World::Variable& v : world.variables)
            if (v.name == name) return Error(Code::E0301, "there are two variables named \"{}\"", name).at(where);
        world.variables.push_back({name, shape, hidden});
        return {};
    }

    Status sizes(World& world, std::string_view text, const std::string& where) {
        for (const std::string& assignment : parts_of(text, ';')) {
            SymbolValues values;
            for (const std::string& part : parts_of(assignment, ' ')) {
                const size_t equals = part.find('=');
                int64_t value = 0;
                const char* end = part.data() + part.size();
                if (equals == std::string::npos || std::from_chars(part.data() + equals + 1, end, value).ptr != end ||
                    value < 1)
                    return Error(Code::E0301, "expected a size such as m=2, found \"{}\"", part).at(where);
                values[part.substr(0, equals)] = value;
            }
            world.assignments.push_back(std::move(values));
        }
        return {};
    }

    // "e: [k, k]: eye_like(e)" or ": 1.0"
    Status constant(World& world, std::string_view text, const std::string& where) {
        World::Constant made;
        std::string name;
        const size_t first = text.find(':'), last = text.rfind(':');
        if (first == std::string_view::npos)
            return Error(Code::E0301, "expected a constant of the form \"variable: shape: term\"").at(where);
        if (first != last) {
            name = trimmed(text.substr(0, first));
            Shape shape = TRY(read_shape(text.substr(first + 1, last - first - 1), where));
            made.variables.push_back(static_cast<int>(world.variables.size()));
            TRY(add_variable(world, name, shape, where, true));
        }
        const std::string line = fmt::format("{}: {}", name, text.substr(last + 1));
        OpTemplate term = TRY(read_template(line, where));
        term.constant = true;
        made.op = static_cast<int>(set_.templates.size());
        set_.templates.push_back(std::move(term));
        world.constants.push_back(std::move(made));
        return {};
    }
};

// ---- templates from an op's definition

struct AttrChoice {
    std::string name;                // of an attribute; empty for an input
    std::vector<std::string> texts;  // values to try; an empty one leaves it out
};

std::vector<std::string> values_of(const AttrDef& attr) {
    std::vector<std::string> values;
    if (!attr.is_required) values.push_back("");
    if (attr.name == "axis") return {"0", "1", "2"};
    if (attr.name == "axes") return {"[0]", "[1]"};
    if (attr.name == "perm") return {"[1, 0]", "[0, 2, 1]", "[1, 0, 2]", "[0, 1, 3, 2]"};
    if (attr.name == "keepdims") return {"0", "1"};
    if (attr.name == "kernel_shape" && attr.is_required) return {"[3, 3]", "[2, 2]"};
    if (attr.name == "pads") values.push_back("[1, 1, 1, 1]");
    if (attr.name == "strides") values.push_back("[2, 2]");
    if (attr.name == "group") values.push_back("2");
    if (!attr.is_required) return values;
    if (attr.kind == AttrKind::Int) return {"0", "1", "2"};
    if (attr.kind == AttrKind::Float) return {"0.5", "2.0"};
    if (attr.kind == AttrKind::Ints) return {"[0]", "[1]", "[1, 1]", "[2, 2]"};
    return values;
}

bool takes_floats(const OpDef& op, const std::string& type) {
    if (type == "f32") return true;
    for (const TypeVar& t : op.types)
        if (t.name == type) return t.allowed.has(DType::f32);
    return false;
}

// All combinations of its operands and the small domains of its attributes; what does not type-check is never used.
Status add_templates(const OpDef& op, OpSet& set) {
    TRY(has_meaning(op));
    std::vector<std::string> operands;
    std::vector<AttrChoice> choices;
    for (const ParamDef& in : op.inputs) {
        if (in.optional) continue;
        if (takes_floats(op, in.type)) {
            for (int copies = in.variadic ? 2 : 1; copies > 0; --copies) {
                operands.push_back(fmt::format("x{}", operands.size()));
                choices.push_back({"", {operands.back()}});
            }
        } else {
            choices.push_back({"", {"[0]", "[1]", "[0, 1]", "[1, 1]"}});
        }
    }
    if (operands.empty() || operands.size() > 3)
        return Error(Code::E0501, "{} takes {} tensors of floats, not 1 to 3", op.name, operands.size());
    for (const AttrDef& attr : op.attrs) {
        std::vector<std::string> values = values_of(attr);
        if (values.empty())
            return Error(Code::E0501, "{} needs the attribute {}, which has no small set of values", op.name,
                         attr.name);
        choices.push_back({attr.name, std::move(values)});
    }
    std::vector<size_t> at(choices.size(), 0);
    for (int made = 0; made < 64; ++made) {
        std::string inside;
        for (size_t i = 0; i < choices.size(); ++i) {
            const std::string& value = choices[i].texts[at[i]];
            if (value.empty()) continue;
            inside += inside.empty() ? "" : ", ";
            inside += choices[i].name.empty() ? value : fmt::format("{}={}", choices[i].name, value);
        }
        Result<OpTemplate> t =
            read_template(fmt::format("{}: {}({})", fmt::join(operands, ", "), op.name, inside), op.name);
        if (t.ok()) set.templates.push_back(std::move(*t));
        size_t i = 0;
        while (i < at.size() && ++at[i] == choices[i].texts.size()) at[i++] = 0;
        if (i == at.size()) break;
    }
    return {};
}

}  // namespace

Result<OpSet> read_op_set(const std::string& name, std::string_view text) {
    OpSet set;
    set.name = name;
    OpSetReader reader(set);
    int number = 0;
    for (size_t at = 0; at < text.size(); ++number) {
        const size_t end = std::min(text.find('\n', at), text.size());
        std::string_view line = text.substr(at, end - at);
        line = trimmed(line.substr(0, line.find("//")));
        at = end + 1;
        set.hash = mix(set.hash, hash_bytes(line.data(), line.size()));
        if (!line.empty()) TRY(reader.line(line, fmt::format("{}:{}", name, number + 1)));
    }
    for (const World& world : set.worlds) {
        if (world.assignments.empty()) return Error(Code::E0301, "world \"{}\" assigns no sizes", world.name).at(name);
        for (const World::Variable& v : world.variables)
            for (const Dim& d : v.shape)
                for (const SymbolValues& sizes : world.assignments)
                    if (!evaluate_int(d, sizes))
                        return Error(Code::E0302, "the size {} of {} is not assigned", to_string(d), v.name).at(name);
    }
    return set;
}

namespace {

Result<OpSet> set_named(const std::string& names) {
    if (std::string_view text = op_set_text(names); !text.empty()) return read_op_set(names, text);
    if (names.ends_with(".ops")) {
        std::ifstream file(names, std::ios::binary);
        if (!file) return Error(Code::E0101, "cannot open \"{}\"", names);
        std::stringstream text;
        text << file.rdbuf();
        return read_op_set(names, text.str());
    }
    OpSet set = TRY(read_op_set(names, op_set_text("worlds")));
    for (const std::string& name : parts_of(names, ',')) {
        const OpDef* op = find_op(name);
        if (!op) {
            std::vector<std::string_view> known{"taso", "extended"};
            for (const OpDef* o : all_ops()) known.push_back(o->name);
            Error error(Code::E0501, "there is no op and no set of ops named \"{}\"", name);
            if (std::string near = nearest(name, known); !near.empty())
                return std::move(error).hint("did you mean \"{}\"?", near);
            return std::move(error).hint("{}", kWhatThereIs);
        }
        TRY(add_templates(*op, set));
        set.hash = mix(set.hash, hash_bytes(name.data(), name.size()));
    }
    return set;
}

}  // namespace

Result<OpSet> find_op_set(const std::string& names) {
    OpSet set = TRY(set_named(names));
    const bool some =
        std::any_of(set.templates.begin(), set.templates.end(), [](const auto& t) { return !t.constant; });
    if (!some) return Error(Code::E0501, "\"{}\" names no op", names).hint("{}", kWhatThereIs);
    const bool filled =
        std::any_of(set.worlds.begin(), set.worlds.end(), [](const World& w) { return !w.variables.empty(); });
    if (!filled) return Error(Code::E0301, "there is no world with variables").at(names);
    return set;
}

}  // namespace tessera
