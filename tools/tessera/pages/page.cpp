#include "pages/page.h"

#include "base/check.h"
#include "base/hash.h"
#include "embedded.h"

namespace tessera::cli {
namespace {

// JSON that can stand in a script element, whatever the names in it are.
std::string for_script(const Json& json) {
    std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace), out;
    out.reserve(text.size() + text.size() / 64);
    for (char c : text) {
        if (c == '<')
            out += "\\u003c";
        else
            out += c;
    }
    return out;
}

std::string_view page_file(std::string_view name) {
    for (const EmbeddedFile& file : page_files())
        if (file.name == name) return file.text;
    CHECK(false);
    return {};
}

}  // namespace

std::string page(std::string_view html_file, const Json& json) {
    const std::string data = for_script(json);
    std::string nonce = fmt::format("{:016x}", hash_bytes(data.data(), data.size())), out;
    std::string_view html = page_file(html_file);
    while (!html.empty()) {
        std::string_view line = html.substr(0, html.find('\n') + 1);
        if (line.empty()) line = html;
        html.remove_prefix(line.size());
        std::string_view word = line.substr(0, line.find("-->"));
        auto named = [&](std::string_view what) {
            return word.starts_with(what) ? word.substr(what.size()) : std::string_view();
        };
        if (auto file = named("<!--style "); !file.empty())
            out += fmt::format("<style nonce=\"{}\">\n{}</style>\n", nonce, page_file(file));
        else if (auto script = named("<!--script "); !script.empty())
            out += fmt::format("<script nonce=\"{}\">\n{}</script>\n", nonce, page_file(script));
        else if (word == "<!--data")
            out += fmt::format("<script type=\"application/json\" id=\"data\">{}</script>\n", data);
        else if (word == "<!--policy")
            out += fmt::format(
                "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                "style-src 'nonce-{0}'; script-src 'nonce-{0}'\">\n",
                nonce);
        else
            out += line;
    }
    return out;
}

}  // namespace tessera::cli
