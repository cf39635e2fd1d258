// A tile program as text, for people, tests and models; parse.cpp reads it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "expr/text.h"
#include "tile/program.h"

namespace tessera::tile {
namespace {

class Printer {
  public:
    explicit Printer(const ProgramData& program) : program_(program) {
        for (const Parameter& p : program.parameters) names_[p.value] = name_text(p.name);
    }

    std::string print() {
        std::vector<std::string> parameters;
        for (const Parameter& p : program_.parameters)
            parameters.push_back(fmt::format("{}: {}", name_text(p.name), type(p.value).to_string()));
        text_ = fmt::format("tile {}({}) {{\n", name_text(program_.name), fmt::join(parameters, ", "));
        region(program_.body, 1);
        return text_ + "}\n";
    }

  private:
    const Type& type(int value) const { return program_.types[static_cast<size_t>(value)]; }
    std::string name(int value) const {
        auto found = names_.find(value);
        return found == names_.end() ? fmt::format("%{}", value) : found->second;
    }
    std::string names(const std::vector<int>& values) const {
        std::vector<std::string> all;
        for (int v : values) all.push_back(name(v));
        return fmt::format("{}", fmt::join(all, ", "));
    }
    void region(const Region& r, int depth) {
        const std::string indent(static_cast<size_t>(depth) * 2, ' ');
        for (const Instruction& i : r.instructions) {
            text_ += indent;
            if (!i.outputs.empty()) {
                text_ += names(i.outputs) + ": ";
                std::vector<std::string> types;
                for (int o : i.outputs) types.push_back(type(o).to_string());
                text_ += fmt::format("{} = ", fmt::join(types, ", "));
            }
            text_ += kind_name(i.kind);
            if (!i.word.empty())
                text_ += i.kind == Kind::Print || i.kind == Kind::Assert ? fmt::format(" {:?}", i.word) : " " + i.word;
            if (i.kind == Kind::Map || i.kind == Kind::Constant) text_ += fmt::format(" {{{}}}", body(i));
            text_ += fmt::format("({})", names(i.inputs));
            if (!i.numbers.empty()) text_ += fmt::format(" [{}]", fmt::join(i.numbers, ", "));
            for (const Region& inner : i.regions) {
                text_ += inner.arguments.empty() ? " {\n" : fmt::format(" {{ {} ->\n", names(inner.arguments));
                region(inner, depth + 1);
                text_ += fmt::format("{}  give {}\n{}}}", indent, names(inner.results), indent);
            }
            text_ += "\n";
        }
    }
    std::string body(const Instruction& i) const {
        // x0[] is the element of the first input.
        std::string text = to_string(i.body, [](int slot) { return fmt::format("x{}", slot); });
        for (size_t at = 0; (at = text.find("[]", at)) != std::string::npos;) text.erase(at, 2);
        return text;
    }

    const ProgramData& program_;
    std::map<int, std::string> names_;
    std::string text_;
};

}  // namespace

std::string_view kind_name(Kind kind) {
    constexpr std::string_view kNames[] = {
        "constant",    "arange",   "program_id", "program_count", "map",     "bits",    "offset", "address",
        "pointer_at",  "place_of", "choose",     "broadcast",     "reshape", "permute", "join",   "split",
        "concatenate", "gather",   "flip",       "load",          "store",   "dot",     "reduce", "scan",
        "atomic",      "if",       "for",        "while",         "print",   "assert"};
    return kNames[static_cast<size_t>(kind)];
}

std::string Program::to_string() const { return Printer(*data_).print(); }

}  // namespace tessera::tile
