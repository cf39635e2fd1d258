"""What kernels do, line by line, and how long their launches take."""

from __future__ import annotations

from typing import Any


class _Launches:
    """Of one kernel as it is for arguments of some types."""

    def __init__(self, sources: list[Any]):
        self.sources = sources
        self.count, self.instances, self.seconds = 0, 0, 0.0
        self.lines: dict[tuple[int, int], list[float]] = {}
        self.unknown: set[tuple[int, int]] = set()

    def add(self, program: Any, grid: tuple[int, int, int], numbers: list[int | None], seconds: float) -> None:
        instances = grid[0] * grid[1] * grid[2]
        self.count += 1
        self.instances += instances
        self.seconds += seconds
        for work in program.work(numbers, grid):
            total = self.lines.setdefault((work.file, work.line), [0.0] * 5)
            for i, each in enumerate((work.loads, work.loaded_bytes, work.stores, work.stored_bytes, work.flops)):
                total[i] += each * instances
            if work.unknown_trips:
                self.unknown.add((work.file, work.line))


def amount(n: float) -> str:
    """Short: 1.5 M."""
    for unit in ("", " k", " M", " G", " T"):
        if n < 1000 or unit == " T":
            return f"{n:.0f}{unit}" if n >= 100 or n == int(n) else f"{n:.1f}{unit}"
        n /= 1000
    raise AssertionError


class Profile:
    """Is told of launches by `_runtime`, and says what they were."""

    def __init__(self, kernel: str | None = None):
        self.kernel = kernel
        self.all: dict[tuple[str, Any], _Launches] = {}

    def launched(self, function: Any, key: Any, program: Any, sources: list[Any], grid: tuple[int, int, int],
                 numbers: list[int | None], seconds: float) -> None:
        if self.kernel not in (None, function.name):
            return
        self.all.setdefault((function.name, key), _Launches(sources)).add(program, grid, numbers, seconds)

    def __str__(self) -> str: return "\n".join(self._of(name, each) for (name, _), each in self.all.items())

    def _of(self, name: str, each: _Launches) -> str:
        totals = [sum(line[i] for line in each.lines.values()) for i in range(5)]
        seconds = max(each.seconds, 1e-9)
        text = [f"{name}: {each.count} launches of {each.instances / each.count:.0f} instances, "
                f"{each.seconds / each.count * 1e6:.0f} us each; {(totals[1] + totals[3]) / seconds / 1e9:.1f} GB/s, "
                f"{totals[4] / seconds / 1e9:.1f} GFLOP/s by these counts",
                f"{'loads':>8} {'bytes':>8} {'stores':>8} {'bytes':>8} {'flops':>8}   line"]
        for file, function in enumerate(each.sources):
            if file > 0:
                text.append(f"{'':46}in {function.name}:")
            for number, line in enumerate(function.lines, function.first_line):
                work = each.lines.get((file, number), [0.0] * 5)
                counts = " ".join(f"{amount(n) if n else '':>8}" for n in work)
                note = "   # how often is not known: once" if (file, number) in each.unknown else ""
                text.append(f"{counts}   {number:4} {line}{note}".rstrip())
        return "\n".join(text) + "\n"
