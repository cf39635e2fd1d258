// The command line. Each subcommand stands in its own file.
#include <exception>

#include "command.h"

int main(int argc, char** argv) {
    using namespace tessera;
    using namespace tessera::cli;
    CLI::App app(
        "Tessera, a deep-learning compiler: runs ONNX models, compiles, measures and optimizes them, shows what is "
        "in them, and converts them.",
        "tessera");
    app.set_version_flag("--version", "tessera " TESSERA_VERSION);
    app.require_subcommand(1);
    app.footer(
        fmt::format("Example:\n  tessera run                     a built-in ResNet-50 on a random image\n"
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
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& e) {
        return app.exit(e);
    } catch (const CLI::ParseError& e) {
        std::string command = "tessera";
        for (CLI::App* sub : app.get_subcommands()) command += " " + sub->get_name();
        bool json = std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
        return report(Error(Code::E0501, "{}", e.what()).hint("{} --help", command), json);
    }
    try {
        watch_interrupts();
        return chosen();
    } catch (const std::bad_alloc&) {
        fmt::print(stderr, "error: out of memory\n");
        return kOurFault;
    } catch (const std::exception& e) {
        fmt::print(stderr, "internal error: {}\n  this is a fault of tessera, not of your input; please report it\n",
                   e.what());
        return kOurFault;
    }
}
