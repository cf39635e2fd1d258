// Rewrite rules, as written in rules/*.rules (docs/rules.md has the grammar): pattern, replacement, conditions and
// exactness. read_rules checks names, kinds and arity.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "graph/op_def.h"

namespace tessera {

// How far the two sides of a rule may differ.
enum class Exactness {
    Exact,         // bitwise equal for all inputs, including NaN, infinities and signed zeros (but a NaN's payload)
    Reassociates,  // equal over the reals: rounding and the sign of a zero may differ
    Approximates,  // close enough in practice, or for finite inputs only (x * 0 = 0)
};
enum class Precision { Strict, Default, Fast };  // admits Exact; also Reassociates; all
bool admits(Precision precision, Exactness exactness);
std::string_view name_of(Exactness e);  // "exact", "reassociates", "approximates"
std::string_view name_of(Precision p);  // "strict", "default", "fast"

// The evidence for a discovered rule. Handwritten rules are Stated.
enum class Evidence {
    Stated,
    Tested,  // on random graphs only
    Proved,  // for all sizes, with a certificate beside its file
};
std::string_view name_of(Evidence e);  // "stated", "tested", "proved"

// The kind of value that a term denotes.
enum class TermKind { Tensor, Tensors, Int, Ints, Float, Floats, String, Strings, Bool, DType, Attrs, Any };
std::string_view name_of(TermKind kind);

struct RuleFunction;  // functions.h

// One term of a rule. `form` determines which members are used.
struct Term {
    enum class Form {
        Variable,  // x, x? (an optional input), xs... (any number of inputs), _ (anything, not bound)
        Number,    // 2, 0.5, -0.0, inf
        Text,      // "reflect"
        List,      // [1, 0]
        Op,        // y@op.1(args, attribute=term, ..rest)
        Call,      // a function of functions.h; operators too, by their symbol: "+", "==", "and"
    };
    Form form = Form::Variable;
    TermKind kind = TermKind::Any;
    size_t at = 0;                        // offset in the source
    std::string name;                     // of a variable, op or function
    int slot = -1;                        // of a variable: its index in Rule::variables; -1 for _
    bool optional = false, list = false;  // of a variable
    double number = 0;                    // of a number
    bool has_point = false;               // the number was written with a point, an exponent or as inf: floats only
    const OpDef* op = nullptr;
    const RuleFunction* function = nullptr;
    int output = 0;               // of an op: the number of its output
    int bound_slot = -1;          // y@op(...): the variable bound to the op's output
    int rest_slot = -1;           // ..rest: the variable bound to all attributes that are not named
    std::vector<Term> args = {};  // or the elements of a list
    std::vector<std::pair<std::string, Term>> attrs = {};

    int64_t whole() const;  // its number, rounded to the nearest integer
};

struct RuleVariable {
    std::string name;
    TermKind kind = TermKind::Any;
    std::string constraint;  // x:float; empty: none
};

struct Rule {
    std::string name;
    std::string family;  // the name in the file, for a rule of a family (for f in ...)
    Exactness exactness = Exactness::Exact;
    bool grows = false;                      // may add more nodes than it removes
    Evidence evidence = Evidence::Stated;
    std::string comment;                     // the lines above it
    std::string source;                      // file:line:column
    std::vector<RuleVariable> variables;     // by slot
    std::vector<Term> pattern;               // one root, or several (siblings) that share an input
    std::vector<std::pair<int, Term>> lets;  // slot = term, in order
    std::vector<Term> replacement;           // one for each root, or one op with several outputs
    std::vector<Term> conditions;            // all must provably hold
};

using Rules = std::vector<Rule>;

// Parses rules. E0301 for syntax errors, E0302 for unbound variables and unknown names, E0303 for wrong kinds.
Result<Rules> read_rules(std::string_view text, const std::string& source);
Result<Rules> load_rules(const std::string& path);

std::string to_string(const Rule& rule);  // in the rule language
std::string to_string(const Term& term, const Rule& rule);

// The built-in rules by file ("cleanup", "merge", ...), in the order of use. Each file is one rule set.
struct RuleFile {
    std::string_view name, text;
};
const std::vector<RuleFile>& built_in_rule_files();
const Rules& built_in_rules(std::string_view file);

}  // namespace tessera
