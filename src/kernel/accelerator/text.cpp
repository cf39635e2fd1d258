// The text form of programs: one instruction a line, `//` comments.
#include <charconv>
#include <map>
#include <sstream>
#include <type_traits>

#include "kernel/accelerator/fields.h"

namespace tessera::accelerator {

namespace {

struct PrintFields {
    std::string& out;

    template <typename T>
    void operator()(std::string_view name, const T& member, int, int) {
        if constexpr (std::is_enum_v<T>)
            out += fmt::format(" {}={}", name, names(member)[size_t(member)]);
        else if constexpr (std::is_same_v<T, bool>)
            out += member ? fmt::format(" {}", name) : "";
        else
            out += fmt::format(" {}={}", name, member);
    }
};

// Leaves out the fields that a default instruction has as well. A default Alu that is printed for comparison has the
// same second operand, so that both have the same fields.
template <typename Op>
void print_op(std::string& out, const Op& op) {
    std::string all, defaults;
    Op plain{};
    if constexpr (std::is_same_v<Op, Alu>) plain.b = op.b;
    PrintFields print_all{all}, print_defaults{defaults};
    fields(op, print_all);
    fields(plain, print_defaults);
    std::istringstream words(all), skipped(defaults);
    std::map<std::string, std::string> default_of;
    for (std::string word; skipped >> word;) default_of[word.substr(0, word.find('='))] = word;
    for (std::string word; words >> word;) {
        const std::string name = word.substr(0, word.find('='));
        const bool always = name == "to" || name == "op" || name == "b";
        if (always || default_of[name] != word) out += " " + word;
    }
}

struct ParseFields {
    std::map<std::string, std::string, std::less<>>& words;  // name to value; taken out when read
    Status& status;

    template <typename T>
    void operator()(std::string_view name, T& member, int, int width) {
        auto it = words.find(name);
        if (it == words.end()) return;
        const std::string value = it->second;
        words.erase(it);
        if constexpr (std::is_enum_v<T>) {
            for (size_t i = 0; i < names(member).size(); ++i)
                if (names(member)[i] == value) {
                    member = T(i);
                    return;
                }
            status = Error(Code::E0301, "expected {} to be one of {}, found \"{}\"", name,
                           fmt::join(names(member), ", "), value);
        } else if constexpr (std::is_same_v<T, bool>) {
            if (!value.empty()) status = Error(Code::E0301, "{} takes no value, found \"{}\"", name, value);
            member = true;
        } else {
            int64_t number = 0;
            const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), number);
            const bool is_signed = std::is_signed_v<T>;
            const int64_t low = is_signed ? -(int64_t(1) << (width - 1)) : 0;
            const int64_t high = (int64_t(1) << (is_signed ? width - 1 : width)) - 1;
            if (failed != std::errc() || end != value.data() + value.size() || number < low || number > high)
                status = Error(Code::E0301, "expected {} to be an integer from {} to {}, found \"{}\"", name, low, high,
                               value);
            member = T(number);
        }
    }
};

template <typename Op>
Result<Instruction> parse_op(std::map<std::string, std::string, std::less<>> words) {
    Instruction made;
    Op op{};
    Status status;
    ParseFields parse{words, status};
    fields(op, parse);
    fields(made.tokens, parse);
    TRY(std::move(status));
    if (!words.empty())
        return Error(Code::E0301, "\"{}\" is not a field of this instruction", words.begin()->first)
            .hint("docs/accelerator.md lists the fields of each instruction");
    made.op = op;
    return made;
}

Result<Instruction> parse_line(std::istringstream& line) {
    std::string opcode, word;
    line >> opcode;
    std::map<std::string, std::string, std::less<>> words;
    while (line >> word) {
        const size_t equals = word.find('=');
        const std::string name = word.substr(0, equals);
        if (!words.emplace(name, equals == std::string::npos ? "" : word.substr(equals + 1)).second)
            return Error(Code::E0301, "{} is given twice", name);
    }
    if (opcode == "load") return parse_op<Load>(std::move(words));
    if (opcode == "store") return parse_op<Store>(std::move(words));
    if (opcode == "gemm") return parse_op<Gemm>(std::move(words));
    if (opcode == "alu") return parse_op<Alu>(std::move(words));
    if (opcode == "finish") return parse_op<Finish>(std::move(words));
    return Error(Code::E0301, "expected load, store, gemm, alu or finish, found \"{}\"", opcode);
}

}  // namespace

std::string to_string(const Instruction& instruction) {
    std::string out(kOpcodes[instruction.op.index() + 1]);
    std::visit([&](const auto& op) { print_op(out, op); }, instruction.op);
    PrintFields print{out};
    fields(instruction.tokens, print);
    return out;
}

std::string to_string(std::span<const Instruction> program) {
    std::string out;
    for (const Instruction& i : program) out += to_string(i) + "\n";
    return out;
}

Result<std::vector<Instruction>> parse_program(const std::string& text, const std::string& source) {
    std::vector<Instruction> program;
    std::istringstream lines(text);
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
        ++number;
        line = line.substr(0, line.find("//"));
        if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
        std::istringstream words(line);
        auto parsed = parse_line(words);
        if (!parsed) return std::move(parsed.error()).at(fmt::format("{}:{}", source, number));
        program.push_back(std::move(*parsed));
    }
    return program;
}

}  // namespace tessera::accelerator
