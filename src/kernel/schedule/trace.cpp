// The trace of a schedule: printed, read, and applied again.
#include <charconv>
#include <functional>
#include <map>

#include "kernel/schedule/schedule.h"

namespace tessera {
namespace {

using Args = std::vector<std::string>;
using Groups = std::vector<std::vector<int>>;

bool is_plain(const std::string& arg) { return !arg.empty() && arg.find_first_of(",()\"= ") == std::string::npos; }

std::string quoted(const std::string& arg) { return is_plain(arg) ? arg : "\"" + arg + "\""; }

Result<int64_t> to_number(const std::string& text) {
    int64_t value = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
        return Error(Code::E0602, "\"{}\" is not a number", text);
    if (value > INT32_MAX || value < INT32_MIN) return Error(Code::E0602, "{} is out of range", text);
    return value;
}

Result<Scope> to_scope(const std::string& text) {
    for (Scope s : {Scope::Global, Scope::Shared, Scope::Local, Scope::Register})
        if (scope_name(s) == text) return s;
    return Error(Code::E0602, "there is no scope {}", text).hint("the scopes are: global, shared, local, register");
}

// By its number, as traces have it, or by its name.
Result<int> to_buffer(const Schedule& s, const std::string& text) {
    const std::vector<Buffer>& buffers = s.compute().buffers;
    std::string all;
    for (size_t i = 0; i < buffers.size(); ++i) {
        if (buffers[i].name == text || std::to_string(i) == text) return static_cast<int>(i);
        all += (all.empty() ? "" : ", ") + buffers[i].name;
    }
    return Error(Code::E0602, "there is no buffer {}", text).hint("the buffers are: {}", all);
}

Result<Groups> to_groups(const std::string& text) {
    Groups groups;
    for (size_t i = 0; i < text.size();) {
        size_t end = std::min(text.find(';', i), text.size());
        groups.emplace_back();
        while (i < end) {
            size_t comma = std::min(text.find(',', i), end);
            groups.back().push_back(static_cast<int>(TRY(to_number(text.substr(i, comma - i)))));
            i = comma + 1;
        }
        i = end + 1;
    }
    return groups;
}

// Expressions between commas that stand in no parentheses.
Result<std::vector<Expr>> to_exprs(std::string_view text) {
    std::vector<Expr> all;
    int depth = 0;
    size_t begin = 0;
    for (size_t i = 0; i <= text.size(); ++i) {
        if (i < text.size() && (text[i] == '(' || text[i] == '[')) ++depth;
        if (i < text.size() && (text[i] == ')' || text[i] == ']')) --depth;
        if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
        std::string_view one = text.substr(begin, i - begin);
        begin = i + 1;
        if (one.find_first_not_of(' ') == std::string_view::npos) continue;
        std::optional<Expr> e = parse_dim(one);
        if (!e) return Error(Code::E0602, "\"{}\" is not an index expression", one);
        all.push_back(std::move(*e));
    }
    return all;
}

Result<IndexMap> to_map(const std::string& text) {
    size_t arrow = text.find("->"), less = text.rfind(" < ");
    if (arrow == std::string::npos || less == std::string::npos || less < arrow)
        return Error(Code::E0602, "\"{}\" is not a layout", text)
            .hint("i, j -> floordiv(i, 8), j, mod(i, 8) < 4, 16, 8");
    IndexMap map;
    map.vars = TRY(to_exprs(text.substr(0, arrow)));
    map.indices = TRY(to_exprs(text.substr(arrow + 2, less - arrow - 2)));
    map.shape = TRY(to_exprs(text.substr(less + 3)));
    for (const Expr& v : map.vars)
        if (!v.is(ExprKind::Var))
            return Error(Code::E0602, "\"{}\" is not a layout: {} is not a name", text, to_string(v));
    return map;
}

struct Primitive {
    size_t min_args, max_args;
    std::function<Status(Schedule&, const Args&)> apply;
};

template <typename T>
Status dropped(Result<T> result) {
    if (!result.ok()) return std::move(result).error();
    return {};
}

std::vector<Loop> to_loops(const Args& args) {
    std::vector<Loop> loops;
    for (const std::string& a : args) loops.push_back({a});
    return loops;
}

constexpr size_t kAny = SIZE_MAX;

const std::map<std::string, Primitive>& primitives() {
    using S = Schedule;
    static const std::map<std::string, Primitive> kAll{
        {"split", {2, 2, [](S& s, const Args& a) -> Status { return dropped(s.split({a[0]}, TRY(to_number(a[1])))); }}},
        {"split_parts",
         {2, 2, [](S& s, const Args& a) -> Status { return dropped(s.split_parts({a[0]}, TRY(to_number(a[1])))); }}},
        {"split_whole",
         {2, 2, [](S& s, const Args& a) -> Status { return dropped(s.split_whole({a[0]}, TRY(to_number(a[1])))); }}},
        {"fuse", {2, 2, [](S& s, const Args& a) { return dropped(s.fuse({a[0]}, {a[1]})); }}},
        {"reorder", {0, kAny, [](S& s, const Args& a) { return s.reorder(to_loops(a)); }}},
        {"tile",
         {4, 4,
          [](S& s, const Args& a) -> Status {
              int64_t fa = TRY(to_number(a[2]));
              return dropped(s.tile({a[0]}, {a[1]}, fa, TRY(to_number(a[3]))));
          }}},
        {"unroll", {1, 1, [](S& s, const Args& a) { return s.unroll({a[0]}); }}},
        {"vectorize", {1, 1, [](S& s, const Args& a) { return s.vectorize({a[0]}); }}},
        {"parallel", {1, 1, [](S& s, const Args& a) { return s.parallel({a[0]}); }}},
        {"bind", {2, 2, [](S& s, const Args& a) { return s.bind({a[0]}, a[1]); }}},
        {"annotate",
         {3, 3, [](S& s, const Args& a) -> Status { return s.annotate({a[0]}, a[1], TRY(to_number(a[2]))); }}},
        {"loop_partition", {1, 1, [](S& s, const Args& a) { return s.loop_partition({a[0]}); }}},
        {"skew", {3, 3, [](S& s, const Args& a) -> Status { return s.skew({a[0]}, {a[1]}, TRY(to_number(a[2]))); }}},
        {"fission", {1, 1, [](S& s, const Args& a) { return s.fission({a[0]}); }}},
        {"compute_inline", {1, 1, [](S& s, const Args& a) { return s.compute_inline(a[0]); }}},
        {"reverse_compute_inline", {1, 1, [](S& s, const Args& a) { return s.reverse_compute_inline(a[0]); }}},
        {"compute_at", {2, 2, [](S& s, const Args& a) { return s.compute_at(a[0], {a[1]}); }}},
        {"reverse_compute_at", {2, 2, [](S& s, const Args& a) { return s.reverse_compute_at(a[0], {a[1]}); }}},
        {"compute_root", {1, 1, [](S& s, const Args& a) { return s.compute_root(a[0]); }}},
        {"cache_read",
         {3, 3,
          [](S& s, const Args& a) -> Status {
              int buffer = TRY(to_buffer(s, a[1]));
              return dropped(s.cache_read(a[0], buffer, TRY(to_scope(a[2]))));
          }}},
        {"cache_write",
         {2, 2, [](S& s, const Args& a) -> Status { return dropped(s.cache_write(a[0], TRY(to_scope(a[1])))); }}},
        {"set_scope", {2, 2, [](S& s, const Args& a) -> Status { return s.set_scope(a[0], TRY(to_scope(a[1]))); }}},
        {"rfactor", {1, 1, [](S& s, const Args& a) { return dropped(s.rfactor({a[0]})); }}},
        {"decompose_reduction", {2, 2, [](S& s, const Args& a) { return s.decompose_reduction(a[0], {a[1]}); }}},
        {"reindex",
         {2, 2,
          [](S& s, const Args& a) -> Status {
              return dropped(s.reindex(a[0], static_cast<int>(TRY(to_number(a[1])))));
          }}},
        {"merge_axes",
         {2, 3,
          [](S& s, const Args& a) -> Status {
              Groups axes = TRY(to_groups(a[1]));
              return s.merge_axes(a[0], axes, TRY(to_groups(a.size() > 2 ? a[2] : "")));
          }}},
        {"transform_layout",
         {2, 2, [](S& s, const Args& a) -> Status { return s.transform_layout(a[0], TRY(to_map(a[1]))); }}},
        {"pad",
         {1, kAny,
          [](S& s, const Args& a) -> Status {
              std::vector<int64_t> multiples;
              for (size_t i = 1; i < a.size(); ++i) multiples.push_back(TRY(to_number(a[i])));
              return s.pad(a[0], multiples);
          }}},
        {"storage_align",
         {4, 4,
          [](S& s, const Args& a) -> Status {
              int64_t dim = TRY(to_number(a[1])), factor = TRY(to_number(a[2]));
              return s.storage_align(a[0], static_cast<int>(dim), factor, TRY(to_number(a[3])));
          }}},
        {"tensorize", {2, 2, [](S& s, const Args& a) { return s.tensorize({a[0]}, a[1]); }}},
        {"prefetch",
         {4, 4,
          [](S& s, const Args& a) -> Status {
              int buffer = TRY(to_buffer(s, a[1]));
              return s.prefetch(a[0], buffer, {a[2]}, TRY(to_number(a[3])));
          }}},
        {"prefetch_next",
         {5, 5,
          [](S& s, const Args& a) -> Status {
              int buffer = TRY(to_buffer(s, a[1]));
              return s.prefetch_next(a[0], buffer, {a[2]}, {a[3]}, {a[4]});
          }}},
        {"pipeline",
         {2, 2,
          [](S& s, const Args& a) -> Status { return s.pipeline({a[0]}, static_cast<int>(TRY(to_number(a[1])))); }}},
        {"online",
         {3, kAny,
          [](S& s, const Args& a) -> Status {
              int64_t block = TRY(to_number(a.back()));
              return dropped(s.online({a.begin(), a.end() - 1}, block));
          }}},
        {"double_buffer", {1, 1, [](S& s, const Args& a) { return s.double_buffer(a[0]); }}},
    };
    return kAll;
}

// Reads one line; positions are for messages.
class LineReader {
  public:
    LineReader(std::string_view text, size_t line) : text_(text), line_(line) {}

    Result<TraceStep> read() {
        TraceStep step;
        std::vector<std::string> words = TRY(list('='));
        if (at_ < text_.size() && text_[at_] == '=') {
            ++at_;
            step.results = std::move(words);
            words = TRY(list('('));
        }
        if (words.size() != 1 || at_ >= text_.size() || text_[at_] != '(')
            return wrong("a primitive and its arguments");
        step.primitive = words[0];
        ++at_;
        step.args = TRY(list(')'));
        if (at_ >= text_.size() || text_[at_] != ')') return wrong("\")\"");
        ++at_;
        skip();
        if (at_ != text_.size()) return wrong("the end of the line");
        return step;
    }

  private:
    void skip() {
        while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
    }

    Error wrong(std::string_view wanted) const {
        return Error(Code::E0301, "expected {} in \"{}\"", wanted, text_)
            .at(fmt::format("trace:{}:{}", line_, at_ + 1));
    }

    // Words up to one of ( ) = that ends the list.
    Result<std::vector<std::string>> list(char end) {
        std::vector<std::string> words;
        for (skip(); at_ < text_.size() && text_[at_] != end && text_[at_] != '('; skip()) {
            if (!words.empty()) {
                if (text_[at_] != ',') return wrong("\",\"");
                ++at_;
                skip();
            }
            if (at_ < text_.size() && text_[at_] == '"') {
                size_t close = text_.find('"', at_ + 1);
                if (close == std::string_view::npos) return wrong("a closing quote");
                words.emplace_back(text_.substr(at_ + 1, close - at_ - 1));
                at_ = close + 1;
                continue;
            }
            size_t stop = std::min(text_.find_first_of(",()=\" \t\r", at_), text_.size());
            if (stop == at_) return wrong("a name or number");
            words.emplace_back(text_.substr(at_, stop - at_));
            at_ = stop;
        }
        return words;
    }

    std::string_view text_;
    size_t line_, at_ = 0;
};

}  // namespace

std::string Schedule::print_trace() const {
    std::string text;
    for (const TraceStep& step : trace_) {
        for (size_t i = 0; i < step.results.size(); ++i) text += (i ? ", " : "") + quoted(step.results[i]);
        if (!step.results.empty()) text += " = ";
        text += step.primitive + "(";
        for (size_t i = 0; i < step.args.size(); ++i) text += (i ? ", " : "") + quoted(step.args[i]);
        text += ")\n";
    }
    return text;
}

Result<std::vector<TraceStep>> Schedule::parse_trace(std::string_view text) {
    std::vector<TraceStep> steps;
    size_t line = 0;
    while (!text.empty()) {
        size_t end = std::min(text.find('\n'), text.size());
        std::string_view one = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        ++line;
        const size_t first = one.find_first_not_of(" \t\r");
        if (first == std::string_view::npos || one.substr(first).starts_with("//")) continue;
        steps.push_back(TRY(LineReader(one, line).read()));
    }
    return steps;
}

Result<std::vector<std::string>> Schedule::apply(const std::string& name, const std::vector<std::string>& args) {
    auto found = primitives().find(name);
    if (found == primitives().end()) return Error(Code::E0602, "there is no primitive {}", name);
    const Primitive& primitive = found->second;
    if (args.size() < primitive.min_args || args.size() > primitive.max_args)
        return Error(Code::E0602, "{} takes {} arguments, not {}", name, primitive.min_args, args.size());
    const size_t before = trace_.size();
    TRY(primitive.apply(*this, args));
    return trace_.size() > before ? trace_.back().results : std::vector<std::string>{};
}

Result<Schedule> Schedule::replay(Compute compute, std::span<const TraceStep> trace) {
    Schedule schedule(std::move(compute));
    for (size_t i = 0; i < trace.size(); ++i) {
        const TraceStep& step = trace[i];
        std::string where = fmt::format("step {}, {}", i + 1, step.primitive);
        Result<std::vector<std::string>> made = schedule.apply(step.primitive, step.args);
        if (!made.ok()) return std::move(made).error().at(where);
        if (!step.results.empty() && *made != step.results)
            return Error(Code::E0602, "{} created names that differ from those in the trace", step.primitive).at(where);
    }
    return schedule;
}

}  // namespace tessera
