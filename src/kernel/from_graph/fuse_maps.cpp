#include <algorithm>
#include <map>
#include <set>

#include "kernel/from_graph/fuse_groups.h"

namespace tessera {
namespace {

constexpr double kFlopsPerByte = 4;                            // what can be computed while a byte is moved
constexpr double kNearBytes = 4 << 20, kFlopsPerNearByte = 1;  // the same where a cache of a processor holds them
constexpr double kCostly = 16;                       // operations of an element: a function of it is among them
constexpr double kLaunch = 20000;                    // operations that a kernel of its own costs
constexpr double kGather = 48, kGatherOfBlocks = 4;  // operations that are as slow as fetching one element by itself
constexpr double kQuotient = 8;      // and as finding an element by a quotient, its neighbours being the same ones
constexpr double kStep = 8;          // and as fetching every second one
constexpr size_t kMaxNodes = 600;    // of an expression after inlining
constexpr int kMaxQuotients = 8;     // of quotients of indices, one map read through another
constexpr int kMaxPlaces = 8;        // loads of padded elements in one expression
constexpr size_t kMaxStages = 4;     // that a map with work in it is copied into,
constexpr double kLight = 4;         // unless it is so little, on a GPU, and there is less to read
constexpr double kColumnsOfRow = 8;  // of a product, that ask for an element of its only row once, as lanes would

// A GPU's tensor cores, in operations of a product of 16-bit operands while a byte is moved: by tiles that are copied
// as they lie in memory, and by tiles whose elements threads compute first. A kernel of its own costs so many bytes.
constexpr double kCopiedTiles = 150, kComputedTiles = 15, kLaunchBytes = 8 << 20;

// Where a map would be computed if it were inlined: in a stage, for so many elements, at so many places of its code.
struct Site {
    int stage;
    double times, places = 1;
};

size_t node_count(const Expr& e) {
    size_t n = 0;
    visit(e, [&](const Expr&) { ++n; });
    return n;
}

class MapFusion {
  public:
    explicit MapFusion(Fusion& fusion)
        : fusion_(fusion), acc_(fusion.acc), sites_(size_t(acc_.count())), quotients_(size_t(acc_.count())) {}

    // Readers come first: where they are inlined is where this one would be.
    void run() {
        for (int n = acc_.count() - 1; n >= 0; --n) {
            if (!acc_.live(n) || !acc_.def(n).has_body() || acc_.is_view(n)) continue;
            if (fusion_.group_of[size_t(n)] >= 0) continue;
            for (int r : acc_.readers(n)) add_sites(n, r);
            merge(sites_[size_t(n)]);
            for (int r : acc_.readers(n)) quotients_[size_t(n)] = std::max(quotients_[size_t(n)], quotients(n, r));
            if (fusion_.decided[size_t(n)]) continue;  // a part of a region
            decide(n);
        }
        for (int n = 0; n < acc_.count(); ++n) take_along(n);
    }

  private:
    // A map that is kept, and is read by nothing but a map of its elements that was inlined elsewhere: that one is kept
    // instead, since as many bytes are moved, and it is computed once. A region that wants it as it lies keeps it so.
    void take_along(int n) {
        const int group = fusion_.group_of[size_t(n)];
        if (group < 0 || acc_.kept(n) || acc_.def(n).kind != Definition::Kind::Map) return;
        if (acc_.readers(n).size() != 1 || !stands_alone(n, group)) return;
        if (std::find(fusion_.stored.begin(), fusion_.stored.end(), n) != fusion_.stored.end()) return;
        const int reader = acc_.readers(n)[0];
        const Definition& d = acc_.def(reader);
        if (d.kind != Definition::Kind::Map || fusion_.group_of[size_t(reader)] >= 0) return;
        for (const Reading& a : acc_.reads(reader))
            if (a.source == n && !same_elements(d.shape, acc_.def(n).shape, a.at)) return;
        if (bytes_of(d) > bytes_of(acc_.def(n))) return;
        // A group that it is a part of may make what else it reads: then the two would wait for each other.
        std::set<int> within;
        for (const Site& s : sites_[size_t(reader)]) within.insert(fusion_.group_of[size_t(s.stage)]);
        std::set<int> seen;
        if (made_in(reader, within, seen)) return;
        fusion_.group_of[size_t(n)] = -1;
        fusion_.group_of[size_t(reader)] = group;
        fusion_.groups[size_t(group)].back() = reader;
        fusion_.code[size_t(group)] += fusion_.code_of(reader);
        fusion_.choose(fmt::format("fuse {} into {}", acc_.name(reader), acc_.name(n)),
                       yes("what is written is read by nothing else"));
    }

    // It is all of its group, but for sums that it is made of.
    bool stands_alone(int n, int group) const {
        const std::vector<int>& members = fusion_.groups[size_t(group)];
        return members.back() == n && std::all_of(members.begin(), members.end() - 1, [&](int m) {
                   return acc_.def(m).kind == Definition::Kind::Map && !acc_.def(m).value;
               });
    }

    // Whether what a map reads, through others that are inlined, is made by one of these groups.
    bool made_in(int n, const std::set<int>& groups, std::set<int>& seen) const {
        for (const Reading& a : acc_.reads(n)) {
            if (!seen.insert(a.source).second) continue;
            const int group = fusion_.group_of[size_t(a.source)];
            if (group >= 0 ? groups.contains(group) : acc_.def(a.source).has_body() && made_in(a.source, groups, seen))
                return true;
        }
        return false;
    }

    void add_sites(int n, int reader) {
        const double share = share_of_part(n, reader);
        std::set<std::vector<size_t>> places;
        size_t first = sites_[size_t(n)].size();
        for (const Reading& a : acc_.reads(reader)) {
            if (a.source != n) continue;
            if (fusion_.group_of[size_t(reader)] >= 0)
                sites_[size_t(n)].push_back({reader, share * evaluations(reader, a)});
            else
                for (const Site& s : sites_[size_t(reader)])
                    sites_[size_t(n)].push_back({s.stage, share * s.times, s.places});
            std::vector<size_t> place;
            for (const Expr& index : a.at) place.push_back(index.hash());
            places.insert(std::move(place));
        }
        for (; first < sites_[size_t(n)].size(); ++first) sites_[size_t(n)][first].places *= double(places.size());
    }

    // How often indices are divided from a stage on down to the map, where this reader reads it.
    int quotients(int n, int reader) const {
        const std::vector<Reading>& reads = acc_.reads(reader);
        const bool divides = std::any_of(reads.begin(), reads.end(), [&](const Reading& a) {
            return a.source == n && std::any_of(a.at.begin(), a.at.end(), divides_place);
        });
        return int(divides) + (fusion_.group_of[size_t(reader)] >= 0 ? 0 : quotients_[size_t(reader)]);
    }

    // A concatenation reads each of its parts where that part is.
    double share_of_part(int n, int reader) const {
        const Definition& d = acc_.def(reader);
        if (d.kind != Definition::Kind::Map || !d.node || !d.node->op().joined_axis) return 1;
        return std::min(1.0, elements_of(acc_.def(n).shape) / std::max(1.0, elements_of(d.shape)));
    }

    // What two readers of a stage read at the same place is computed once.
    static void merge(std::vector<Site>& sites) {
        std::map<int, Site> by_stage;
        for (const Site& s : sites) {
            Site& all = by_stage.try_emplace(s.stage, Site{s.stage, 0}).first->second;
            all.times += s.times;
            all.places = std::max(all.places, s.places);
        }
        sites.clear();
        for (auto& [stage, all] : by_stage) sites.push_back(all);
    }

    // The code of a group if a map is inlined at these of its sites.
    std::map<int, CodeSize> code_with(int n, const std::vector<Site>& sites) const {
        std::map<int, CodeSize> code;
        const CodeSize own = fusion_.code_of(n);
        for (const Site& s : sites) {
            const int group = fusion_.group_of[size_t(s.stage)];
            // Its own load is replaced.
            code.try_emplace(group, fusion_.code[size_t(group)]).first->second +=
                CodeSize{own.code * s.places, (own.loads - 1) * s.places};
        }
        return code;
    }

    // How often a stage asks for elements by this access. An operand of a contraction is packed: it is asked for once
    // for each element of the panel. The only row of one is not: it is asked for by each tile of columns, one by one.
    double evaluations(int stage, const Reading& a) const {
        const Definition& d = acc_.def(stage);
        const Expr& body = acc_.body(stage);
        const Expr* within = nullptr;
        if (is_contraction(acc_, stage)) {
            for (const Expr& operand : body.args())
                for (int slot : loaded_slots(operand))
                    if (slot == a.source) within = &operand;
        }
        double times = 1, others = 1;
        for (const ReduceAxis& axis : d.axes())
            (!within || depends_on_any(*within, {axis}) ? times : others) *= size_of(axis.extent);
        if (within && times <= 1) times = std::max(1.0, others / kColumnsOfRow);
        for (const ReduceAxis& axis : d.reduce)
            if (!within || depends_on_any(*within, {axis})) times *= size_of(axis.extent);
        return times;
    }

    void decide(int n) {
        const Definition& d = acc_.def(n);
        const std::vector<Site>& sites = sites_[size_t(n)];
        if (acc_.kept(n) || sites.empty()) {
            fusion_.add_group({n});
            return;
        }
        if (sums_of_tile(n, sites)) return;
        Decision decision = worth_inlining(n, d, sites);
        std::string into;
        for (size_t i = 0; i < sites.size() && i < 3; ++i) into += (i ? ", " : "") + acc_.name(sites[i].stage);
        if (sites.size() > 3) into += fmt::format(" and {} more", sites.size() - 3);
        bool yes = bool(decision);
        if (!yes && row_stage(n, sites)) return;
        fusion_.choose(fmt::format("fuse {} into {}", acc_.name(n), into), std::move(decision));
        if (!yes) return void(fusion_.add_group({n}));
        fusion_.decided[size_t(n)] = true;
        for (auto [group, code] : code_with(n, sites)) fusion_.code[size_t(group)] = code;
    }

    // Sums of which others of the same op are made, on a GPU: a stage of what those are a part of, for threads have a
    // whole tile at hand.
    bool sums_of_tile(int n, const std::vector<Site>& sites) {
        const Definition& d = acc_.def(n);
        if (!fusion_.blocks || d.value || sites.size() != 1 || !has_phases(d.body)) return false;
        const std::vector<int>& readers = acc_.readers(n);
        if (readers.size() != 1 || acc_.def(readers[0]).node != d.node || !has_phases(acc_.def(readers[0]).body))
            return false;
        const int group = fusion_.group_of[size_t(sites[0].stage)];
        std::vector<int>& members = fusion_.groups[size_t(group)];
        members.insert(std::lower_bound(members.begin(), members.end(), n), n);
        fusion_.group_of[size_t(n)] = group;
        fusion_.decided[size_t(n)] = true;
        fusion_.code[size_t(group)] += fusion_.code_of(n);
        return true;
    }

    Decision worth_inlining(int n, const Definition& d, const std::vector<Site>& sites) {
        const double work = operations(acc_.body(n)) + (gathers(n)   ? (fusion_.blocks ? kGatherOfBlocks : kGather)
                                                        : divides(n) ? kQuotient
                                                        : steps(n)   ? kStep
                                                                     : 0),
                     elements = std::max(1.0, elements_of(d.shape));
        double times = 0, inputs = 0;
        for (const Site& s : sites) times += s.times;
        for (const Reading& a : distinct(acc_.reads(n)))
            inputs += std::min(bytes_of(acc_.def(a.source)), elements * double(dtype_bytes(acc_.def(a.source).dtype)));
        for (auto [group, code] : code_with(n, sites))
            if (!code.fits())
                return no("{} would compute {:.0f} operations of an element, of {:.0f} loads",
                          acc_.name(fusion_.groups[size_t(group)].back()), code.code, code.loads);
        const double readers = double(sites.size()), own = bytes_of(d);
        const double saved = inputs + own + readers * own - readers * inputs;
        const double again = work * std::max(0.0, times - elements);
        if (const double lost = slower_products(n, sites, inputs); lost > std::max(0.0, saved) + kLaunchBytes)
            return no("a product of computed tiles takes as long as moving {:.0f} KB more, against {:.0f} KB",
                      lost / 1000, saved / 1000);
        const double light = fusion_.blocks && saved > 0 ? kLight : 0;
        if (sites.size() > kMaxStages && work > light) return no("{} kernels read it", sites.size());
        const bool once = sites.size() == 1 && times <= elements && most_places(n, sites) <= 1 &&
                          acc_.def(sites[0].stage).kind == Definition::Kind::Map;
        if (quotients_[size_t(n)] > kMaxQuotients)
            return no("its elements would be found by {} quotients of quotients", quotients_[size_t(n)]);
        if (!once && node_count(acc_.body(n)) > kMaxNodes) return no("its expression is too large");
        if (!once && has_phases(acc_.body(n))) return no("its neighbours are made of the same elements in other ways");
        if (int places = most_places(n, sites); places > kMaxPlaces && chooses(acc_.body(n)))
            return no("each of the {} places where it is read would ask for its padding", places);
        const bool apart = std::any_of(sites.begin(), sites.end(), [&](const Site& s) {
            return fusion_.group_of[size_t(s.stage)] != fusion_.group_of[size_t(sites[0].stage)];
        });
        const bool near = !fusion_.blocks && apart && work >= kCostly && own + inputs <= kNearBytes;
        if (again > std::max(0.0, saved) * (near ? kFlopsPerNearByte : kFlopsPerByte) + kLaunch)
            return no("computed {:.1f} times: {:.0f} Kflop again against {:.0f} KB", times / elements, again / 1000,
                      saved / 1000);
        if (saved < 0 && -saved * kFlopsPerByte > kLaunch)
            return no("what it is made of is {:.0f} KB more to read", -saved / 1000);
        return yes("{:.0f} KB are not written and read again, {:.0f} Kflop are done again", std::max(0.0, saved) / 1000,
                   again / 1000);
    }

    // What products on a GPU lose where they compute an operand's elements, in bytes that could be moved meanwhile.
    // Elements that are made of fewer bytes are computed in any case: they are weights of few bits.
    double slower_products(int n, const std::vector<Site>& sites, double inputs) const {
        const Definition& d = acc_.def(n);
        if (!fusion_.blocks || dtype_bytes(d.dtype) != 2 || !is_float(d.dtype) || only_moves(n)) return 0;
        const double own = bytes_of(d);
        double lost = 0;
        for (const Site& s : sites) {
            if (!is_contraction(acc_, s.stage) || inputs < own) continue;
            const Definition& product = acc_.def(s.stage);
            double work = 2 * elements_of(product.shape);
            for (const ReduceAxis& axis : product.reduce) work *= size_of(axis.extent);
            const double moved = own + bytes_of(product);
            lost += std::max(work / kComputedTiles, moved) - std::max(work / kCopiedTiles, moved);
        }
        return lost;
    }

    bool only_moves(int n) const {
        Expr e = acc_.body(n);
        while (e.is(ExprKind::Cast)) e = e.arg(0);
        return e.is(ExprKind::Load) && e.dtype() == acc_.def(n).dtype;
    }

    // Whether neighbours in memory are made of elements that lie apart.
    bool gathers(int n) const {
        for (const Reading& a : acc_.reads(n))
            if (!a.at.empty() && chooses_place(a.at[size_t(acc_.order(a.source).back())])) return true;
        return false;
    }

    // Whether neighbours in memory are found by quotients.
    bool divides(int n) const {
        for (const Reading& a : acc_.reads(n))
            if (!a.at.empty() && divides_place(a.at[size_t(acc_.order(a.source).back())])) return true;
        return false;
    }

    // Whether neighbours in memory are made of every second element, or of fewer.
    bool steps(int n) const {
        if (acc_.def(n).shape.empty()) return false;
        const Expr var = index_vars(acc_.def(n).shape)[size_t(acc_.order(n).back())];
        for (const Reading& a : acc_.reads(n)) {
            if (a.at.empty()) continue;
            const auto step = step_of(a.at[size_t(acc_.order(a.source).back())], var);
            if (step && step->as_int().value_or(1) > 1) return true;
        }
        return false;
    }

    // The most loads of n in one stage.
    int most_places(int n, const std::vector<Site>& sites) const {
        int most = 0;
        for (const Site& s : sites) {
            int places = 0;
            for (const Reading& a : acc_.reads(s.stage)) places += a.source == n;
            most = std::max(most, places);
        }
        return most;
    }

    static bool chooses(const Expr& body) {
        bool found = false;
        visit(body, [&](const Expr& e) { found |= e.is(ExprKind::Select); });
        return found;
    }

    // Another expression for each place along an axis, or for each remainder: together they share what they read.
    static bool has_phases(const Expr& body) {
        bool found = false;
        visit(body, [&](const Expr& e) {
            if (!e.is(ExprKind::Select) || !e.arg(0).is(ExprKind::Eq) || !is_float(e.dtype())) return;
            for (size_t side : {0, 1}) {
                const Expr &what = e.arg(0).arg(side), &number = e.arg(0).arg(1 - side);
                found |= number.as_int() && (what.is(ExprKind::Var) || what.is(ExprKind::Mod)) &&
                         !e.arg(1).is(ExprKind::Const) && !e.arg(2).is(ExprKind::Const);
            }
        });
        return found;
    }

    static std::vector<Reading> distinct(const std::vector<Reading>& reads) {
        std::vector<Reading> out;
        for (const Reading& a : reads)
            if (std::none_of(out.begin(), out.end(), [&](const Reading& b) { return b.source == a.source; }))
                out.push_back(a);
        return out;
    }

    // A map that only one group reads, row by row: a stage of that group, so that each row is computed once.
    bool row_stage(int n, const std::vector<Site>& sites) {
        const int group = fusion_.group_of[size_t(sites[0].stage)];
        for (const Site& s : sites)
            if (fusion_.group_of[size_t(s.stage)] != group) return false;
        for (int r : acc_.readers(n))
            if (fusion_.group_of[size_t(r)] != group) return false;
        std::vector<int>& members = fusion_.groups[size_t(group)];
        size_t rows = acc_.def(n).shape.size();
        bool reduces = false;
        for (int m : members) {
            const Definition& d = acc_.def(m);
            if (d.kind != Definition::Kind::Reduction) continue;
            if (is_contraction(acc_, m) || !is_row_reduction(acc_, m)) return false;
            rows = std::min(rows, d.shape.size());
            reduces = true;
        }
        if (!reduces) return false;
        for (int r : acc_.readers(n))
            for (const Reading& a : acc_.reads(r)) {
                if (a.source != n) continue;
                for (size_t k = 0; k < rows; ++k) {
                    const Expr& at = a.at[size_t(acc_.order(n)[k])];
                    if (acc_.def(r).shape.size() < rows || !at.is(ExprKind::Var) ||
                        at.node().name != fmt::format("%i{}", acc_.order(r)[k]))
                        return false;
                }
            }
        members.insert(std::lower_bound(members.begin(), members.end(), n), n);
        fusion_.group_of[size_t(n)] = group;
        fusion_.decided[size_t(n)] = true;
        fusion_.code[size_t(group)] += fusion_.code_of(n);
        fusion_.choose(fmt::format("fuse {} into {}", acc_.name(n), acc_.name(members.back())),
                       yes("{:.0f} KB stay in the cache, row by row", 2 * bytes_of(acc_.def(n)) / 1000));
        return true;
    }

    Fusion& fusion_;
    const Accesses& acc_;
    std::vector<std::vector<Site>> sites_;
    std::vector<int> quotients_;  // by definition
};

}  // namespace

void fuse_maps(Fusion& fusion) { MapFusion(fusion).run(); }

}  // namespace tessera
