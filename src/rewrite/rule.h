// A rewrite rule as it is written in rules/*.rules (docs/rules.md has the grammar): a pattern, what replaces it, the
// condition, and how exact it is. read_rules checks names, kinds and arity, so that what follows need not.
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
    Exact,         // the same bits for every input, NaN, infinities and signed zeros included (a NaN's payload aside)
    Reassociates,  // the same function of real numbers: rounding and the sign of a zero may differ, for finite values
    Approximates,  // within a bound that users accept in practice, or only for finite inputs (x * 0 = 0)
};
enum class Precision { Strict, Default, Fast };  // admits Exact; also Reassociates; all
bool admits(Precision precision, Exactness exactness);
std::string_view name_of(Exactness e);  // "exact", "reassociates", "approximates"
std::string_view name_of(Precision p);  // "strict", "default", "fast"

// What is known of a rule that was found: nothing is said of one that was written by hand.
enum class Evidence {
    Stated,
    Tested,  // on random graphs only
    Proved,  // for all sizes, with a certificate beside its file
};
std::string_view name_of(Evidence e);  // "stated", "tested", "proved"

// What a term stands for.
enum class TermKind { Tensor, Tensors, Int, Ints, Float, Floats, String, Strings, Bool, DType, Attrs, Any };
std::string_view name_of(TermKind kind);

struct RuleFunction;  // functions.h

// One term of a rule. Which members count depends on `form`.
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
    size_t at = 0;                        // its place in the source
    std::string name;                     // of a variable, op or function
    int slot = -1;                        // of a variable: its place among the rule's variables; -1 for _
    bool optional = false, list = false;  // of a variable
    double number = 0;                    // of a number
    bool has_point = false;               // the number was written with a point, an exponent or as inf: floats only
    const OpDef* op = nullptr;
    const RuleFunction* function = nullptr;
    int output = 0;               // of an op: which of its outputs
    int bound_slot = -1;          // y@op(...): the variable that gets the op's output
    int rest_slot = -1;           // ..rest: all attributes that are not named
    std::vector<Term> args = {};  // also a list's elements
    std::vector<std::pair<std::string, Term>> attrs = {};

    int64_t whole() const;  // its number as an integer: the nearest that there is
};

struct RuleVariable {
    std::string name;
    TermKind kind = TermKind::Any;
    std::string constraint;  // x:float; empty where there is none
};

struct Rule {
    std::string name;
    std::string family;  // the name in the file, where it stands for several ops (for f in ...)
    Exactness exactness = Exactness::Exact;
    bool grows = false;                      // it may leave more nodes than it takes
    Evidence evidence = Evidence::Stated;
    std::string comment;                     // the lines above it
    std::string source;                      // file:line:column
    std::vector<RuleVariable> variables;     // by slot
    std::vector<Term> pattern;               // one root, or several that share an input
    std::vector<std::pair<int, Term>> lets;  // slot = term, in order
    std::vector<Term> replacement;           // as many as roots; one op with several outputs may stand for all
    std::vector<Term> conditions;            // all must be known to hold
};

using Rules = std::vector<Rule>;

// Rules by text. E0301 syntax, E0302 an unbound variable or unknown name, E0303 kinds that clash; with line and column.
Result<Rules> read_rules(std::string_view text, const std::string& source);
Result<Rules> load_rules(const std::string& path);

std::string to_string(const Rule& rule);  // as it could be written in a file
std::string to_string(const Term& term, const Rule& rule);

// The rules that come with Tessera, by file: "cleanup", "merge", ... Each file is one rule set, in the order of use.
struct RuleFile {
    std::string_view name, text;
};
const std::vector<RuleFile>& built_in_rule_files();
const Rules& built_in_rules(std::string_view file);

}  // namespace tessera
