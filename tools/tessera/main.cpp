// The command line. Each subcommand stands in its own file.
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <system_error>

#include "command_line.h"
#include "help.h"

namespace {

using namespace tessera;
using namespace tessera::cli;

Host current_host;

bool reader_is_gone() {
    pollfd out{STDOUT_FILENO, POLLOUT, 0};
    return poll(&out, 1, 0) > 0 && (out.revents & POLLERR);
}

// What was printed and is still on its way may not fit any more. A reader that has seen enough (`| head`) is no error.
int flushed(int status, int reason = 0) {
    const bool flushed = std::fflush(stdout) == 0;
    if (flushed && !std::ferror(stdout) && !reason) return status;
    if (!reason) reason = errno;
    if (reason == EPIPE || reader_is_gone()) return status;
    const int failed = report(Error(Code::E0105, "cannot write to standard output: {}", std::strerror(reason)), false);
    return status == kDone ? failed : status;
}

int run(const Chosen& chosen) {
    try {
        return flushed(chosen());
    } catch (const std::bad_alloc&) {
        return flushed(
            report(Error(Code::E0408, "out of memory").hint("--memory-limit sets a limit of your own"), false));
    } catch (const std::system_error& e) {
        if (std::ferror(stdout)) return flushed(kDone, e.code().value());
        say_error(fmt::format("internal error: {}\n  this is a bug in Tessera, not in your input; please report it\n",
                              e.what()));
    } catch (const std::exception& e) {
        say_error(fmt::format("internal error: {}\n  this is a bug in Tessera, not in your input; please report it\n",
                              e.what()));
    }
    return kOurFault;
}

}  // namespace

const Host& tessera::cli::host() { return current_host; }

int tessera::cli::command_line(int argc, char** argv, const Host& host) {
    current_host = host;
    CLI::App app(
        "Tessera, a deep-learning compiler: runs, compiles, measures, optimizes, trains, quantizes, inspects and "
        "converts ONNX models.",
        "tessera");
    use_wrapped_help(app);
    app.set_version_flag("--version", "tessera " TESSERA_VERSION, "Print the version");
    app.require_subcommand(1);
    app.footer(
        fmt::format("Examples:\n  tessera run                     a built-in ResNet-50 on a random image\n"
                    "  tessera run model.onnx --random\n\n{}",
                    kExitStatus));
    Chosen chosen;
    add_run(app, chosen);
    add_inspect(app, chosen);
    add_optimize(app, chosen);
    add_compile(app, chosen);
    add_profile(app, chosen);
    add_bench(app, chosen);
    add_convert(app, chosen);
    add_ops(app, chosen);
    add_rules(app, chosen);
    add_discover(app, chosen);
    add_tile(app, chosen);
    add_train(app, chosen);
    add_calibrate(app, chosen);
    add_quantize(app, chosen);
    add_explore(app, chosen);
    add_shard(app, chosen);
    add_simulate(app, chosen);
    add_devices(app, chosen);
    add_cache(app, chosen);
    add_completion(app, chosen);
    add_version(app, chosen);
    add_help(app);
    watch_signals();
    const std::vector<std::string> words = arguments(argc, argv);
    const bool json = std::find(words.begin(), words.end(), "--json") != words.end();
    if (const auto wrong = empty_argument(words)) return run([&] { return report(*wrong, json); });
    try {
        app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
    } catch (const CLI::Success& e) {
        if (const auto wrong = unknown_command(app, words)) return run([&] { return report(*wrong, false); });
        return run([&] { return app.exit(e); });
    } catch (const CLI::ParseError& e) {
        return run([&] { return report(usage_error(e, app, words), json); });
    }
    check_environment();
    return run(chosen);
}
