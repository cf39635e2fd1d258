// An executable made again for sizes that decide how a model goes on (which branch, which rank): what only a run could
// tell is known then, and compiled.
#pragma once

#include <mutex>

#include "runtime/bind_sizes.h"
#include "tessera/compile.h"

namespace tessera {

class Specialised {
  public:
    // `general`: how many steps are the evaluator's where nothing is decided. `names`: the first sizes that decide.
    Specialised(const Model& model, const CompileOptions& options, std::vector<std::string> names, size_t general);

    // For the sizes of these inputs, compiled where they are met for the first time; null where the general executable
    // does as well.
    const Executable* find(const NamedData& inputs);

  private:
    static constexpr size_t kMost = 16;       // executables
    static constexpr size_t kMostKnown = 64;  // sizes of inputs
    struct Made {
        SymbolValues sizes;
        std::optional<Executable> executable;
    };
    const Made* make(const SymbolValues& symbols);
    Result<Model> decided(const SymbolValues& symbols, SymbolValues& sizes) const;

    Model model_;
    CompileOptions options_;
    std::vector<std::string> names_;
    size_t general_;
    std::vector<SizeSource> sources_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Made>> made_;
    std::vector<std::pair<std::vector<int64_t>, const Made*>> known_;
};

}  // namespace tessera
