#include "runtime/devices/rtl_simulator.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

extern char** environ;

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNamed = "TESSERA_RTL";

class TemporaryFolder {
  public:
    static Result<TemporaryFolder> create() {
        std::error_code failed;
        std::string name = (fs::temp_directory_path(failed) / "tessera-rtl-XXXXXX").string();
        if (failed || !::mkdtemp(name.data()))
            return Error(Code::E0105, "no temporary folder: {}", std::strerror(errno))
                .hint("TMPDIR names the folder of temporary files");
        return TemporaryFolder(name);
    }
    TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
    TemporaryFolder& operator=(TemporaryFolder&&) = delete;
    ~TemporaryFolder() {
        std::error_code ignored;
        if (!path_.empty()) fs::remove_all(path_, ignored);
    }
    std::string file(const char* name) const { return (path_ / name).string(); }

  private:
    explicit TemporaryFolder(fs::path path) : path_(std::move(path)) {}
    fs::path path_;
};

std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// What the process writes to its standard output; an error with what it says, where its status is not 0.
Result<std::string> output_of(std::vector<std::string> words, const TemporaryFolder& folder) {
    const std::string out = folder.file("stdout"), said = folder.file("stderr");
    std::vector<char*> args;
    for (std::string& w : words) args.push_back(w.data());
    args.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    pid_t child = 0;
    const int failed = ::posix_spawn(&child, args[0], &actions, nullptr, args.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (failed) return Error(Code::E0702, "cannot run {}: {}", words[0], std::strerror(failed));
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return contents(out);
    return Error(Code::E0702, "{} {} {}: {}", words[0],
                 WIFSIGNALED(status) ? "was ended by signal" : "ended with status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), contents(said));
}

bool executable(const fs::path& path) {
    std::error_code failed;
    return fs::is_regular_file(path, failed) && ::access(path.c_str(), X_OK) == 0;
}

// Empty: there is none.
std::string program_named(const std::string& name) {
    std::error_code failed;
    const fs::path self = fs::read_symlink("/proc/self/exe", failed);
    if (!failed && executable(self.parent_path() / name)) return (self.parent_path() / name).string();
    const char* path = std::getenv("PATH");
    for (std::string_view rest = path ? path : ""; !rest.empty();) {
        const std::string_view folder = rest.substr(0, rest.find(':'));
        rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
        if (!folder.empty() && executable(fs::path(folder) / name)) return (fs::path(folder) / name).string();
    }
    return {};
}

}  // namespace

Result<RtlSimulator> RtlSimulator::find(const accelerator::Machine& machine) {
    const std::string name = machine.name + "-rtl";
    const char* named = std::getenv(kNamed);
    const std::string path = named && *named ? named : program_named(name);
    const std::string how = fmt::format(
        "`tools/setup.sh rtl` installs Verilator, and `ninja -C build {}` makes the program; {} names it "
        "where it is neither beside this program nor on PATH",
        name, kNamed);
    if (path.empty())
        return Error(Code::E0701, "no program \"{}\" simulates the RTL of {}", name, machine.name).hint("{}", how);
    if (!executable(path)) return Error(Code::E0701, "{}={} is no program", kNamed, path).hint("{}", how);
    const TemporaryFolder folder = TRY(TemporaryFolder::create());
    const auto simulated = accelerator::parse_machine(TRY(output_of({path, "machine"}, folder)), path);
    if (!simulated)
        return Error(Code::E0701, "{} does not say which machine's RTL it has: {}", path, simulated.error().message())
            .hint("{}", how);
    if (*simulated != machine)
        return Error(Code::E0701, "{} has the RTL of {}, whose description is not that of {}", path, simulated->name,
                     machine.name)
            .hint("docs/new_accelerator.md says how to make the program of another description");
    return RtlSimulator(path);
}

Result<int64_t> RtlSimulator::run(std::vector<uint8_t>& memory, uint32_t program) const {
    const TemporaryFolder folder = TRY(TemporaryFolder::create());
    const std::string image = folder.file("image"), left = folder.file("memory");
    std::ofstream file(image, std::ios::binary);
    file.write(reinterpret_cast<const char*>(memory.data()), std::streamsize(memory.size()));
    file.close();
    if (!file) return Error(Code::E0105, "cannot write \"{}\", {} bytes of memory", image, memory.size());
    const std::string said = TRY(output_of({path_, "run", image, std::to_string(program), left}, folder));
    const auto counts = nlohmann::json::parse(said, nullptr, false);
    const std::string after = contents(left);
    if (!counts.is_object() || !counts.contains("cycles") || after.size() != memory.size())
        return Error(Code::E0702, "{} left no memory or no number of cycles: {}", path_, said);
    std::memcpy(memory.data(), after.data(), after.size());
    return counts["cycles"].get<int64_t>();
}

}  // namespace tessera
