#include "api/specialised.h"

#include <algorithm>

#include "api/stages.h"
#include "rewrite/fix_sizes.h"

namespace tessera {

Specialised::Specialised(const Model& model, const CompileOptions& options, std::vector<std::string> names,
                         size_t general)
    : model_(model),
      options_(options),
      names_(std::move(names)),
      general_(general),
      sources_(size_sources(model_.graph())) {
    options_.specialise = false;
    options_.progress = {};
    options_.after = {};
}

// Deciding sizes may show further ones.
Result<Model> Specialised::decided(const SymbolValues& symbols, SymbolValues& sizes) const {
    const Precision precision = TRY(precision_named(options_.precision));
    std::vector<std::string> names = names_;
    for (;;) {
        const size_t before = sizes.size();
        for (const std::string& name : names)
            if (auto at = symbols.find(name); at != symbols.end()) sizes.insert(*at);
        std::shared_ptr<Graph> graph = model_.graph().clone();
        fix_sizes(*graph, sizes);
        if (sizes.size() == before) return Model(std::move(graph));
        names = deciding_sizes(*TRY(rewritten(*graph, precision, options_)));
    }
}

const Specialised::Made* Specialised::make(const SymbolValues& symbols) {
    for (const auto& made : made_)
        if (std::all_of(made->sizes.begin(), made->sizes.end(),
                        [&](const auto& size) { return symbols.at(size.first) == size.second; }))
            return made.get();
    if (made_.size() == kMost) return nullptr;
    auto made = std::make_unique<Made>();
    if (auto model = decided(symbols, made->sizes); model.ok())
        if (auto executable = compile(*model, options_); executable.ok() && executable->report().host_steps < general_)
            made->executable = std::move(*executable);
    made_.push_back(std::move(made));
    return made_.back().get();
}

const Executable* Specialised::find(const NamedData& inputs) {
    std::vector<int64_t> key;
    for (const SizeSource& s : sources_) {
        auto given = inputs.find(s.input->name());
        if (given == inputs.end() || !given->second.is_tensor()) return nullptr;
        const Tensor& t = given->second.tensor();
        if (s.axis >= t.rank()) return nullptr;
        key.push_back(t.size(s.axis));
    }
    std::lock_guard lock(mutex_);
    auto at = std::find_if(known_.begin(), known_.end(), [&](const auto& k) { return k.first == key; });
    if (at == known_.end()) {
        auto symbols = bind_sizes(sources_, key);
        if (!symbols.ok()) return nullptr;
        if (known_.size() == kMostKnown) known_.erase(known_.begin());
        known_.emplace_back(std::move(key), make(*symbols));
        at = known_.end() - 1;
    }
    return at->second && at->second->executable ? &*at->second->executable : nullptr;
}

}  // namespace tessera
