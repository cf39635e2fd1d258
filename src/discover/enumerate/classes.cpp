#include "discover/enumerate/classes.h"

#include <atomic>

#include "base/check.h"
#include "base/hash.h"
#include "base/random.h"
#include "rewrite/refute/field.h"
#include "rewrite/rules/instantiate.h"

namespace tessera {
namespace {

constexpr int kMaxOps = 4;

uint64_t key_of(uint16_t op, const uint16_t* shapes, int operands) {
    uint64_t key = op;
    for (int i = 0; i < 3; ++i) key = key << 16 | (i < operands ? shapes[i] : UINT16_MAX);
    return key;
}

uint64_t folded(uint64_t a, uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// The template on inputs of these shapes. Null where types do not fit, or where its conditions do not hold.
std::unique_ptr<Graph> graph_of(const OpTemplate& op, const std::vector<Shape>& shapes, bool check_conditions) {
    auto graph = std::make_unique<Graph>();
    Match match{&op.rule, std::vector<RuleValue>(op.rule.variables.size()), {}, {}};
    for (int i = 0; i < op.operands; ++i)
        match.slots[i] = graph->add_input(op.rule.variables[i].name, Type(DType::f32, shapes[i]));
    if (op.term().form == Term::Form::Number) {
        graph->add_output(graph->constant(Tensor::scalar(static_cast<float>(op.term().number))));
        return graph;
    }
    // An unknown "!=" holds: it keeps a template from what is certainly not meant.
    for (const Term& condition : op.rule.conditions) {
        if (!check_conditions) break;
        auto holds = evaluate_term(condition, match.slots);
        const bool* known = holds ? std::get_if<bool>(&*holds) : nullptr;
        if (known ? !*known : condition.name != "!=") return nullptr;
    }
    Rule building;
    building.variables = op.rule.variables;
    building.variables.push_back({"result", TermKind::Tensor, {}});
    building.lets.emplace_back(static_cast<int>(building.variables.size()) - 1, op.term());
    match.rule = &building;
    match.slots.resize(building.variables.size());
    auto built = instantiate(*graph, match, PassContext{});
    if (!built || built->created.empty()) return nullptr;
    Node* root = built->created.back();
    if (static_cast<size_t>(op.term().output) >= root->output_count()) return nullptr;
    graph->add_output(root->output(op.term().output));
    return graph;
}

}  // namespace

WorldEvaluator::WorldEvaluator(const OpSet& set, const World& world, uint64_t seed, int64_t max_elements)
    : set_(set), world_(world), seed_(seed), max_elements_(max_elements) {
    static std::atomic<uint64_t> made{0};
    number_ = ++made;
}

const WorldShape& WorldEvaluator::shape(uint16_t id) const {
    std::shared_lock lock(mutex_);
    return *shapes_[id];
}

std::optional<uint16_t> WorldEvaluator::shape_id(const Shape& shape) {
    const std::string text = to_string(shape);
    {
        std::shared_lock lock(mutex_);
        if (auto it = shape_ids_.find(text); it != shape_ids_.end()) return it->second;
    }
    auto made = std::make_unique<WorldShape>();
    made->shape = shape;
    made->hash = hash_bytes(text.data(), text.size());
    for (const SymbolValues& values : world_.assignments) {
        Sizes sizes;
        int64_t count = 1;
        for (const Dim& d : shape) {
            auto n = evaluate_int(d, values);
            if (!n || *n < 1) return std::nullopt;
            sizes.push_back(*n);
            count *= *n;
            if (count > max_elements_) return std::nullopt;
        }
        made->begins.push_back(made->elements);
        made->elements += count;
        made->sizes.push_back(std::move(sizes));
    }
    std::unique_lock lock(mutex_);
    auto [it, fresh] = shape_ids_.emplace(text, static_cast<uint16_t>(shapes_.size()));
    if (fresh) {
        CHECK(shapes_.size() < UINT16_MAX, "too many shapes");
        made->id = it->second;
        shapes_.push_back(std::move(made));
    }
    return it->second;
}

const Applied* WorldEvaluator::apply(uint16_t op, const uint16_t* shapes) {
    const uint64_t key = key_of(op, shapes, set_.templates[op].operands);
    thread_local std::unordered_map<uint64_t, const Applied*> mine;
    thread_local uint64_t owner = 0;
    if (owner != number_) {
        mine.clear();
        owner = number_;
    }
    if (auto it = mine.find(key); it != mine.end()) return it->second;
    const Applied* found = nullptr;
    {
        std::shared_lock lock(mutex_);
        if (auto it = applications_.find(key); it != applications_.end()) found = it->second.get();
    }
    if (!found) {
        auto made = make(op, shapes);
        std::unique_lock lock(mutex_);
        found = applications_.emplace(key, std::move(made)).first->second.get();
    }
    return mine[key] = found->valid ? found : nullptr;
}

std::unique_ptr<Applied> WorldEvaluator::make(uint16_t op, const uint16_t* shapes) {
    auto made = std::make_unique<Applied>();
    const OpTemplate& t = set_.templates[op];
    std::vector<Shape> symbolic;
    for (int i = 0; i < t.operands; ++i) symbolic.push_back(shape(shapes[i]).shape);
    auto graph = graph_of(t, symbolic, true);
    if (!graph) return made;
    const Type& type = graph->outputs()[0]->type();
    if (!type.is_tensor() || type.tensor().dtype != DType::f32 || !type.tensor().shape.ranked()) return made;
    auto result = shape_id(type.tensor().shape);
    if (!result) return made;
    made->shape = &shape(*result);
    made->operands = t.operands;
    for (int i = 0; i < t.operands; ++i) made->inputs[i] = &shape(shapes[i]);
    for (size_t a = 0; a < world_.assignments.size(); ++a) {
        std::vector<Shape> sizes;
        for (int i = 0; i < t.operands; ++i) sizes.emplace_back(shape(shapes[i]).sizes[a]);
        auto sized = graph_of(t, sizes, false);
        if (!sized) return made;
        auto inferred = sized->outputs()[0]->type().tensor().shape.sizes();
        if (!inferred || *inferred != made->shape->sizes[a]) return made;
        auto program = FieldProgram::compile(*sized);
        if (!program) return made;
        made->programs.push_back(std::move(*program));
    }
    made->valid = true;
    return made;
}

bool WorldEvaluator::run(const Applied& applied, const uint64_t* const* inputs, uint64_t* out,
                         std::vector<uint64_t>& scratch) const {
    for (size_t a = 0; a < applied.programs.size(); ++a) {
        const uint64_t* at[8] = {};
        for (int i = 0; i < applied.operands; ++i) at[i] = inputs[i] + applied.inputs[i]->begins[a];
        if (!applied.programs[a].run(at, out + applied.shape->begins[a], seed_, scratch)) return false;
    }
    return true;
}

std::vector<uint64_t> WorldEvaluator::fresh(uint16_t id, uint64_t index) const {
    const WorldShape& s = shape(id);
    const std::string text = to_string(s.shape);
    RandomStream stream(seed_ + index * 0x100000001b3, text);
    std::vector<uint64_t> values(s.elements);
    // In every second assignment most are negative, so that a maximum of a few is so too now and then.
    for (size_t a = 0; a < s.begins.size(); ++a) {
        const int64_t end = a + 1 < s.begins.size() ? s.begins[a + 1] : s.elements;
        for (int64_t i = s.begins[a]; i < end; ++i) {
            const uint64_t magnitude = 1 + stream.bits(2 * i) % (kFieldPrime / 2 - 1);
            const bool negative = stream.bits(2 * i + 1) % 8 < (a % 2 == 0 ? 4u : 6u);
            values[i] = negative ? field_sub(0, magnitude) : magnitude;
        }
    }
    return values;
}

Fingerprint WorldEvaluator::fingerprint(const WorldShape& shape, const uint64_t* values) {
    uint64_t high = shape.hash, low = ~shape.hash;
    for (int64_t i = 0; i < shape.elements; ++i) {
        high = folded(high ^ values[i], 0xa0761d6478bd642full);
        low = folded(low + values[i], 0xe7037ed1a0b428dbull);
    }
    return {mix(high, shape.elements), mix(low, shape.elements)};
}

// ---- terms

int TermTable::size_of_union(const Entry& a, const Entry& b) {
    int shared = 0;
    for (int i = 0, j = 0; i < a.size && j < b.size;) {
        if (a.ops[i] == b.ops[j])
            ++shared, ++i, ++j;
        else if (a.ops[i] < b.ops[j])
            ++i;
        else
            ++j;
    }
    return a.size + b.size - shared;
}

int TermTable::size_of(const TermNode& node, int operands) const {
    std::array<TermId, 16> all;
    int count = 0;
    for (int i = 0; i < operands; ++i) {
        const Entry& e = entries_[node.args[i]];
        for (int k = 0; k < e.size; ++k) all[count++] = e.ops[k];
    }
    std::sort(all.begin(), all.begin() + count);
    return static_cast<int>(std::unique(all.begin(), all.begin() + count) - all.begin()) + 1;
}

TermId TermTable::add(const TermNode& node, bool counts) {
    Entry e{node, 0, {kNoTerm, kNoTerm, kNoTerm, kNoTerm}};
    const TermId id = size();
    if (counts) {
        std::vector<TermId> all{id};
        for (TermId arg : node.args) {
            if (arg == kNoTerm) continue;
            const Entry& of = entries_[arg];
            all.insert(all.end(), of.ops.begin(), of.ops.begin() + of.size);
        }
        std::sort(all.begin(), all.end());
        all.erase(std::unique(all.begin(), all.end()), all.end());
        CHECK(all.size() <= kMaxOps, "a term of {} ops", all.size());
        e.size = static_cast<uint8_t>(all.size());
        std::copy(all.begin(), all.end(), e.ops.begin());
    }
    entries_.push_back(e);
    return id;
}

TermId ClassMap::find(const Fingerprint& f) const {
    for (size_t at = f.low & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
        const Slot& s = slots_[at];
        if (s.id == kNoTerm) return kNoTerm;
        if (s.key == f) return s.id;
    }
}

void ClassMap::insert(const Fingerprint& f, TermId id) {
    if (count_ * 10 >= slots_.size() * 7) grow();
    size_t at = f.low & (slots_.size() - 1);
    while (slots_[at].id != kNoTerm) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {f, id};
    ++count_;
}

void ClassMap::grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& s : old) {
        if (s.id == kNoTerm) continue;
        size_t at = s.key.low & (slots_.size() - 1);
        while (slots_[at].id != kNoTerm) at = (at + 1) & (slots_.size() - 1);
        slots_[at] = s;
    }
}

}  // namespace tessera
