// The last level: its terms are too many to keep. Those of a known class are candidate pairs at once; the others go to
// files by fingerprint, which are sorted one at a time. What is done is noted after each batch, so that a run that was
// interrupted goes on from there.
#include <filesystem>
#include <fstream>

#include "base/hash.h"
#include "base/output_file.h"
#include "base/thread_pool.h"
#include "search/enumerate.h"
#include "search/enumerate_worker.h"
#include "search/prune.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
constexpr int kShards = 64;
constexpr size_t kBatch = 4096;  // tasks

// Files that grow by appending and can be cut back to a length that was noted.
class LevelFiles {
  public:
    LevelFiles(fs::path folder, std::string world, uint64_t key)
        : folder_(std::move(folder)), world_(std::move(world)), key_(key) {}

    fs::path shard(int i) const { return folder_ / fmt::format("{}.shard{:02}", world_, i); }
    fs::path pairs() const { return folder_ / (world_ + ".pairs"); }
    fs::path note() const { return folder_ / (world_ + ".progress"); }

    struct Noted {
        uint64_t batches = 0;
        int64_t terms = 0, raw_pairs = 0, renamed = 0, common = 0;
    };
    Noted noted;

    // What an earlier run left, if it was the same run.
    Status open() {
        std::error_code failed;
        fs::create_directories(folder_, failed);
        if (failed) return Error(Code::E0105, "cannot make the folder \"{}\": {}", folder_.string(), failed.message());
        std::ifstream in(note());
        uint64_t key = 0;
        std::vector<uint64_t> lengths(kShards + 1, 0);
        bool same = in &&
                    in >> key >> noted.batches >> noted.terms >> noted.raw_pairs >> noted.renamed >> noted.common &&
                    key == key_;
        for (uint64_t& length : lengths) same = same && in >> length;
        for (int i = 0; i <= kShards && same; ++i) same = fs::exists(path(i)) && fs::file_size(path(i)) >= lengths[i];
        if (!same) {
            noted = {};
            lengths.assign(kShards + 1, 0);
        }
        for (int i = 0; i <= kShards; ++i) {
            std::ofstream(path(i), std::ios::app | std::ios::binary);
            fs::resize_file(path(i), lengths[i], failed);
            if (failed) return Error(Code::E0105, "cannot write \"{}\": {}", path(i).string(), failed.message());
        }
        return {};
    }

    Status append(int i, const void* data, size_t bytes) {
        if (bytes == 0) return {};
        std::ofstream out(path(i), std::ios::app | std::ios::binary);
        out.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
        out.close();
        if (!out) return Error(Code::E0105, "cannot write \"{}\": the disk may be full", path(i).string());
        return {};
    }

    Status note_progress() {
        std::string text = fmt::format("{} {} {} {} {} {}", key_, noted.batches, noted.terms, noted.raw_pairs,
                                       noted.renamed, noted.common);
        for (int i = 0; i <= kShards; ++i) text += fmt::format(" {}", fs::file_size(path(i)));
        return write_file(note(), text + "\n");
    }

    void remove() {
        std::error_code ignored;
        for (int i = 0; i <= kShards; ++i) fs::remove(path(i), ignored);
        fs::remove(note(), ignored);
    }

    template <typename T>
    Result<std::vector<T>> read(int i) const {
        std::vector<T> all(fs::file_size(path(i)) / sizeof(T));
        std::ifstream in(path(i), std::ios::binary);
        in.read(reinterpret_cast<char*>(all.data()), static_cast<std::streamsize>(all.size() * sizeof(T)));
        if (!in && !all.empty()) return Error(Code::E0101, "cannot read \"{}\"", path(i).string());
        return all;
    }

  private:
    fs::path folder_;
    std::string world_;
    uint64_t key_;
    fs::path path(int i) const { return i == kShards ? pairs() : shard(i); }
};

}  // namespace

// Shapes are numbered as they come up, which may differ from run to run.
void Enumeration::renumber(TermNode& node) {
    if (node.op == kVariableOp) {
        node.shape = *evaluator_.shape_id(world().variables[node.args[0]].shape);
        return;
    }
    uint16_t shapes[3] = {};
    for (int i = 0; i < operands(node); ++i) shapes[i] = table_[node.args[i]].node.shape;
    node.shape = evaluator_.apply(node.op, shapes)->shape->id;
}

Status Enumeration::last_level(int level) {
    const std::vector<TermId> list = tasks(level);
    const bool temporary = options_.work_dir.empty();
    const fs::path folder = temporary ? fs::temp_directory_path() / fmt::format("tessera-discover-{}", getpid())
                                      : fs::path(options_.work_dir);
    uint64_t key = mix(mix(set().hash, options_.seed), static_cast<uint64_t>(level));
    key = mix(mix(key, table_.size()), static_cast<uint64_t>(options_.max_elements));
    LevelFiles files(folder, world().name, key);
    TRY(files.open());

    std::vector<Worker> workers(Team(options_.threads).threads());
    std::vector<std::vector<Record>> shards(kShards);
    for (size_t begin = files.noted.batches * kBatch; begin < list.size(); begin += kBatch) {
        counts_.terms = terms_before_last_ + files.noted.terms;
        report("terms", level, static_cast<int64_t>(begin), static_cast<int64_t>(list.size()));
        const size_t count = std::min(kBatch, list.size() - begin);
        Team team(options_.threads);
        team.each(static_cast<int64_t>(count), [&](int64_t i, int thread) {
            Worker& w = workers[thread];
            extend(list[begin + i], level, w, [&](const Record& r) {
                const TermId known = classes_.find(r.fingerprint);
                if (known == kNoTerm) {
                    w.records.push_back(r);
                    return;
                }
                ++w.counts.raw_pairs;
                const TermPair pair{r.node, table_[known].node, static_cast<uint8_t>(level), table_[known].size};
                if (keep(pair, w.counts)) w.pairs.push_back(pair);
            });
        });
        for (Worker& w : workers) {
            for (const Record& r : w.records) shards[r.fingerprint.high >> 58].push_back(r);
            TRY(files.append(kShards, w.pairs.data(), w.pairs.size() * sizeof(TermPair)));
            pairs_at_last_ += static_cast<int64_t>(w.pairs.size());
            files.noted.terms += w.counts.terms;
            files.noted.raw_pairs += w.counts.raw_pairs;
            files.noted.renamed += w.counts.renamed;
            files.noted.common += w.counts.common;
            w.counts = {};
            w.records.clear();
            w.pairs.clear();
        }
        for (int i = 0; i < kShards; ++i) {
            TRY(files.append(i, shards[i].data(), shards[i].size() * sizeof(Record)));
            shards[i].clear();
        }
        ++files.noted.batches;
        TRY(files.note_progress());
        if (cancelled()) {
            if (temporary) files.remove();
            Error error(Code::E0410, "interrupted");
            if (temporary) return error;
            return std::move(error).hint("the same command goes on from \"{}\"", folder.string());
        }
    }
    counts_.terms = terms_before_last_ + files.noted.terms;
    counts_.raw_pairs += files.noted.raw_pairs;
    counts_.renamed += files.noted.renamed;
    counts_.common += files.noted.common;

    std::vector<TermPair> found = TRY(files.read<TermPair>(kShards));
    for (int i = 0; i < kShards; ++i) {
        report("shards", level, i, kShards);
        if (cancelled()) return Error(Code::E0410, "interrupted");
        std::vector<Record> records = TRY(files.read<Record>(i));
        pair_up(std::move(records), level, workers, found);
    }
    for (TermPair& p : found) {
        renumber(p.left);
        renumber(p.right);
    }
    std::sort(found.begin(), found.end(), [](const TermPair& a, const TermPair& b) {
        return a.left == b.left ? a.right < b.right : a.left < b.left;
    });
    pairs_.insert(pairs_.end(), found.begin(), found.end());
    files.remove();
    std::error_code ignored;
    if (temporary) fs::remove(folder, ignored);
    return {};
}

// Terms of the last level that are equal to one another: each with the one that comes first whatever its names are.
void Enumeration::pair_up(std::vector<Record> records, int level, std::vector<Worker>& workers,
                          std::vector<TermPair>& found) {
    std::sort(records.begin(), records.end(), [](const Record& a, const Record& b) {
        return a.fingerprint == b.fingerprint ? a.node < b.node : a.fingerprint < b.fingerprint;
    });
    std::vector<std::pair<size_t, size_t>> groups;
    for (size_t begin = 0, end = 0; begin < records.size(); begin = end) {
        while (end < records.size() && records[end].fingerprint == records[begin].fingerprint) ++end;
        ++classes_at_last_;
        if (end - begin > 1) groups.emplace_back(begin, end);
    }
    std::vector<std::vector<TermPair>> kept(groups.size());
    Team team(options_.threads);
    team.each(static_cast<int64_t>(groups.size()), [&](int64_t g, int thread) {
        auto [begin, end] = groups[g];
        for (size_t i = begin; i < end; ++i) renumber(records[i].node);
        auto first =
            std::min_element(records.begin() + begin, records.begin() + end, [&](const Record& a, const Record& b) {
                const uint64_t x = nameless_form(*this, a.node), y = nameless_form(*this, b.node);
                return x != y ? x < y : a.node < b.node;
            });
        for (size_t i = begin; i < end; ++i) {
            if (records[i].node == first->node) continue;
            ++workers[thread].counts.raw_pairs;
            const TermPair pair{records[i].node, first->node, static_cast<uint8_t>(level), static_cast<uint8_t>(level)};
            if (keep(pair, workers[thread].counts)) kept[g].push_back(pair);
        }
    });
    for (const auto& list : kept) found.insert(found.end(), list.begin(), list.end());
    for (Worker& w : workers) {
        counts_.raw_pairs += w.counts.raw_pairs;
        counts_.renamed += w.counts.renamed;
        counts_.common += w.counts.common;
        w.counts = {};
    }
}

}  // namespace tessera
