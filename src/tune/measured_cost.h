// Costs by the clock: each product or reduction is compiled alone, with its weights constant as in a model, and timed
// with its weights out of the first caches. What the compiler fuses into such kernels keeps its estimate. Times are
// kept in the folder of compiled code, by the node's text, the machine and the build.
#pragma once

#include <optional>

#include "search/cost.h"

namespace tessera {

struct MeasureOptions {
    std::optional<std::string> cache = {};  // as CompileOptions has it
    std::string target = "host";
    double seconds = 0.02;  // that one node is timed for, at least
    double least = 5e-6;    // what the estimate puts below is not measured
    double budget = 1e9;    // seconds of measuring; then estimates, scaled by how far those before were off
    Speeds speeds = {};
};

class MeasuredCost : public CostModel {
  public:
    static Result<std::unique_ptr<MeasuredCost>> open(const MeasureOptions& options = {});
    ~MeasuredCost() override;
    double node(const Node& node) override;
    std::string name() const override { return "measured"; }
    size_t measured() const { return measured_; }  // in this process
    double spent() const { return spent_; }        // seconds, measuring
    void save();                                   // what is new; a folder that cannot be written to is no error

  private:
    explicit MeasuredCost(const MeasureOptions& options);
    std::optional<double> measure(const Node& node) const;

    MeasureOptions options_;
    std::string file_;  // empty: none
    std::unique_ptr<CostModel> estimate_;
    std::unordered_map<std::string, double> known_;
    std::vector<std::string> fresh_;
    size_t measured_ = 0;
    double spent_ = 0;
    double clocked_ = 0, estimated_ = 0;  // of what was measured or known, and its estimates
};

}  // namespace tessera
