// The last level: its terms are too many to keep. Those of a known class are candidate pairs at once; the others go to
// files by fingerprint, which are sorted one at a time. What is done is noted after each batch, so that a run that was
// interrupted goes on from there.
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/hash.h"
#include "base/output_file.h"
#include "base/thread_pool.h"
#include "discover/enumerate/enumerate.h"
#include "discover/enumerate/enumerate_worker.h"
#include "discover/enumerate/prune.h"

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
    bool began_anew = false;  // what was there does not serve

    // What an earlier run left, if it was the same run.
    Status open() {
        std::error_code failed;
        fs::create_directories(folder_, failed);
        if (failed) return Error(Code::E0105, "cannot make the folder \"{}\": {}", folder_.string(), failed.message());
        std::ifstream in(note());
        uint64_t key = 0;
        const bool there = bool(in);
        bool same = in &&
                    in >> key >> noted.batches >> noted.terms >> noted.raw_pairs >> noted.renamed >> noted.common &&
                    key == key_;
        for (Written& w : written_) same = same && in >> w.bytes >> w.sum;
        for (int i = 0; i <= kShards && same; ++i) same = is_whole(i);
        began_anew = there && !same;
        if (!same) {
            noted = {};
            written_.assign(kShards + 1, {});
        }
        for (int i = 0; i <= kShards; ++i) {
            std::ofstream(path(i), std::ios::app | std::ios::binary);
            fs::resize_file(path(i), written_[i].bytes, failed);
            if (failed) return Error(Code::E0105, "cannot write \"{}\": {}", path(i).string(), failed.message());
        }
        return {};
    }

    template <typename T>
    Status append(int i, const std::vector<T>& items) {
        if (items.empty()) return {};
        static_assert(sizeof(T) % sizeof(uint32_t) == 0);
        const char* data = reinterpret_cast<const char*>(items.data());
        const size_t bytes = items.size() * sizeof(T);
        written_[i].add(data, bytes);
        std::ofstream out(path(i), std::ios::app | std::ios::binary);
        out.write(data, static_cast<std::streamsize>(bytes));
        out.close();
        if (!out) return Error(Code::E0105, "cannot write \"{}\": the disk may be full", path(i).string());
        return {};
    }

    Status note_progress() {
        std::string text = fmt::format("{} {} {} {} {} {}", key_, noted.batches, noted.terms, noted.raw_pairs,
                                       noted.renamed, noted.common);
        for (const Written& w : written_) text += fmt::format(" {} {}", w.bytes, w.sum);
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
    struct Written {
        uint64_t bytes = 0, sum = 0;  // the sum tells whether a file is still what it was
        void add(const char* data, size_t count) {
            for (size_t at = 0; at < count; at += sizeof(uint32_t), bytes += sizeof(uint32_t)) {
                uint32_t word;
                std::memcpy(&word, data + at, sizeof word);
                sum += mix(word, bytes);
            }
        }
    };
    std::vector<Written> written_ = std::vector<Written>(kShards + 1);

    bool is_whole(int i) const {
        std::error_code failed;
        if (fs::file_size(path(i), failed) < written_[i].bytes || failed || written_[i].bytes % sizeof(uint32_t))
            return false;
        std::string bytes(written_[i].bytes, 0);
        std::ifstream in(path(i), std::ios::binary);
        if (!in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) return false;
        Written read;
        read.add(bytes.data(), bytes.size());
        return read.sum == written_[i].sum;
    }
    fs::path path(int i) const { return i == kShards ? pairs() : shard(i); }
};

// A folder that goes when it is no longer used.
struct TemporaryFolder {
    fs::path path;
    TemporaryFolder() {
        static std::atomic<int> made{0};
        path = fs::temp_directory_path() / fmt::format("tessera-discover-{}-{}", getpid(), made++);
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        fs::remove_all(path, ignored);
    }
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
    std::optional<TemporaryFolder> temporary;
    if (options_.work_dir.empty()) temporary.emplace();
    const fs::path folder = temporary ? temporary->path : fs::path(options_.work_dir);
    uint64_t key = mix(mix(set().hash, options_.seed), static_cast<uint64_t>(level));
    key = mix(mix(key, table_.size()), static_cast<uint64_t>(options_.max_elements));
    LevelFiles files(folder, world().name, key);
    TRY(files.open());
    began_anew_ = files.began_anew;

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
            TRY(files.append(kShards, w.pairs));
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
            TRY(files.append(i, shards[i]));
            shards[i].clear();
        }
        ++files.noted.batches;
        TRY(files.note_progress());
        if (cancelled()) return Error(Code::E0410, "interrupted");
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
