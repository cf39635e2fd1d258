// The terms of one world: variables, constants and applications of templates to representatives, with their values in
// every assignment of sizes. A class is what has one fingerprint; its first term is its representative.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "discover/enumerate/field_program.h"
#include "discover/enumerate/op_set.h"

namespace tessera {

using TermId = uint32_t;
inline constexpr TermId kNoTerm = UINT32_MAX;
inline constexpr uint16_t kVariableOp = UINT16_MAX;

struct TermNode {
    uint16_t op = kVariableOp;  // a template; or a variable, whose number is args[0]
    uint16_t shape = 0;
    std::array<TermId, 3> args = {kNoTerm, kNoTerm, kNoTerm};
    bool operator==(const TermNode& o) const { return op == o.op && args == o.args; }
    bool operator<(const TermNode& o) const { return op != o.op ? op < o.op : args < o.args; }
};

struct Fingerprint {
    uint64_t high = 0, low = 0;
    bool operator==(const Fingerprint&) const = default;
    auto operator<=>(const Fingerprint&) const = default;
};

// A shape over symbols, with its sizes in each assignment.
struct WorldShape {
    Shape shape;
    std::vector<Sizes> sizes;
    std::vector<int64_t> begins;  // of each assignment's elements among all
    int64_t elements = 0;         // in all assignments together
    uint16_t id = 0;              // in the order in which shapes came up: not the same in every run
    uint64_t hash = 0;            // of the shape, the same in every run
};

// A template on operands of given shapes.
struct Applied {
    bool valid = false;
    int operands = 0;
    const WorldShape* shape = nullptr;
    std::array<const WorldShape*, 3> inputs = {};
    std::vector<FieldProgram> programs;  // by assignment
};

// What evaluates terms of one world. Shapes and programs are made where they are first needed, by any thread.
class WorldEvaluator {
  public:
    WorldEvaluator(const OpSet& set, const World& world, uint64_t seed, int64_t max_elements);

    const OpSet& set() const { return set_; }
    const World& world() const { return world_; }
    const WorldShape& shape(uint16_t id) const;
    std::optional<uint16_t> shape_id(const Shape& shape);

    // Null where the template does not take operands of these shapes.
    const Applied* apply(uint16_t op, const uint16_t* shapes);

    // The result's values from the operands'; false where it divided by zero.
    bool run(const Applied& applied, const uint64_t* const* inputs, uint64_t* out,
             std::vector<uint64_t>& scratch) const;

    // Values of a variable that is in no term: number `index` of that shape.
    std::vector<uint64_t> fresh(uint16_t shape, uint64_t index) const;
    static Fingerprint fingerprint(const WorldShape& shape, const uint64_t* values);

  private:
    std::unique_ptr<Applied> make(uint16_t op, const uint16_t* shapes);

    const OpSet& set_;
    const World& world_;
    uint64_t seed_;
    uint64_t number_ = 0;  // of this evaluator in the process
    int64_t max_elements_;
    mutable std::shared_mutex mutex_;
    std::vector<std::unique_ptr<WorldShape>> shapes_;
    std::unordered_map<std::string, uint16_t> shape_ids_;
    std::unordered_map<uint64_t, std::unique_ptr<Applied>> applications_;
};

// The representatives, by size; terms refer to one another by number, operands before what uses them.
class TermTable {
  public:
    struct Entry {
        TermNode node;
        uint8_t size;               // distinct ops
        std::array<TermId, 4> ops;  // the ops in it, itself among them, ascending
    };
    const Entry& operator[](TermId id) const { return entries_[id]; }
    TermId size() const { return static_cast<TermId>(entries_.size()); }
    TermId add(const TermNode& node, bool counts);
    // How many distinct ops the term would have.
    int size_of(const TermNode& node, int operands) const;
    static int size_of_union(const Entry& a, const Entry& b);

  private:
    std::vector<Entry> entries_;
};

// Fingerprint to representative; open addressing.
class ClassMap {
  public:
    TermId find(const Fingerprint& f) const;
    void insert(const Fingerprint& f, TermId id);
    size_t size() const { return count_; }

  private:
    struct Slot {
        Fingerprint key;
        TermId id = kNoTerm;
    };
    void grow();
    std::vector<Slot> slots_ = std::vector<Slot>(1024);
    size_t count_ = 0;
};

}  // namespace tessera
