// All terms of a world with at most a number of ops, level by level: each template on representatives of lower levels.
// What has the fingerprint of an earlier term is a candidate pair and is never extended; pairs that renaming or a
// common subgraph explains are dropped as they come. The last level goes through files, sorted one shard at a time.
#pragma once

#include <atomic>
#include <functional>

#include "discover/enumerate/classes.h"

namespace tessera {

struct EnumerateOptions {
    int max_ops = 3;
    uint64_t seed = 0;
    int threads = 0;                    // 0: all cores
    int64_t max_elements = 512;         // of a term's value in one assignment
    std::string work_dir;               // for the shards; kept until the level is done
    const std::atomic<bool>* cancel = nullptr;
    struct Progress {
        std::string_view world, phase;
        int level = 0;
        int64_t done = 0, total = 0;  // tasks of the level
        int64_t terms = 0, classes = 0, pairs = 0;
    };
    std::function<void(const Progress&)> progress = {};
};

// Two terms of one fingerprint.
struct TermPair {
    TermNode left, right;  // the left one is newer; the right one is the representative, or stands for the class
    uint8_t left_size = 0, right_size = 0;
};

struct EnumerateCounts {
    int64_t terms = 0;  // evaluated
    int64_t classes = 0;
    double graphs = 0;      // that a generator would visit which adds one op at a time (count_graphs)
    int64_t raw_pairs = 0;  // terms that fell into a class that had a representative
    int64_t renamed = 0;    // of those, pairs that are another one with its variables renamed
    int64_t common = 0;     // pairs that are an instance of one without their common subgraph
};

class Enumeration {
  public:
    Enumeration(const OpSet& set, const World& world, const EnumerateOptions& options);

    // E0410 if cancelled (work_dir has what is needed to resume), E0101 if files cannot be written.
    Status run();

    // What the work folder held could not be gone on from: it was of another run, or damaged.
    bool began_anew() const { return began_anew_; }
    const std::vector<TermPair>& pairs() const { return pairs_; }
    const EnumerateCounts& counts() const { return counts_; }
    const TermTable& table() const { return table_; }
    WorldEvaluator& evaluator() { return evaluator_; }
    const World& world() const { return evaluator_.world(); }
    const OpSet& set() const { return evaluator_.set(); }

    // A term that need not be in the table: the values with one subterm's given instead.
    struct Override {
        TermId term = kNoTerm;
        const std::vector<uint64_t>* values = nullptr;
    };
    std::optional<std::vector<uint64_t>> values_of(const TermNode& node, const Override& other);
    std::optional<TermId> find(const TermNode& node);  // the representative of its class, where it has one
    int operands(const TermNode& node) const {
        return node.op == kVariableOp ? 0 : evaluator_.set().templates[node.op].operands;
    }

  private:
    struct Record {
        Fingerprint fingerprint;
        TermNode node;
    };
    struct Choice {
        uint16_t op;
        bool swapped;
        const Applied* applied;
    };
    struct Worker;

    Status add_leaves();
    Status inner_level(int level);
    Status last_level(int level);
    void pair_up(std::vector<Record> records, int level, std::vector<Worker>& workers, std::vector<TermPair>& found);
    void renumber(TermNode& node);
    std::vector<TermId> tasks(int level) const;
    template <typename Emit>
    void extend(TermId a, int level, Worker& worker, const Emit& emit);
    const std::vector<Choice>& choices(uint16_t a, uint16_t b, Worker& worker);
    const uint64_t* stored(TermId id) const { return stored_[id].data(); }
    bool evaluate(TermId id, std::vector<uint64_t>& out, Worker& worker);
    void keep_values(TermId id, Worker& worker);
    bool keep(const TermPair& pair, EnumerateCounts& counts);
    void count_graphs();
    void report(std::string_view phase, int level, int64_t done, int64_t total) const;
    bool cancelled() const { return options_.cancel && *options_.cancel; }

    EnumerateOptions options_;
    WorldEvaluator evaluator_;
    TermTable table_;
    ClassMap classes_;
    std::vector<std::vector<uint64_t>> stored_;  // of terms that are small enough to be operands at the last level
    std::vector<TermId> level_begin_;            // by size; one more than levels
    std::vector<TermPair> pairs_;
    EnumerateCounts counts_;
    int arity_ = 2;
    bool began_anew_ = false;
    int64_t terms_before_last_ = 0, classes_at_last_ = 0, pairs_at_last_ = 0;
};

}  // namespace tessera
