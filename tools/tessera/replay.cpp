#include "replay.h"

#include "base/hash.h"

namespace tessera::cli {
namespace {

using Kind = ItemFacts::Kind;
using Names = std::unordered_map<std::string, ItemRef>;

uint64_t structure_hash(const ItemFacts& facts, const std::vector<ItemRef>& inputs) {
    uint64_t h = mix(hash_bytes(facts.op.data(), facts.op.size()), hash_bytes(facts.attrs.data(), facts.attrs.size()));
    for (ItemRef r : inputs) h = mix(mix(h, uint64_t(r.item)), uint64_t(r.output));
    return h;
}

class Replayer {
  public:
    Replay run(const Snapshot& before, const std::vector<Rewrite>& rewrites, const std::vector<PassSnapshot>& passes) {
        settle(before);
        std::vector<Replay::Change> first = take_changes();
        out_.before.insert(out_.before.end(), first.begin(), first.end());
        size_t next = 0;
        for (size_t p = 0; p < passes.size(); ++p) {
            const std::string& pass = passes[p].pass;
            while (next < rewrites.size() && rewrites[next].pass == pass) step(rewrites[next], int(next)), ++next;
            if (p + 1 < passes.size() && passes[p + 1].pass == pass) continue;  // their rewrites cannot be told apart
            settle(passes[p].graph);
            std::vector<Replay::Change> changes = take_changes();
            if (!shows(changes) && !out_.steps.empty()) {
                auto& last = out_.steps.back().changes;
                last.insert(last.end(), changes.begin(), changes.end());
            } else if (!changes.empty()) {
                out_.steps.push_back({-1, pass, true, std::move(changes)});
            }
        }
        // What no snapshot follows cannot be placed.
        for (; next < rewrites.size(); ++next) out_.steps.push_back({int(next), rewrites[next].pass, false});
        out_.items = int(current_.size());
        return std::move(out_);
    }

  private:
    // Where only constants got other names, that comes with the step before.
    bool shows(const std::vector<Replay::Change>& changes) const {
        return std::any_of(changes.begin(), changes.end(), [&](Replay::Change c) {
            return c.version < 0 || out_.versions[size_t(c.version)].facts->kind != Kind::Constant;
        });
    }

    // ---- the graph as it is now

    bool alive(int item) const { return current_[size_t(item)] >= 0; }
    const ItemVersion& now(int item) const { return out_.versions[size_t(current_[size_t(item)])]; }
    const ItemFacts& facts(int item) const { return *now(item).facts; }
    bool is_op(int item, const std::string& op) const {
        return alive(item) && facts(item).kind == Kind::Op && facts(item).op == op;
    }

    int add_item() {
        current_.push_back(-1);
        users_.emplace_back();
        return int(current_.size()) - 1;
    }

    void set(int item, int version) {
        int& current = current_[size_t(item)];
        touched_.emplace(item, current);
        if (current >= 0)
            for (const std::string& name : facts(item).outputs)
                if (auto it = names_.find(name); it != names_.end() && it->second.item == item) names_.erase(it);
        current = version;
        if (version < 0) return;
        const ItemVersion& v = now(item);
        if (v.facts->kind != Kind::Output)
            for (size_t i = 0; i < v.facts->outputs.size(); ++i) names_[v.facts->outputs[i]] = {item, int(i)};
        for (ItemRef r : v.inputs)
            if (r.item >= 0) users_[size_t(r.item)].push_back(item);
    }

    void set(int item, Facts facts, std::vector<ItemRef> inputs) {
        out_.versions.push_back({std::move(facts), std::move(inputs)});
        set(item, int(out_.versions.size()) - 1);
    }

    // Constants are there from the start: they are not drawn, and it is only in the next snapshot that some are known.
    std::vector<Replay::Change> take_changes() {
        std::vector<Replay::Change> changes;
        for (auto [item, was] : touched_) {
            if (current_[size_t(item)] == was) continue;
            bool constant = was < 0 && facts(item).kind == Kind::Constant;
            (constant ? out_.before : changes).push_back({item, current_[size_t(item)]});
        }
        touched_.clear();
        return changes;
    }

    // Those that use one of its outputs now, each once.
    std::vector<int> users_of(int item) {
        std::vector<int>& users = users_[size_t(item)];
        std::sort(users.begin(), users.end());
        users.erase(std::unique(users.begin(), users.end()), users.end());
        std::erase_if(users, [&](int user) {
            return !alive(user) || std::none_of(now(user).inputs.begin(), now(user).inputs.end(),
                                                [&](ItemRef r) { return r.item == item; });
        });
        return users;
    }

    // ---- one rewrite

    struct Parts {
        std::vector<int> gone, made;
        Names names;                                     // of what is made
        std::vector<std::pair<ItemRef, ItemRef>> moves;  // uses that go elsewhere
        bool placed = true;
    };

    void step(const Rewrite& rewrite, int index) {
        Parts parts;
        find_removed(rewrite, parts);
        std::vector<std::pair<ItemRef, std::string>> replaced;
        for (const auto& [from, to] : rewrite.replaced) {
            auto it = names_.find(from);
            if (it != names_.end() && !to.empty()) replaced.emplace_back(it->second, to);
        }
        std::vector<int> changed = make_added(rewrite, parts);
        for (const auto& [from, to] : replaced) parts.moves.emplace_back(from, resolve(to, parts));
        for (int item : parts.gone)
            for (size_t i = 0; i < facts(item).outputs.size(); ++i)
                if (auto it = parts.names.find(facts(item).outputs[i]); it != parts.names.end())
                    parts.moves.emplace_back(ItemRef{item, int(i)}, it->second);
        for (auto [from, to] : parts.moves) move_uses(from, to, parts);
        place_open_ends(parts);
        std::vector<int> unused;
        for (auto [from, _] : parts.moves) unused.push_back(from.item);
        for (int item : changed)
            for (ItemRef r : out_.versions[size_t(touched_.at(item))].inputs) unused.push_back(r.item);
        for (int item : parts.gone) {
            for (ItemRef r : now(item).inputs) unused.push_back(r.item);
            set(item, -1);
        }
        sweep(std::move(unused));
        out_.steps.push_back({index, rewrite.pass, parts.placed, take_changes()});
    }

    void find_removed(const Rewrite& rewrite, Parts& parts) const {
        for (const NodeText& text : rewrite.removed) {
            int item = find_removed(text, rewrite, parts.gone);
            if (item >= 0)
                parts.gone.push_back(item);
            else
                parts.placed = false;
        }
    }

    // By its name, by a name that was taken from it, or by what it does.
    int find_removed(const NodeText& text, const Rewrite& rewrite, const std::vector<int>& taken) const {
        auto fits = [&](int item) { return is_op(item, text.op) && !contains(taken, item); };
        auto same = [&](int item) {
            if (!fits(item) || facts(item).attrs != text.attrs) return false;
            const auto& inputs = now(item).inputs;
            for (size_t i = 0; i < text.inputs.size() && i < inputs.size(); ++i)
                if (inputs[i].item >= 0 && name_of(inputs[i]) != text.inputs[i]) return false;
            return true;
        };
        auto named = [&](const std::string& name) {
            auto it = names_.find(name);
            return it == names_.end() ? -1 : it->second.item;
        };
        for (const std::string& name : text.outputs)
            if (int item = named(name); item >= 0 && fits(item)) return item;
        for (const auto& [from, _] : rewrite.replaced)
            if (int item = named(from); item >= 0 && same(item)) return item;
        for (const NodeText& added : rewrite.added)
            for (const std::string& name : added.outputs)
                if (int item = named(name); item >= 0 && same(item)) return item;
        for (const auto& [from, _] : rewrite.replaced)
            if (int item = named(from); item >= 0 && fits(item)) return item;
        for (int item = 0; item < int(current_.size()); ++item)
            if (same(item)) return item;
        return -1;
    }

    std::string name_of(ItemRef r) const {
        if (!alive(r.item) || size_t(r.output) >= facts(r.item).outputs.size()) return {};
        return facts(r.item).outputs[size_t(r.output)];
    }

    // Adds what is new. A node that only got other inputs or attributes stays the item it was; those are given back.
    std::vector<int> make_added(const Rewrite& rewrite, Parts& parts) {
        std::vector<int> items, changed;
        for (const NodeText& text : rewrite.added) {
            auto same = std::find_if(parts.gone.begin(), parts.gone.end(), [&](int item) {
                return is_op(item, text.op) && facts(item).outputs == text.outputs;
            });
            items.push_back(same == parts.gone.end() ? add_item() : *same);
            if (same != parts.gone.end()) {
                changed.push_back(*same);
                parts.gone.erase(same);
            } else {
                parts.made.push_back(items.back());
            }
            for (size_t i = 0; i < text.outputs.size(); ++i) parts.names[text.outputs[i]] = {items.back(), int(i)};
        }
        for (size_t n = 0; n < items.size(); ++n) {
            const NodeText& text = rewrite.added[n];
            ItemFacts made;
            made.op = text.op;
            made.attrs = text.attrs;
            made.outputs = text.outputs;
            for (const std::string& name : text.outputs) made.types.push_back(type_of(name));
            made.complete = false;
            std::vector<ItemRef> inputs;
            for (const std::string& name : text.inputs) inputs.push_back(resolve(name, parts));
            open_.emplace(int(out_.versions.size()), items[n]);
            set(items[n], std::make_shared<const ItemFacts>(std::move(made)), std::move(inputs));
        }
        return changed;
    }

    // A value that takes over a name has that value's type.
    std::string type_of(const std::string& name) const {
        auto it = names_.find(name);
        if (it == names_.end()) return {};
        const auto& types = facts(it->second.item).types;
        return size_t(it->second.output) < types.size() ? types[size_t(it->second.output)] : "";
    }

    // A name that nobody has, or that only what goes has, is a new constant's, or a constant by value.
    ItemRef resolve(const std::string& name, const Parts& parts) {
        if (name == "_") return {};
        if (auto it = parts.names.find(name); it != parts.names.end()) return it->second;
        if (auto it = names_.find(name); it != names_.end() && !contains(parts.gone, it->second.item))
            return it->second;
        if (auto it = swept_.find(name); it != swept_.end()) return revive(it->second);
        ItemFacts made;
        made.kind = Kind::Constant;
        made.outputs = {name};
        made.types = {""};
        int item = add_item();
        open_.emplace(int(out_.versions.size()), item);
        set(item, std::make_shared<const ItemFacts>(std::move(made)), {});
        return {item, 0};
    }

    static bool contains(const std::vector<int>& items, int item) {
        return std::find(items.begin(), items.end(), item) != items.end();
    }

    // What nobody used for a while, and a later rewrite uses again.
    ItemRef revive(std::pair<ItemRef, int> swept) {
        auto [ref, version] = swept;
        if (alive(ref.item)) return ref;
        for (const std::string& name : out_.versions[size_t(version)].facts->outputs) swept_.erase(name);
        set(ref.item, version);
        std::vector<std::pair<ItemRef, int>> open;
        for (ItemRef r : now(ref.item).inputs)
            if (r.item >= 0 && !alive(r.item))
                for (const auto& [_, other] : swept_)
                    if (other.first == r) open.push_back(other);
        for (const auto& other : open) revive(other);
        return ref;
    }

    void move_uses(ItemRef from, ItemRef to, const Parts& parts) {
        if (from == to) return;
        for (int user : users_of(from.item)) {
            if (contains(parts.made, user) || contains(parts.gone, user)) continue;
            std::vector<ItemRef> inputs = now(user).inputs;
            std::replace(inputs.begin(), inputs.end(), from, to);
            if (inputs == now(user).inputs) continue;
            if (open_.contains(current_[size_t(user)])) open_.emplace(int(out_.versions.size()), user);
            set(user, now(user).facts, std::move(inputs));
        }
    }

    // What went and is still used, and what came and is not, belong together where there are as many of each.
    void place_open_ends(Parts& parts) {
        std::vector<ItemRef> lost, free;
        auto used = [&](ItemRef r) {
            for (int user : users_of(r.item)) {
                if (contains(parts.gone, user)) continue;
                const auto& inputs = now(user).inputs;
                if (std::find(inputs.begin(), inputs.end(), r) != inputs.end()) return true;
            }
            return false;
        };
        auto collect = [&](const std::vector<int>& items, bool wanted, std::vector<ItemRef>& into) {
            for (int item : items)
                for (size_t i = 0; i < facts(item).outputs.size(); ++i)
                    if (used({item, int(i)}) == wanted) into.push_back({item, int(i)});
        };
        collect(parts.gone, true, lost);
        if (lost.empty()) return;
        collect(parts.made, false, free);
        parts.placed = parts.placed && lost.size() == free.size();
        for (size_t i = 0; i < std::min(lost.size(), free.size()); ++i) move_uses(lost[i], free[i], parts);
    }

    void sweep(std::vector<int> open) {
        while (!open.empty()) {
            int item = open.back();
            open.pop_back();
            if (item < 0 || !alive(item) || facts(item).kind != Kind::Op || !users_of(item).empty()) continue;
            for (ItemRef r : now(item).inputs) open.push_back(r.item);
            for (size_t i = 0; i < facts(item).outputs.size(); ++i)
                swept_[facts(item).outputs[i]] = {ItemRef{item, int(i)}, current_[size_t(item)]};
            set(item, -1);
        }
    }

    // ---- the graph as it was after a pass

    void settle(const Snapshot& shot) {
        std::unordered_multimap<uint64_t, int> structures;
        for (int item = 0; item < int(current_.size()); ++item)
            if (alive(item) && facts(item).kind == Kind::Op)
                structures.emplace(structure_hash(facts(item), now(item).inputs), item);
        std::vector<bool> claimed(current_.size());
        std::vector<int> places;
        int outputs = 0;
        for (size_t i = 0; i < shot.items.size(); ++i) {
            const Facts& wanted = shot.items[i];
            std::vector<ItemRef> inputs = shot.inputs[i];
            for (ItemRef& r : inputs)
                if (r.item >= 0) r.item = places[size_t(r.item)];
            int item = -1;
            switch (wanted->kind) {
                case Kind::Op: item = find_op_item(*wanted, inputs, structures, claimed); break;
                case Kind::Constant: item = find_constant(*wanted, claimed); break;
                case Kind::Input: item = find_input(*wanted); break;
                case Kind::Output: item = find_output(size_t(outputs++)); break;
            }
            if (item < 0) item = add_item();
            if (wanted->kind == Kind::Output && size_t(outputs) > outputs_.size()) outputs_.push_back(item);
            claimed.resize(current_.size());
            claimed[size_t(item)] = true;
            places.push_back(item);
            update(item, wanted, std::move(inputs));
        }
        for (int item = 0; item < int(current_.size()); ++item)
            if (alive(item) && !claimed[size_t(item)] && facts(item).kind != Kind::Constant) set(item, -1);
        fill_in();
        swept_.clear();
    }

    // What a record left open of versions that are gone by now, where the one that followed tells.
    void fill_in() {
        for (auto [version, item] : open_) {
            Facts& open = out_.versions[size_t(version)].facts;
            if (alive(item) && facts(item).op == open->op && facts(item).attrs == open->attrs) open = now(item).facts;
        }
        open_.clear();
    }

    // The same node under the same name; the same under another one; one of that name that does something else now.
    int find_op_item(const ItemFacts& wanted, const std::vector<ItemRef>& inputs,
                     const std::unordered_multimap<uint64_t, int>& structures, const std::vector<bool>& claimed) const {
        auto free = [&](int item) { return is_op(item, wanted.op) && !claimed[size_t(item)]; };
        auto same = [&](int item) {
            return free(item) && facts(item).attrs == wanted.attrs && now(item).inputs == inputs &&
                   facts(item).outputs.size() == wanted.outputs.size();
        };
        auto it = names_.find(wanted.outputs[0]);
        int named = it == names_.end() ? -1 : it->second.item;
        if (named >= 0 && same(named)) return named;
        int found = -1;
        auto [first, last] = structures.equal_range(structure_hash(wanted, inputs));
        for (auto s = first; s != last; ++s)
            if (same(s->second) && (found < 0 || s->second < found)) found = s->second;
        if (found >= 0) return found;
        return named >= 0 && free(named) ? named : -1;
    }

    int find_constant(const ItemFacts& wanted, const std::vector<bool>& claimed) {
        auto fits = [&](int item) {
            return alive(item) && facts(item).kind == Kind::Constant && !claimed[size_t(item)] &&
                   (facts(item).types == wanted.types || facts(item).types[0].empty());
        };
        if (wanted.data) {
            auto it = by_data_.find(wanted.data);
            if (it != by_data_.end() && fits(it->second)) return it->second;
        } else {
            for (int item : by_text_[wanted.outputs[0]])
                if (fits(item) && facts(item).outputs == wanted.outputs) return item;
        }
        auto it = names_.find(wanted.outputs[0]);
        return it != names_.end() && fits(it->second.item) ? it->second.item : -1;
    }

    int find_input(const ItemFacts& wanted) const {
        auto it = inputs_.find({wanted.scope, wanted.outputs[0]});
        return it != inputs_.end() && alive(it->second) ? it->second : -1;
    }

    int find_output(size_t index) const { return index < outputs_.size() ? outputs_[index] : -1; }

    // Or not at all: which constant a record meant is seen only now. `any`: not just those that a record made.
    bool differ_in_constants(const std::vector<ItemRef>& a, const std::vector<ItemRef>& b, bool any) const {
        auto constant = [&](ItemRef r) { return r.item >= 0 && alive(r.item) && facts(r.item).kind == Kind::Constant; };
        if (a.size() != b.size()) return false;
        for (size_t i = 0; i < a.size(); ++i)
            if (!(a[i] == b[i]) &&
                !(constant(a[i]) && constant(b[i]) && (any || open_.contains(current_[size_t(a[i].item)]))))
                return false;
        return true;
    }

    void update(int item, const Facts& wanted, std::vector<ItemRef> inputs) {
        if (wanted->kind == Kind::Input) inputs_[{wanted->scope, wanted->outputs[0]}] = item;
        if (wanted->kind == Kind::Constant) {
            if (wanted->data)
                by_data_[wanted->data] = item;
            else
                by_text_[wanted->outputs[0]].push_back(item);
        }
        if (alive(item)) {
            const ItemVersion& v = now(item);
            if (v.inputs == inputs && (v.facts == wanted || *v.facts == *wanted)) return;
            // What a record left open is filled in.
            int version = current_[size_t(item)];
            bool same =
                v.facts == wanted || *v.facts == *wanted ||
                (open_.contains(version) && v.facts->outputs == wanted->outputs && v.facts->attrs == wanted->attrs);
            if (same && differ_in_constants(v.inputs, inputs, open_.contains(version))) {
                out_.versions[size_t(version)] = {wanted, std::move(inputs)};
                return;
            }
        }
        set(item, wanted, std::move(inputs));
    }

    Replay out_;
    std::vector<int> current_;             // by item: its version; -1: it is not there
    std::vector<std::vector<int>> users_;  // by item: who used it at some time
    Names names_;                          // of values that are there
    std::unordered_map<const void*, int> by_data_;
    std::unordered_map<std::string, std::vector<int>> by_text_;
    std::map<std::pair<std::string, std::string>, int> inputs_;  // by scope and name
    std::vector<int> outputs_;
    std::map<int, int> open_;  // versions made of records since the last snapshot, and of which item
    std::map<std::string, std::pair<ItemRef, int>> swept_;  // since then: by name, with the last version
    std::map<int, int> touched_;                            // in this step: the version before it
};

}  // namespace

Replay replay(const Snapshot& before, const std::vector<Rewrite>& rewrites, const std::vector<PassSnapshot>& passes) {
    return Replayer().run(before, rewrites, passes);
}

}  // namespace tessera::cli
