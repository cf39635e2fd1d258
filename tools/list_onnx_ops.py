"""Writes src/onnx/operators.def: every operator of the installed onnx package, with the opsets that changed it.

usage: list_onnx_ops.py [--check] [file]    --check: fail where the file does not say what the package says
"""

import pathlib
import sys

import onnx.defs

FILE = pathlib.Path(__file__).resolve().parents[1] / "src" / "onnx" / "operators.def"


def text():
    versions, retired = {}, set()
    for schema in onnx.defs.get_all_schemas_with_history():
        key = (schema.domain, schema.name)
        versions.setdefault(key, set()).add(schema.since_version)
        if schema.deprecated:
            retired.add(key)
    lines = [
        f"// Every operator of ONNX up to opset {onnx.defs.onnx_opset_version()}: domain, name, the opsets that changed it,",
        "// and whether it is retired. Made by tools/list_onnx_ops.py; a test compares it with the installed package.",
        f"ONNX_OPSET({onnx.defs.onnx_opset_version()})",
    ]
    for domain, name in sorted(versions):
        since = " ".join(str(v) for v in sorted(versions[domain, name]))
        lines.append(f'ONNX_OP("{domain}", "{name}", "{since}", {"true" if (domain, name) in retired else "false"})')
    return "\n".join(lines) + "\n"


def main():
    arguments = sys.argv[1:]
    check = "--check" in arguments
    paths = [a for a in arguments if a != "--check"]
    path = pathlib.Path(paths[0]) if paths else FILE
    if not check:
        path.write_text(text())
    elif path.read_text() != text():
        sys.exit(f"{path} is stale: run tools/list_onnx_ops.py")


if __name__ == "__main__":
    main()
