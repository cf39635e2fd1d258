// A unit under a division of its variables: what each rank computes, reads and makes, and the seconds that computation
// and the way of the result to where it is wanted take.
#pragma once

#include "shard/access.h"
#include "shard/rates.h"

namespace tessera::shard {

using Division = std::vector<std::vector<size_t>>;  // the axes of each variable

// Operations of a body: so many for each point of the ranges of some variables.
struct Work {
    std::vector<size_t> variables;
    double operations = 0;
};
std::vector<Work> work_of(const Expr& body, const std::vector<Variable>& variables);
double operations_in(const std::vector<Work>& work, const Ranges& ranges);
bool has_reduction(const Expr& body);

struct Divided {
    Division division;
    std::vector<Ranges> ranges;                       // by rank
    Placement made;                                   // of the result
    std::vector<std::pair<size_t, Placement>> needs;  // by slot: the hull of what is read
    std::vector<size_t> partial;                      // axes along which ranks have terms
    double seconds = 0;                               // of computation
};

// Divides one unit, which has a body, in many ways.
class UnitDivider {
  public:
    UnitDivider(const Unit& unit, const Mesh& mesh, const Rates& rates);

    Divided divide(const Division& division) const;
    // From where the result is made to where it is wanted, terms combined.
    double result_seconds(const Divided& divided, const Placement& wanted) const;
    // Of an operand, from where it is to what is read.
    double operand_seconds(size_t slot, const Placement& from, const Placement& need) const;
    // Divisions by axes of more than one rank, each dividing a variable that is long enough, or none.
    std::vector<Division> divisions() const;
    double operations() const { return operations_in(work_, whole_ranges(unit_)); }

  private:
    const Unit& unit_;
    const Mesh& mesh_;
    const Rates& rates_;
    std::vector<size_t> slots_;
    std::vector<Work> work_;
    bool reads_memory_ = false;
};

std::vector<size_t> slots_of(const std::vector<Read>& reads);
std::vector<Ranges> ranges_of(const std::vector<Variable>& variables, const Division& division, const Mesh& mesh);
Placement result_boxes(const std::vector<Variable>& variables, const std::vector<Ranges>& ranges);
// The hull of what the reads of a slot need.
Placement needs_of(const std::vector<Read>& reads, size_t slot, const Sizes& sizes,
                   const std::vector<Variable>& variables, const std::vector<Ranges>& ranges);
bool has_axis(const Expr& reduction, const Variable& variable);

}  // namespace tessera::shard
