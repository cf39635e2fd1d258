#include "tile/verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace tessera::tile {
namespace {

constexpr size_t kMostRank = 8;

bool is_one(const Type& t) { return t.shape.empty() && !t.pointer; }
bool can_compute(DType t) { return kBodyTypes.has(t) && (dtype_bits(t) >= 8 || t == DType::boolean); }

class Verifier {
  public:
    explicit Verifier(const ProgramData& program) : program_(program), given_(program.types.size()), ever_(given_) {}

    Status run() {
        for (const Type& type : program_.types) TRY(check_type(type));
        for (const Parameter& p : program_.parameters) {
            TRY(give(p.value));
            if (!type(p.value).shape.empty()) return wrong("parameter {} is a tile", p.name);
        }
        return region(program_.body, 0);
    }

  private:
    const Type& type(int value) const { return program_.types[static_cast<size_t>(value)]; }
    const Type& in(size_t n) const { return type(at_->inputs[n]); }
    const Type& out(size_t n = 0) const { return type(at_->outputs[n]); }

    template <typename... Args>
    Error wrong(fmt::format_string<Args...> text, Args&&... args) const {
        const std::string what = fmt::format(text, std::forward<Args>(args)...);
        return Error(Code::E0601, "tile program {}: {}{}", program_.name,
                     at_ ? fmt::format("{}: ", kind_name(at_->kind)) : "", what);
    }

    Status check_type(const Type& t) const {
        if (!can_compute(t.then.value_or(t.dtype))) return wrong("there are no tiles of {}", dtype_name(t.dtype));
        int64_t count = 1;
        for (int64_t size : t.shape) {
            if (size < 1 || size > kMostElements) return wrong("{} is no size of a tile", size);
            count *= size;
            if (count > kMostElements) return wrong("a tile of more than {} elements", kMostElements);
        }
        if (t.shape.size() > kMostRank) return wrong("a tile of {} dimensions", t.shape.size());
        return {};
    }

    Status give(int value) {
        if (value < 0 || static_cast<size_t>(value) >= given_.size()) return wrong("there is no value {}", value);
        if (ever_[static_cast<size_t>(value)]) return wrong("value {} is given twice", value);
        given_[static_cast<size_t>(value)] = ever_[static_cast<size_t>(value)] = true;
        inside_.push_back(value);
        return {};
    }
    Status use(int value) const {
        if (value < 0 || static_cast<size_t>(value) >= given_.size() || !given_[static_cast<size_t>(value)])
            return wrong("value {} is not given before", value);
        return {};
    }

    // `kept`: what the region gives stays known, for the region that follows it.
    Status region(const Region& r, int depth, bool kept = false) {
        if (depth > kDeepestRegion) return wrong("regions nested more than {} deep", kDeepestRegion);
        const size_t before = inside_.size();
        for (int a : r.arguments) TRY(give(a));
        for (const Instruction& i : r.instructions) TRY(instruction(i, depth));
        for (int v : r.results) TRY(use(v));
        if (!kept) leave(before);
        return {};
    }
    // Values of a region are known no more behind it.
    void leave(size_t before) {
        for (; inside_.size() > before; inside_.pop_back()) given_[static_cast<size_t>(inside_.back())] = false;
    }

    Status instruction(const Instruction& i, int depth) {
        const Instruction* outer = at_;
        at_ = &i;
        for (int v : i.inputs) TRY(use(v));
        for (int v : i.outputs)
            if (v < 0 || static_cast<size_t>(v) >= given_.size()) return wrong("there is no value {}", v);
        TRY(kind());
        const size_t before = inside_.size();
        for (size_t r = 0; r < i.regions.size(); ++r) {
            const std::vector<Type> wanted = region_arguments(i, r, program_.types);
            const std::vector<int>& arguments = i.regions[r].arguments;
            if (arguments.size() != wanted.size()) return wrong("a region of {} arguments", arguments.size());
            for (size_t a = 0; a < wanted.size(); ++a)
                if (static_cast<size_t>(arguments[a]) < given_.size() && type(arguments[a]) != wanted[a])
                    return wrong("argument {} is {}, not {}", a, type(arguments[a]).to_string(), wanted[a].to_string());
            TRY(region(i.regions[r], depth + 1, i.kind == Kind::While));
            at_ = &i;
            TRY(results(r));
        }
        leave(before);
        for (int v : i.outputs) TRY(give(v));
        at_ = outer;
        return {};
    }

    Status results(size_t r) const {
        const std::vector<int>& given = at_->regions[r].results;
        if (at_->kind == Kind::While && r == 0) {
            const bool fits = given.size() == 1 && type(given[0]) == Type{.dtype = DType::boolean};
            return fits ? Status() : wrong("the condition is one bool");
        }
        if (given.size() != at_->outputs.size())
            return wrong("a region gives {} values, not {}", given.size(), at_->outputs.size());
        const bool combines = at_->kind == Kind::Reduce || at_->kind == Kind::Scan;
        for (size_t v = 0; v < given.size(); ++v) {
            const Type wanted = combines ? Type{.dtype = out(v).dtype} : out(v);
            if (type(given[v]) != wanted)
                return wrong("a region gives {}, not {}", type(given[v]).to_string(), wanted.to_string());
        }
        return {};
    }

    Status counts(size_t inputs, size_t outputs, size_t numbers = 0) const {
        if (at_->inputs.size() != inputs) return wrong("{} inputs, not {}", at_->inputs.size(), inputs);
        if (at_->outputs.size() != outputs) return wrong("{} outputs, not {}", at_->outputs.size(), outputs);
        if (at_->numbers.size() != numbers) return wrong("{} numbers, not {}", at_->numbers.size(), numbers);
        return {};
    }
    Status gives(const Type& wanted, size_t n = 0) const {
        if (out(n) == wanted) return {};
        return wrong("gives {}, not {}", out(n).to_string(), wanted.to_string());
    }
    Status expect(bool holds, std::string_view what) const { return holds ? Status() : Status(wrong("{}", what)); }
    Result<size_t> axis(int64_t n, size_t rank) const {
        if (n < 0 || n >= static_cast<int64_t>(rank)) return wrong("axis {} of {} dimensions", n, rank);
        return static_cast<size_t>(n);
    }

    Status kind() const {
        const size_t regions =
            at_->kind == Kind::If || at_->kind == Kind::While                                                       ? 2
            : at_->kind == Kind::For || at_->kind == Kind::Scan || (at_->kind == Kind::Reduce && at_->word.empty()) ? 1
                                                                                                                    : 0;
        if (at_->regions.size() != regions) return wrong("{} regions, not {}", at_->regions.size(), regions);
        switch (at_->kind) {
            case Kind::Constant:
            case Kind::Arange:
            case Kind::ProgramId:
            case Kind::ProgramCount: return leaf();
            case Kind::Map:
            case Kind::Bits: return computed();
            case Kind::Offset:
            case Kind::Address:
            case Kind::PointerAt:
            case Kind::PlaceOf:
            case Kind::Choose: return pointer();
            case Kind::Load:
            case Kind::Store:
            case Kind::Atomic: return memory();
            case Kind::Dot: return product();
            case Kind::Reduce:
            case Kind::Scan: return reduction();
            case Kind::If:
            case Kind::For:
            case Kind::While: return flow();
            case Kind::Print:
            case Kind::Assert: return report();
            default: return view();
        }
    }

    Status leaf() const {
        if (at_->kind == Kind::Constant) {
            TRY(counts(0, 1));
            TRY(expect(at_->body.is(ExprKind::Const), "its body is no number"));
            return gives({.dtype = at_->body.dtype()});
        }
        if (at_->kind == Kind::Arange) {
            TRY(counts(0, 1, 2));
            const int64_t begin = at_->numbers[0], end = at_->numbers[1];
            const bool fits = begin >= INT32_MIN && end <= INT32_MAX && begin < end;
            TRY(expect(fits, "its ends are no range of i32"));
            return gives({.dtype = DType::i32, .shape = {end - begin}});
        }
        TRY(counts(0, 1, 1));
        TRY(axis(at_->numbers[0], 3));
        return gives({.dtype = DType::i32});
    }

    Status computed() const {
        if (at_->kind == Kind::Bits) {
            TRY(counts(1, 1));
            const auto bits = [](DType t) { return t == DType::boolean ? 8 : dtype_bits(t); };
            TRY(expect(!in(0).pointer && bits(in(0).dtype) == bits(out().dtype), "other bits than those of its input"));
            return gives({.dtype = out().dtype, .shape = in(0).shape});
        }
        if (at_->inputs.empty()) return wrong("no inputs");
        TRY(counts(at_->inputs.size(), 1));
        TRY(expect(at_->word.empty() || at_->word == "rounded", "a word that it does not know"));
        for (size_t n = 0; n < at_->inputs.size(); ++n)
            TRY(expect(!in(n).pointer && in(n).shape == in(0).shape, "its inputs have different shapes"));
        TRY(body());
        return gives({.dtype = at_->body.dtype(), .shape = in(0).shape});
    }
    Status body() const {
        std::string fault;
        visit(at_->body, [&](const Expr& e) {
            if (e.is(ExprKind::Var) || e.is(ExprKind::Reduce) || (e.is(ExprKind::Call) && is_dot(e.node().fn)))
                fault = "its body has something that maps have not";
            if (!can_compute(e.dtype())) fault = fmt::format("its body computes with {}", dtype_name(e.dtype()));
            if (!e.is(ExprKind::Load)) return;
            const auto slot = static_cast<size_t>(e.node().slot);
            if (slot >= at_->inputs.size() || !e.args().empty() || in(slot).dtype != e.dtype())
                fault = "its body reads what is no input";
        });
        return expect(fault.empty(), fault);
    }

    Status pointer() const {
        TRY(counts(at_->kind == Kind::Choose ? 3 : at_->kind == Kind::Offset ? 2 : 1, 1));
        if (at_->kind == Kind::Choose) {
            const Type condition{.dtype = DType::boolean, .pointer = false, .shape = in(1).shape};
            TRY(expect(in(0) == condition && in(1).pointer && in(1) == in(2), "takes a condition and two pointers"));
            return gives(in(1));
        }
        if (at_->kind == Kind::Offset) {
            TRY(expect(in(0).pointer && !in(1).pointer && is_int(in(1).dtype) && in(0).shape == in(1).shape,
                       "takes a pointer and an integer of one shape"));
            return gives(in(0));
        }
        const bool from = at_->kind != Kind::PointerAt;
        TRY(expect(in(0).pointer == from && out().pointer != from, "is between a pointer and a number"));
        TRY(expect((from ? out() : in(0)).dtype == DType::i64 && in(0).shape == out().shape, "takes and gives i64"));
        return {};
    }

    Status memory() const {
        const bool loads = at_->kind == Kind::Load, stores = at_->kind == Kind::Store;
        const size_t count = at_->inputs.size();
        const size_t values = loads ? 0 : at_->word == "compare" ? 2 : 1;
        TRY(counts(count, stores ? 0 : 1));
        TRY(expect(count > values && count <= (loads ? 3 : values + 2) && in(0).pointer, "takes a pointer first"));
        const Type element{.dtype = in(0).dtype, .pointer = false, .shape = in(0).shape};
        const Type mask{.dtype = DType::boolean, .pointer = false, .shape = in(0).shape};
        for (size_t v = 1; v <= values; ++v)
            TRY(expect(in(v) == element, "a value of another type than the pointer's"));
        if (count > values + 1) TRY(expect(in(values + 1) == mask, "a mask of another shape than the pointer's"));
        if (loads && count > 2) TRY(expect(in(2) == element, "another value of another type than the pointer's"));
        if (stores) return {};
        if (!loads) {
            constexpr std::string_view kWords[] = {"add", "min", "max", "and", "or", "xor", "exchange", "compare"};
            TRY(expect(std::find(std::begin(kWords), std::end(kWords), at_->word) != std::end(kWords),
                       "a word that it does not know"));
            const bool bits = at_->word == "and" || at_->word == "or" || at_->word == "xor";
            const DType t = element.dtype;
            TRY(expect(t != DType::boolean && !kNarrowFloats.has(t) && !(bits && is_float(t)),
                       "no such update of elements of this type"));
        }
        return gives(element);
    }

    Status product() const {
        TRY(counts(at_->inputs.size() == 3 ? 3 : 2, 1, at_->numbers.empty() ? 0 : 1));
        TRY(expect(at_->numbers.empty() || at_->numbers[0] > 0, "its number of products is not positive"));
        TRY(expect(at_->word.empty() || at_->word == "tf32" || at_->word == "tf32x3", "its precision is none"));
        const std::vector<int64_t>&a = in(0).shape, &b = in(1).shape;
        const size_t rank = a.size();
        TRY(expect(!in(0).pointer && !in(1).pointer && (rank == 2 || rank == 3) && b.size() == rank &&
                       a[rank - 1] == b[rank - 2] && (rank == 2 || a[0] == b[0]),
                   "its operands are no matrices that can be multiplied"));
        const bool bytes = dtype_bits(in(0).dtype) == 8 && dtype_bits(in(1).dtype) == 8;
        TRY(expect(in(0).dtype == in(1).dtype || bytes, "its operands have different types"));
        TRY(expect(in(0).dtype != DType::boolean && is_float(in(0).dtype) == is_float(in(1).dtype) &&
                       is_float(in(0).dtype) == is_float(out().dtype),
                   "its result has another kind of numbers"));
        TRY(expect(!kNarrowFloats.has(out().dtype) && out().dtype != DType::boolean, "its result is too narrow"));
        Type wanted{.dtype = out().dtype, .pointer = false, .shape = a};
        wanted.shape[rank - 1] = b[rank - 1];
        if (at_->inputs.size() == 3) TRY(expect(in(2) == wanted, "what is added has another type than the result"));
        return gives(wanted);
    }

    Status reduction() const {
        const bool scans = at_->kind == Kind::Scan, by_word = !at_->word.empty();
        const size_t count = at_->inputs.size();
        if (count == 0) return wrong("no inputs");
        TRY(counts(by_word ? 1 : count, by_word ? 1 : count, scans ? 2 : 1));
        const std::string& how = at_->word;
        TRY(expect(!by_word || (!scans && (how == "sum" || how == "min" || how == "max" || how == "xor")),
                   "a word that it does not know"));
        const size_t along = TRY(axis(at_->numbers[0], in(0).shape.size()));
        if (scans) TRY(expect(at_->numbers[1] == 0 || at_->numbers[1] == 1, "neither forwards nor backwards"));
        for (size_t n = 0; n < count; ++n) {
            TRY(expect(!in(n).pointer && in(n).shape == in(0).shape, "its inputs have different shapes"));
            TRY(expect(how != "xor" || !is_float(in(n).dtype), "xor of floats"));
            Type wanted = in(n);
            if (!scans) wanted.shape.erase(wanted.shape.begin() + static_cast<std::ptrdiff_t>(along));
            TRY(gives(wanted, n));
        }
        return {};
    }

    Status flow() const {
        const size_t before = at_->kind == Kind::If ? 1 : at_->kind == Kind::For ? 3 : 0;
        const size_t count = at_->inputs.size(), outputs = at_->outputs.size();
        TRY(counts(at_->kind == Kind::If ? 1 : before + outputs, outputs));
        if (at_->kind == Kind::If) return expect(in(0) == Type{.dtype = DType::boolean}, "its condition is no bool");
        for (size_t n = 0; n < before; ++n)
            TRY(expect(is_one(in(n)) && is_int(in(n).dtype) && in(n) == in(0), "its bounds are integers of one type"));
        for (size_t n = before; n < count; ++n) TRY(gives(in(n), n - before));
        return {};
    }

    Status report() const {
        const bool asserts = at_->kind == Kind::Assert;
        TRY(counts(asserts ? 1 : at_->inputs.size(), 0, asserts ? 0 : 1));
        for (size_t n = 0; n < at_->inputs.size(); ++n)
            TRY(expect(!in(n).pointer && in(n).shape == in(0).shape, "its inputs have different shapes"));
        return expect(!asserts || in(0).dtype == DType::boolean, "its condition is no bool");
    }

    // The same elements in other places.
    Status view() const {
        const Kind kind = at_->kind;
        const bool two = kind == Kind::Join || kind == Kind::Concatenate || kind == Kind::Gather;
        const size_t numbers = kind == Kind::Permute                        ? at_->numbers.size()
                               : kind == Kind::Gather || kind == Kind::Flip ? 1
                                                                            : 0;
        TRY(counts(two ? 2 : 1, kind == Kind::Split ? 2 : 1, numbers));
        const std::vector<int64_t>& from = in(0).shape;
        Type wanted = in(0);
        switch (kind) {
            case Kind::Broadcast: {
                wanted.shape = out().shape;
                bool fits = from.empty() || from.size() == wanted.shape.size();
                for (size_t d = 0; fits && d < from.size(); ++d) fits = from[d] == 1 || from[d] == wanted.shape[d];
                TRY(expect(fits, "its input does not broadcast to its shape"));
                break;
            }
            case Kind::Reshape:
                wanted.shape = out().shape;
                TRY(expect(element_count(in(0)) == element_count(wanted), "another number of elements"));
                break;
            case Kind::Permute: {
                std::vector<int64_t> sorted = at_->numbers;
                std::sort(sorted.begin(), sorted.end());
                bool order = sorted.size() == from.size();
                for (size_t d = 0; order && d < sorted.size(); ++d) order = sorted[d] == static_cast<int64_t>(d);
                TRY(expect(order, "no order of its dimensions"));
                for (size_t d = 0; d < from.size(); ++d) wanted.shape[d] = from[static_cast<size_t>(at_->numbers[d])];
                break;
            }
            case Kind::Join:
                TRY(expect(in(0) == in(1), "its inputs have different types"));
                wanted.shape.push_back(2);
                break;
            case Kind::Split:
                TRY(expect(!from.empty() && from.back() == 2, "the last dimension is not 2"));
                wanted.shape.pop_back();
                TRY(gives(wanted, 1));
                break;
            case Kind::Concatenate: {
                const std::vector<int64_t>& other = in(1).shape;
                TRY(expect(!from.empty() && other.size() == from.size() && in(0).dtype == in(1).dtype &&
                               in(0).pointer == in(1).pointer &&
                               std::equal(from.begin() + 1, from.end(), other.begin() + 1),
                           "its inputs do not fit together"));
                wanted.shape[0] += other[0];
                break;
            }
            case Kind::Gather: {
                const size_t along = TRY(axis(at_->numbers[0], from.size()));
                wanted.shape = in(1).shape;
                bool fits =
                    !in(0).pointer && !in(1).pointer && is_int(in(1).dtype) && wanted.shape.size() == from.size();
                for (size_t d = 0; fits && d < from.size(); ++d) fits = d == along || from[d] == wanted.shape[d];
                TRY(expect(fits, "its indices do not fit"));
                break;
            }
            case Kind::Flip: TRY(axis(at_->numbers[0], from.size())); break;
            default: CHECK(false, "a kind that is no view");
        }
        return gives(wanted);
    }

    const ProgramData& program_;
    const Instruction* at_ = nullptr;
    std::vector<bool> given_, ever_;  // known here; somewhere
    std::vector<int> inside_;
};

class Arrays {
  public:
    explicit Arrays(const ProgramData& program) : program_(program), of_(program.types.size(), -1) {}
    Result<std::vector<int>> run() {
        for (size_t p = 0; p < program_.parameters.size(); ++p)
            if (points(program_.parameters[p].value)) at(program_.parameters[p].value) = static_cast<int>(p);
        TRY(region(program_.body));
        return of_;
    }

  private:
    bool points(int value) const { return program_.types[static_cast<size_t>(value)].pointer; }
    int& at(int value) { return of_[static_cast<size_t>(value)]; }

    Status same(const Instruction& i, int value, int other) {
        if (!points(value) || at(value) == at(other)) return {};
        return Error(Code::E0601, "tile program {}: {}: cannot determine which array a pointer refers to",
                     program_.name, kind_name(i.kind))
            .at(i.place.line ? i.place.to_string() : "");
    }

    Status region(const Region& r) {
        for (const Instruction& i : r.instructions) {
            const size_t before = i.kind == Kind::For ? 3 : 0;
            if (i.kind == Kind::For || i.kind == Kind::While) {
                const std::vector<int>& arguments = i.regions[0].arguments;
                for (size_t c = 0; c < i.outputs.size(); ++c)
                    at(arguments[c + (before ? 1 : 0)]) = at(i.outputs[c]) = at(i.inputs[c + before]);
            }
            for (const Region& inner : i.regions) TRY(region(inner));
            if (i.kind == Kind::For || i.kind == Kind::While)
                for (size_t c = 0; c < i.outputs.size(); ++c) TRY(same(i, i.outputs[c], i.regions.back().results[c]));
            if (i.kind == Kind::If)
                for (size_t c = 0; c < i.outputs.size(); ++c) {
                    at(i.outputs[c]) = at(i.regions[0].results[c]);
                    TRY(same(i, i.outputs[c], i.regions[1].results[c]));
                }
            if (!i.regions.empty()) continue;
            if (i.kind == Kind::PointerAt || i.kind == Kind::Address)
                return Error(Code::E0601, "tile program {}: a pointer is created from a number", program_.name)
                    .at(i.place.line ? i.place.to_string() : "");
            for (int out : i.outputs) {
                if (!points(out)) continue;
                for (int in : i.inputs) {
                    if (!points(in)) continue;
                    if (at(out) < 0) at(out) = at(in);
                    TRY(same(i, out, in));
                }
            }
        }
        return {};
    }

    const ProgramData& program_;
    std::vector<int> of_;
};

}  // namespace

std::vector<Type> region_arguments(const Instruction& i, size_t region, const std::vector<Type>& types) {
    std::vector<Type> all;
    const auto type = [&](size_t n) { return types[static_cast<size_t>(i.inputs[n])]; };
    if (region > 0) return all;
    if (i.kind == Kind::For && !i.inputs.empty()) {
        all.push_back(type(0));
        for (size_t n = 3; n < i.inputs.size(); ++n) all.push_back(type(n));
    }
    if (i.kind == Kind::While)
        for (size_t n = 0; n < i.inputs.size(); ++n) all.push_back(type(n));
    if (i.kind == Kind::Reduce || i.kind == Kind::Scan)
        for (int of = 0; of < 2; ++of)
            for (size_t n = 0; n < i.inputs.size(); ++n) all.push_back({.dtype = type(n).dtype});
    return all;
}

Status verify(const ProgramData& program) { return Verifier(program).run(); }

Result<std::vector<int>> arrays_of_pointers(const ProgramData& program) { return Arrays(program).run(); }

}  // namespace tessera::tile
