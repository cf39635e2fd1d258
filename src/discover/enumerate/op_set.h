// What discovery enumerates over, as text: worlds (variables with symbolic shapes and a few assignments of their sizes)
// and templates (terms of the rule language that count as one op each). `taso` and `extended` are such texts; the name
// of an op stands for templates made from its definition.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/type.h"
#include "rewrite/rule.h"

namespace tessera {

// A term over its operands, in the order of the rule's variables.
struct OpTemplate {
    Rule rule;         // replacement[0] is the term; the conditions restrict its operands
    std::string text;  // as it was written
    int operands = 0;
    bool constant = false;     // a leaf: counts as no op, over variables that nothing else uses
    bool commutative = false;  // in its two operands
    const Term& term() const { return rule.replacement[0]; }
};

struct World {
    struct Variable {
        std::string name;
        Shape shape;
        bool hidden = false;  // only constants use it
    };
    struct Constant {
        int op;  // a template
        std::vector<int> variables;
    };
    std::string name;
    std::vector<Variable> variables;
    std::vector<Constant> constants;
    std::vector<SymbolValues> assignments;
};

struct OpSet {
    std::string name;
    std::vector<OpTemplate> templates;
    std::vector<World> worlds;
    uint64_t hash = 0;  // of the text
};

// "taso", "extended", "file.ops", or names of ops with commas. E0501 for an unknown one.
Result<OpSet> find_op_set(const std::string& names);
Result<OpSet> read_op_set(const std::string& name, std::string_view text);

// The named sets' texts.
std::string_view op_set_text(std::string_view name);  // empty if there is none

}  // namespace tessera
