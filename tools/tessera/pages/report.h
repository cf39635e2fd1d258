// The page of `tessera optimize --report`: one HTML file that needs nothing beside it. It shows the graph before and
// after, and each rewrite as a step. The page's sources stand in report/ and are part of the binary.
#pragma once

#include <filesystem>

#include "replay.h"

namespace tessera::cli {

// Watches an optimization from its start; the page is the same for the same model and options.
class Report {
  public:
    Report(const Model& before, const SymbolValues& sizes);  // symbolic dimensions that are not given are 1
    void after_pass(const std::string& pass, const Model& now, bool changed);  // for OptimizeOptions::after
    Status write(const std::filesystem::path& path, const Optimized& done, const OptimizeOptions& options) const;

  private:
    const Model& model_;
    SymbolValues sizes_;
    Camera camera_;
    Snapshot before_;
    std::vector<PassSnapshot> passes_;
};

}  // namespace tessera::cli
