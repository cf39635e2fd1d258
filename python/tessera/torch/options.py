"""What torch.compile's `options` may say."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from .._errors import Error


@dataclass(frozen=True)
class Options:
    """`precision` is compile's. `freeze` takes parameters for constants in inference. `fallback` says what happens where an op
    cannot be compiled: "warn", "quiet", or "error"."""

    precision: str = "default"
    freeze: bool = True
    fallback: str = "warn"
    report: Any = field(default=None, compare=False)  # explain's

    @staticmethod
    def of(given: dict[str, Any] | None) -> Options:
        names = [f.name for f in fields(Options)]
        for name in given or {}:
            if name not in names:
                raise Error("E0501", f"torch.compile(backend=\"tessera\") has no option {name!r}",
                            hint="it has: " + ", ".join(n for n in names if n != "report"))
        options = Options(**(given or {}))
        if options.fallback not in ("warn", "quiet", "error"):
            raise Error("E0501", f"fallback: expected \"warn\", \"quiet\" or \"error\", got {options.fallback!r}")
        if options.precision not in ("strict", "default", "fast"):
            raise Error("E0501", f"precision: expected \"strict\", \"default\" or \"fast\", got {options.precision!r}")
        return options
