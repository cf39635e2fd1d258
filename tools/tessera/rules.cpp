// tessera rules: the rewrite rules, the functions they may call, and whether they hold.
#include <filesystem>
#include <fstream>

#include "base/thread_pool.h"
#include "discover/believe.h"
#include "discover/check/verify_rule.h"
#include "discover/prove/prove_rule.h"
#include "help.h"
#include "rewrite/refute/refute.h"
#include "rewrite/rules/functions.h"

namespace tessera::cli {
namespace {

constexpr const char* kRulesExamples =
    "Examples:\n"
    "  tessera rules list\n"
    "  tessera rules check\n"
    "  tessera rules check mine.rules --seed 7\n"
    "  tessera rules check --rule transpose-of-transpose --instances 1000\n"
    "  tessera rules functions\n"
    "  tessera rules prove rules/linear.rules\n"
    "  tessera rules verify rules/found/x.rules\n";

struct NamedRules {
    std::string file;
    Rules rules;
    Certificates certificates = {};  // those that lie beside the file
};

// Those of the files; the built-in ones where there are none.
Result<std::vector<NamedRules>> rules_of(const std::vector<std::string>& files, const std::string& only) {
    std::vector<NamedRules> all;
    for (const std::string& file : files) {
        Rules rules = TRY(load_rules(file));
        Certificates certificates;
        if (const std::string beside = certificates_path(file); std::filesystem::exists(beside))
            certificates = TRY(load_certificates(beside));
        all.push_back({file, std::move(rules), std::move(certificates)});
    }
    if (files.empty())
        for (const RuleFile& file : built_in_rule_files())
            all.push_back({std::string(file.name), built_in_rules(file.name), built_in_certificates(file.name)});
    if (only.empty()) return all;
    for (NamedRules& part : all) std::erase_if(part.rules, [&](const Rule& r) { return r.name != only; });
    std::erase_if(all, [](const NamedRules& part) { return part.rules.empty(); });
    if (all.empty())
        return Error(Code::E0501, "there is no rule \"{}\"", only).hint("tessera rules list shows them all");
    return all;
}

size_t count(const std::vector<NamedRules>& all) {
    size_t n = 0;
    for (const NamedRules& part : all) n += part.rules.size();
    return n;
}

std::string how_compared(const Verdict& v) {
    std::vector<std::string> parts;
    auto add = [&](int n, const char* what) {
        if (n > 0) parts.push_back(fmt::format("{} {}", n, what));
    };
    add(v.by_bits, "by bits");
    add(v.by_floats, "by floats");
    add(v.by_integers, "by integers");
    add(v.by_field, "in the field");
    return fmt::format("{}", fmt::join(parts, ", "));
}

Json verdict_json(const std::string& file, const Rule& rule, const Verdict& v) {
    Json j{{"rule", rule.name},          {"file", file},
           {"source", rule.source},      {"class", name_of(rule.exactness)},
           {"verdict", name_of(v.kind)}, {"instances", v.instances},
           {"draws", v.draws},           {"by_bits", v.by_bits},
           {"by_floats", v.by_floats},   {"by_integers", v.by_integers},
           {"in_field", v.by_field},     {"beyond_field", v.beyond_field}};
    if (!v.counterexample) return j;
    const Counterexample& c = *v.counterexample;
    Json inputs = Json::object();
    for (const auto& [name, elements] : c.inputs) inputs[name] = elements;
    j["counterexample"] = {
        {"left", c.left}, {"right", c.right}, {"inputs", inputs}, {"by", c.how}, {"difference", c.difference}};
    return j;
}

struct Check {
    std::vector<std::string> files;
    std::string only;
    bool json = false;
    RefuteOptions options;
    Progress::Mode progress = Progress::Mode::Auto;

    bool printed = false;  // the answer, as JSON

    Status operator()() {
        std::vector<NamedRules> all = TRY(rules_of(files, only));
        options.cancel = &interrupted();
        Stopwatch watch;
        size_t done = 0;
        const size_t total = count(all);
        Json list = Json::array();
        std::vector<std::string> refuted, untested;
        // Without JSON, the lines say how far it is.
        Progress line(json ? progress : Progress::Mode::Never, "checking");
        for (const NamedRules& part : all) {
            for (const Rule& rule : part.rules) {
                line.update(rule.name, done++, total);
                Verdict v = TRY(refute(rule, options));
                if (v.kind == Verdict::Kind::Refuted) refuted.push_back(rule.name);
                if (v.kind == Verdict::Kind::Untested) untested.push_back(rule.name);
                if (json)
                    list.push_back(verdict_json(part.file, rule, v));
                else
                    print_line(rule, v);
            }
        }
        printed = true;
        std::vector<std::string> failed = refuted;
        failed.insert(failed.end(), untested.begin(), untested.end());
        if (json)
            print_json({{"seed", options.seed},
                        {"rules", list},
                        {"failed", failed},
                        {"refuted", refuted},
                        {"untested", untested}});
        else
            fmt::print("{}, {} refuted, {} not tested; seed {}, {}\n", plural(double(total), "rule"), refuted.size(),
                       untested.size(), options.seed, human_seconds(watch.seconds()));
        if (failed.empty()) return {};
        auto says = [&](const std::vector<std::string>& names, const char* one, const char* several) {
            return fmt::format("{} of {} {}: {}", names.size(), plural(double(total), "rule"),
                               names.size() == 1 ? one : several, fmt::join(names, ", "));
        };
        const std::string not_tested = says(untested, "is untested", "are untested");
        if (refuted.empty())
            return Error(Code::E0305, "{}", not_tested)
                .note("the refuter found no random graph that they match, so they are neither refuted nor tested")
                .hint("repeat it with --seed {}, or look for a condition that never holds", options.seed);
        Error error(Code::E0305, "{}", says(refuted, "does not hold", "do not hold"));
        if (!untested.empty()) error = std::move(error).note("{}", not_tested);
        return std::move(error).hint("repeat it with --seed {}", options.seed);
    }

  private:
    static void print_line(const Rule& rule, const Verdict& v) {
        std::string name = rule.name.size() > 43 ? rule.name.substr(0, 40) + "..." : rule.name;
        fmt::print("{:<8}  {:<44} {:<13} {} of {}{}{}\n", name_of(v.kind), name, name_of(rule.exactness), v.instances,
                   plural(double(v.draws), "graph"), v.instances ? ": " : "", how_compared(v));
        if (v.counterexample) {
            std::string text = escaped(v.counterexample->to_string());
            size_t at = 0;
            while (at < text.size()) {
                size_t end = std::min(text.find('\n', at), text.size());
                fmt::print("    {}\n", text.substr(at, end - at));
                at = end + 1;
            }
        }
        std::fflush(stdout);
    }
};

// Tries to prove each rule for all sizes, with shapes made up for its variables.
struct Prove {
    std::vector<std::string> files;
    std::string only;
    bool json = false, write = false;
    bool printed = false;  // the answer, as JSON

    Status operator()() {
        if (write && (files.empty() || !only.empty()))
            return Error(Code::E0501, "--write needs rule files, and all of their rules");
        std::vector<NamedRules> all = TRY(rules_of(files, only));
        Json list = Json::array();
        std::map<std::string_view, size_t> counts;
        Stopwatch watch;
        const RefuteOptions effort = refuter_effort(&interrupted());
        for (const NamedRules& part : all) {
            std::string entries;
            for (const Rule& rule : part.rules) {
                if (interrupted()) return Error(Code::E0410, "interrupted");
                RuleProof proof = write ? prove_for_any_rank(rule) : prove_rule(rule);
                bool untested = false;
                if (proof.proved) {
                    const Verdict tried = TRY(confirm(rule, proof.entry.empty() ? proof.where : proof.entry, effort));
                    untested = tried.kind == Verdict::Kind::Untested;
                    if (untested) proof = not_tested(proof, tried);
                }
                if (auto old = part.certificates.find(rule.name); !proof.entry.empty())
                    entries += proof.entry;
                else if (old != part.certificates.end() && !old->second.listed.empty())
                    entries += fmt::format("rule {}\nlisted {}\nend\n", rule.name, old->second.listed);
                std::string_view verdict = proof.proved     ? "proved"
                                           : untested       ? "untested"
                                           : proof.by_cases ? "cases"
                                                            : "unproved";
                ++counts[verdict];
                if (json)
                    list.push_back({{"rule", rule.name},
                                    {"file", part.file},
                                    {"proved", proof.proved},
                                    {"untested", untested},
                                    {"by_cases", proof.by_cases},
                                    {"claims", proof.claims},
                                    {"where", proof.where},
                                    {"reason", proof.reason}});
                else
                    fmt::print("{:<8}  {:<44} {}\n", verdict, rule.name,
                               escaped(proof.proved ? proof.where : proof.reason));
            }
            if (!write) continue;
            std::ofstream out(certificates_path(part.file), std::ios::binary);
            out << "// Written by tessera rules prove --write, replayed by tessera rules verify.\n" << entries;
            if (!out.flush()) return Error(Code::E0103, "cannot write \"{}\"", certificates_path(part.file));
        }
        printed = true;
        if (json)
            print_json({{"rules", list}});
        else
            fmt::print("{}, {} proved, {}{} by cases, {}\n", plural(double(count(all)), "rule"), counts["proved"],
                       counts["untested"] ? fmt::format("{} untested, ", counts["untested"]) : "", counts["cases"],
                       human_seconds(watch.seconds()));
        return {};
    }

  private:
    // A proof that the refuter had too few graphs to confirm: one line of two.
    static RuleProof not_tested(const RuleProof& proof, const Verdict& tried) {
        RuleProof out;
        out.claims = proof.claims;
        out.reason = fmt::format(
            "a proof was found ({}), but the refuter drew {} that the rule applies to, of {} tried: it is not believed",
            proof.where, tried.instances == 0 ? "no graph" : plural(double(tried.instances), "graph"), tried.draws);
        return out;
    }
};

// Replays the certificates of the rules that are said to be proved, and has the refuter confirm them.
struct Verify {
    std::vector<std::string> files;
    std::string only;
    bool json = false;
    bool printed = false;  // the answer, as JSON

    Status operator()() {
        std::vector<NamedRules> all = TRY(rules_of(files, only));
        const RefuteOptions effort = refuter_effort(&interrupted());
        size_t proved = 0;
        std::vector<Error> refused;
        std::vector<std::string> names;  // of the refused
        Listed listed;                   // without a certificate, and why
        Stopwatch watch;
        for (const NamedRules& part : all) {
            const bool said = std::any_of(part.rules.begin(), part.rules.end(),
                                          [](const Rule& r) { return r.evidence == Evidence::Proved; });
            if (said && part.certificates.empty()) TRY(load_certificates(certificates_path(part.file)));
            std::vector<const Rule*> said_so;
            for (const Rule& rule : part.rules) {
                auto entry = part.certificates.find(rule.name);
                const bool is_listed = entry != part.certificates.end() && !entry->second.listed.empty();
                const bool has_one = entry != part.certificates.end() && !is_listed;
                if (rule.evidence == Evidence::Proved || has_one)
                    said_so.push_back(&rule);
                else if (is_listed)
                    listed.emplace_back(rule.name, entry->second.listed);
            }
            proved += said_so.size();
            std::vector<Status> verdicts(said_so.size());
            Team team;
            team.each(static_cast<int64_t>(said_so.size()), [&](int64_t i, int) {
                if (!interrupted()) verdicts[i] = both_lines(*said_so[i], part.certificates, effort);
            });
            if (interrupted()) return Error(Code::E0410, "interrupted");
            for (size_t i = 0; i < said_so.size(); ++i) {
                if (verdicts[i].ok()) continue;
                refused.push_back(verdicts[i].error());
                names.push_back(said_so[i]->name);
            }
        }
        printed = true;
        if (json)
            print_json({{"rules", count(all)},
                        {"proved", proved},
                        {"hold", proved - refused.size()},
                        {"refused", refused.size()},
                        {"failed", names},
                        {"listed", listed_json(listed)}});
        else
            print_text(count(all), proved, refused.size(), listed, watch.seconds());
        if (refused.empty()) return {};
        if (refused.size() == 1) return refused[0];
        const std::string note = refused[0].note();
        return std::move(refused[0]).note("{}{}and {} more", note, note.empty() ? "" : "\n", refused.size() - 1);
    }

  private:
    using Listed = std::vector<std::pair<std::string, std::string>>;
    static Json listed_json(const Listed& listed) {
        Json out = Json::array();
        for (const auto& [name, why] : listed) out.push_back({{"rule", name}, {"reason", why}});
        return out;
    }
    static void print_text(size_t rules, size_t proved, size_t refused, const Listed& listed, double seconds) {
        for (const auto& [name, why] : listed) fmt::print("listed    {:<44} {}\n", name, escaped(why));
        fmt::print("{}, {} said to be proved, {} of their certificates hold, {}{}\n", plural(double(rules), "rule"),
                   proved, proved - refused,
                   listed.empty() ? "" : fmt::format("{} listed without one, ", listed.size()), human_seconds(seconds));
    }
    static Status both_lines(const Rule& rule, const Certificates& certificates, const RefuteOptions& effort) {
        auto entry = certificates.find(rule.name);
        if (entry == certificates.end() || !entry->second.listed.empty()) return verify_rule(rule, certificates);
        TRY(believe(rule, certificates, effort));
        return {};
    }
};

// Why a rule is used.
struct Belief {
    std::string_view kind;
    std::string text;
};
Belief believed_by(const Rule& rule, const Certificates& certificates) {
    if (auto entry = certificates.find(rule.name); entry != certificates.end()) {
        if (!entry->second.listed.empty()) return {"listed", "random graphs, and listed: " + entry->second.listed};
        if (Status held = verify_rule(rule, certificates); !held.ok())
            return {"broken", "nothing: its certificate does not hold"};
        if (entry->second.certificate.text.starts_with("elements"))
            return {"certificate", "a certificate, for any rank and all sizes (tessera rules verify)"};
        return {"certificate", "a certificate, for all sizes (tessera rules verify)"};
    }
    if (rule.evidence == Evidence::Proved) return {"missing", "a certificate that is not here"};
    if (rule.evidence == Evidence::Tested) return {"tested", "random numbers, when it was found"};
    return {"tested", "random graphs (tessera rules check), and cases for all sizes where tessera rules prove says so"};
}

struct List {
    std::vector<std::string> files;
    std::string only;
    bool json = false;

    Status operator()() const {
        std::vector<NamedRules> all = TRY(rules_of(files, only));
        if (json) {
            Json list = Json::array();
            for (const NamedRules& part : all)
                for (const Rule& rule : part.rules) {
                    const Belief belief = believed_by(rule, part.certificates);
                    list.push_back({{"name", rule.name},
                                    {"class", name_of(rule.exactness)},
                                    {"evidence", name_of(rule.evidence)},
                                    {"belief", belief.kind},
                                    {"believed_by", belief.text},
                                    {"file", part.file},
                                    {"source", rule.source},
                                    {"comment", rule.comment},
                                    {"rule", to_string(rule)}});
                }
            print_json({{"rules", list}});
            return {};
        }
        std::map<std::string_view, size_t> counts;
        for (const NamedRules& part : all) {
            fmt::print("{}\n", bold(part.file));
            std::string said;
            for (const Rule& rule : part.rules) {
                const Belief belief = believed_by(rule, part.certificates);
                ++counts[belief.kind];
                if (belief.text != said)
                    fmt::print("  {}\n", dim(fmt::format("// believed by {}", escaped(said = belief.text))));
                std::string comment = rule.comment;
                for (size_t at = 0; (at = comment.find('\n', at)) != std::string::npos;)
                    comment.replace(at, 1, "\n  // ");
                if (!comment.empty()) fmt::print("  {}\n", dim("// " + escaped(comment)));
                fmt::print("  {}\n", escaped(to_string(rule)));
            }
        }
        std::string kinds;
        for (const auto& [kind, n] : counts) kinds += fmt::format(", {} by {}", n, kind);
        fmt::print("{}, believed{}\n", plural(double(count(all)), "rule"),
                   kinds.substr(std::min<size_t>(1, kinds.size())));
        return {};
    }
};

struct Functions {
    bool json = false, markdown = false;

    Status operator()() const {
        Json list = Json::array();
        if (markdown) fmt::print("| function | gives | meaning |\n| --- | --- | --- |\n");
        for (const RuleFunction& f : rule_functions()) {
            std::vector<std::string_view> takes;
            for (TermKind kind : f.takes) takes.push_back(name_of(kind));
            std::string call = fmt::format("{}({}{})", f.name, fmt::join(takes, ", "), f.variadic ? ", ..." : "");
            if (json)
                list.push_back({{"name", f.name},
                                {"takes", takes},
                                {"gives", name_of(f.gives)},
                                {"variadic", f.variadic},
                                {"meaning", f.meaning}});
            else if (markdown)
                fmt::print("| `{}` | {} | {} |\n", call, name_of(f.gives), f.meaning);
            else
                fmt::print("{:<56} {:<20} {}\n", call, name_of(f.gives), f.meaning);
        }
        if (json) print_json({{"functions", list}});
        return {};
    }
};

void add_check(CLI::App& rules, Chosen& chosen) {
    auto check = std::make_shared<Check>();
    CLI::App* c = rules.add_subcommand("check", "Try to refute each rule on random graphs that it matches");
    c->add_option("file", check->files, "Rule files; without any, the built-in rules");
    c->add_option("--rule", check->only, "Only the rule of this name")->option_text("NAME");
    c->add_option("--seed", check->options.seed, "Seed for random graphs and values (0)")
        ->option_text("N")
        ->check(at_least(0));
    c->add_option("--instances", check->options.instances, "Matching graphs to try for each rule (100)")
        ->check(between(1, 1'000'000))
        ->option_text("N");
    c->add_flag("--json", check->json, "Print JSON");
    add_progress_option(*c, check->progress);
    c->footer(fmt::format("{}\n{}", kRulesExamples, kExitStatus));
    c->callback([check, &chosen] {
        chosen = [check] {
            Status status = (*check)();
            return report(status, check->json && !check->printed);
        };
    });
}

void add_list(CLI::App& rules, Chosen& chosen) {
    auto list = std::make_shared<List>();
    CLI::App* c = rules.add_subcommand("list", "Show the rules with their comments and evidence");
    c->add_option("file", list->files, "Rule files; without any, the built-in rules");
    c->add_option("--rule", list->only, "Only the rule of this name")->option_text("NAME");
    c->add_flag("--json", list->json, "Print JSON");
    c->footer(fmt::format("{}\n{}", kRulesExamples, kExitStatus));
    c->callback([list, &chosen] { chosen = [list] { return report((*list)(), list->json); }; });
}

template <typename Command>
void add_on_files(CLI::App& rules, Chosen& chosen, const char* name, const char* what, const char* which) {
    auto command = std::make_shared<Command>();
    CLI::App* c = rules.add_subcommand(name, what);
    c->add_option("file", command->files, which);
    c->add_option("--rule", command->only, "Only the rule of this name")->option_text("NAME");
    c->add_flag("--json", command->json, "Print JSON");
    if constexpr (requires { command->write; })
        c->add_flag("--write", command->write, "Write the certificates of proofs for any rank beside the rules");
    c->footer(fmt::format("{}\n{}", kRulesExamples, kExitStatus));
    c->callback([command, &chosen] {
        chosen = [command] {
            Status status = (*command)();
            return report(status, command->json && !command->printed);
        };
    });
}

void add_functions(CLI::App& rules, Chosen& chosen) {
    auto functions = std::make_shared<Functions>();
    CLI::App* c = rules.add_subcommand("functions", "List the functions that rules may call");
    c->add_flag("--json", functions->json, "Print JSON");
    c->add_flag("--markdown", functions->markdown, "Print a Markdown table");
    c->footer(fmt::format("{}\n{}", kRulesExamples, kExitStatus));
    c->callback([functions, &chosen] { chosen = [functions] { return report((*functions)(), functions->json); }; });
}

}  // namespace

void add_rules(CLI::App& app, Chosen& chosen) {
    CLI::App* rules = app.add_subcommand("rules", "Check and list rewrite rules");
    rules->require_subcommand(1);
    rules->footer(fmt::format("{}\n{}", kRulesExamples, kExitStatus));
    add_check(*rules, chosen);
    add_list(*rules, chosen);
    add_functions(*rules, chosen);
    add_on_files<Prove>(*rules, chosen, "prove", "Try to prove each rule for all sizes",
                        "Rule files; without any, the built-in rules");
    add_on_files<Verify>(*rules, chosen, "verify", "Replay certificates and have the refuter confirm each rule",
                         "Rule files, with their certificates beside them");
}

}  // namespace tessera::cli
