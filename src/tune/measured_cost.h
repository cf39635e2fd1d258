// Costs by the clock. A graph costs what its kernels do: it is lowered as the compiler does it, each distinct kernel
// (a group of nodes that are fused) is timed once. A single product or reduction, the guide to what is worth looking
// at, is lowered alone among neighbours that leave its layout to it; what is fused into such kernels keeps its
// estimate. Times are kept in the folder of compiled code, by key, the device, the precision and the build.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <unordered_set>

#include "base/deadline.h"
#include "kernel/from_graph/from_graph.h"
#include "rewrite/pass.h"
#include "search/cost.h"
#include "tune/time_kernel.h"

namespace tessera {

struct MeasureOptions {
    std::optional<std::string> cache = {};  // as CompileOptions has it
    std::string target = "host";            // or a GPU of this machine, "cuda:1"
    Precision precision = Precision::Default;
    bool fused = true;      // false: every op alone, a sum over ops
    double seconds = 0.01;  // that one kernel is timed for, at least
    double least = 5e-6;    // what the estimate puts below is not measured
    // A kernel over more is not measured, and taken to be slow; none: most_timed_bytes of the device.
    std::optional<int64_t> most_bytes = {};
    // Seconds, measuring: of processor time, or on a GPU by the wall's clock. Then estimates, scaled by how far those
    // before were off.
    double budget = 1e9;
    std::function<void(std::string_view what, size_t done, size_t total)> progress = {};
    const std::atomic<bool>* cancel = nullptr;
};

// What estimates for this device are made with.
Speeds speeds_of(const Device& device);

class MeasuredCost : public CostModel {
  public:
    // E0603, E0605, E0701.
    static Result<std::unique_ptr<MeasuredCost>> open(const MeasureOptions& options = {});
    ~MeasuredCost() override;
    double node(const Node& node) override;
    // Generates code for many at once, then times one after the other; what is clearly worse than another node of its
    // class only once. What is most at stake comes first.
    void expect(const std::vector<std::vector<const Node*>>& classes) override;
    std::optional<double> groups(const Graph& graph) override;
    std::string name() const override { return options_.fused ? "measured" : "sum of measured ops"; }

    size_t measured() const { return measured_; }     // kernels, in this process
    const Status& status() const { return failed_; }  // E0702: the device failed, and from there on all is estimated
    // Until then by the wall's clock, in place of a budget: nodes, then groups.
    void stop_at(const Deadline& nodes, const Deadline& groups);
    // The same, from here on, whatever was spent before; and what others are compared with is measured again.
    void allow(const Deadline& nodes, const Deadline& groups);
    double spent() const { return spent_; }                // seconds, measuring and lowering for it
    double spent_processor() const { return processor_; }  // the same in processor time
    void save();  // what is new; a folder that cannot be written to is no error

  private:
    // A node or a graph by its kernels, and what no kernel does.
    struct Part {
        std::string key;
        std::optional<KernelCall> call;  // none: a size is not known
        double guess;                    // seconds, by its operations and bytes
        bool of_bytes;                   // these say it
    };
    struct Parts {
        std::vector<Part> kernels;
        double rest = 0;
    };
    struct Code;
    class Spending;
    MeasuredCost(const MeasureOptions& options, Device& device, LowerOptions lower);
    bool keeps_estimate(const Node& node, double estimate) const;
    double scaled(double estimate) const;
    double scaled(const Part& part) const;
    bool over(const std::optional<Deadline>& until) const;
    std::optional<Parts> parts_of(const Graph& graph, bool with_neighbours) const;
    std::optional<Parts> parts_of(const Node& node) const;
    CodegenOptions codegen() const;
    std::vector<std::string> key_parts() const;  // all that times depend on besides the kernel
    // Without code where there is no time for it.
    Code generate(const std::vector<const Parts*>& all, const std::optional<Deadline>& until) const;
    // The sum; one run is enough for what makes it more than `hopeless`, and kernels are estimated after `until`.
    double clock(const Parts& parts, const Code& code, double hopeless, const std::optional<Deadline>& until = {});
    void remember(const std::string& key, double seconds);
    void forget(const Parts& parts);  // kernels that were not measured since allow()

    MeasureOptions options_;
    Device& device_;
    LowerOptions lower_;
    Speeds speeds_;
    int64_t most_bytes_;
    std::unique_ptr<KernelTimer> timer_;
    Status failed_;
    std::unordered_set<std::string> refused_;  // kernels, by the device
    bool keep_ = true;                         // none of them is in what was clocked last
    std::string file_;                         // empty: none
    std::unique_ptr<CostModel> estimate_;
    mutable std::mutex estimating_;                  // where nodes are lowered at once
    std::unordered_map<std::string, double> known_;  // by a node's text, or a kernel's key
    std::vector<std::string> fresh_;                 // to be written to the file
    std::unordered_set<std::string> recent_;         // measured since allow()
    size_t measured_ = 0;
    double spent_ = 0, processor_ = 0;
    std::optional<Deadline> nodes_until_, groups_until_;  // instead of the budget
    bool again_ = false;                                  // what others are compared with is measured again
    struct Sum {
        double clocked = 0, estimated = 0;
    };
    Sum of_bytes_, of_operations_;  // of what was measured, and its guesses
};

}  // namespace tessera
