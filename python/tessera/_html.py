"""What notebooks show of models and reports: small tables. All text from files is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from ._tessera import CompileReport, Device, DeviceProfile, OptimizeReport, Port, Profile, QuantizeReport, SearchReport, StepProfile
from ._tessera import Summary

Item = TypeVar("Item")

_MOST_ROWS = 12


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]], more: int = 0) -> str:
    cells = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    if more > 0:
        cells += f"<tr><td>{more} more</td></tr>"
    return "<table><thead><tr>" + "".join(f"<th>{html.escape(head)}</th>" for head in heads) + f"</tr></thead><tbody>{cells}</tbody></table>"


def _titled(title: str, *tables: str) -> str:
    return f"<div><strong>{html.escape(title)}</strong>{''.join(tables)}</div>"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _ports(inputs: Sequence[Port], outputs: Sequence[Port]) -> str:
    rows = [("input", p.name, p.type) for p in inputs] + [("output", p.name, p.type) for p in outputs]
    return _table(("", "name", "type"), rows[:_MOST_ROWS], len(rows) - _MOST_ROWS)


def _ops(summary: Summary) -> str:
    rows = [(count.op, count.nodes, count.flops) for count in summary.ops]
    return _table(("op", "nodes", "FLOPs"), rows[:_MOST_ROWS], len(rows) - _MOST_ROWS)


def of_summary(summary: Summary) -> str:
    return _titled(f"{summary.name}: {_plural(summary.nodes, 'node')}, {_plural(summary.parameters, 'parameter')} ({summary.parameter_bytes} bytes)", _ops(summary))


def of_model(inputs: Sequence[Port], outputs: Sequence[Port], summary: Summary) -> str:
    return _titled(f"Model {summary.name}: {_plural(summary.nodes, 'node')}, {_plural(summary.parameters, 'parameter')}", _ports(inputs, outputs), _ops(summary))


def of_executable(inputs: Sequence[Port], outputs: Sequence[Port], report: CompileReport) -> str:
    return _titled(f"Executable: {_plural(report.kernels, 'kernel')} in {_plural(report.steps, 'step')}", _ports(inputs, outputs))


def _of_compile_report(report: CompileReport) -> str:
    tables = [_table(("phase", "seconds"), [(name, f"{seconds:.3g}") for name, seconds in report.phases])]
    if report.host_reasons:
        tables.append(_table(("node left to the reference", "why"), report.host_reasons[:_MOST_ROWS], len(report.host_reasons) - _MOST_ROWS))
    return _titled(repr(report)[1:-1].removeprefix("tessera."), *tables)


def _of_optimize_report(report: OptimizeReport) -> str:
    rows = [(run.name, run.rewrites, f"{run.seconds:.3g}", run.purpose) for run in report.passes if run.rewrites]
    return _titled(repr(report)[1:-1].removeprefix("tessera."), _table(("pass", "rewrites", "seconds", "purpose"), rows))


def _of_search_report(report: SearchReport) -> str:
    return f"<div><strong>{html.escape(repr(report)[1:-1].removeprefix('tessera.'))}</strong><pre>{html.escape(report.explain())}</pre></div>"


def _decibels(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _of_quantize_report(report: QuantizeReport) -> str:
    rows = [(layer.node, layer.op, f"{layer.low:.4g} to {layer.high:.4g}" if layer.quantized else f"f32: {layer.why}",
             _decibels(layer.weight_snr), _decibels(layer.snr)) for layer in report.layers]
    return _titled(repr(report)[1:-1].removeprefix("tessera."),
                   _table(("layer", "op", "input range", "weights dB", "output dB"), rows[:_MOST_ROWS], len(rows) - _MOST_ROWS),
                   _table(("output", "dB"), [(name, _decibels(snr)) for name, snr in report.output_snr.items()]))


def _of_profile(profile: Profile) -> str:
    rows = [(name, f"{value.min:.4g}", f"{value.max:.4g}", value.count) for name, value in profile.values.items()]
    return _titled(repr(profile)[1:-1].removeprefix("tessera."),
                   _table(("value", "min", "max", "elements"), rows[:_MOST_ROWS], len(rows) - _MOST_ROWS))


def _cells(item: object) -> dict[str, object]:
    """A row of a table of such."""
    if isinstance(item, Device):
        return {"target": item.target, "device": item.name, "usable": "yes" if item.usable else item.why}
    if isinstance(item, StepProfile):
        return {"step": item.label, "kind": item.kind, "ms": f"{item.seconds * 1e3:.3g}", "nodes": ", ".join(item.nodes)}
    if isinstance(item, DeviceProfile):
        return {"part": item.name, "machine": item.machine, "layers": len(item.layers), "cycles": item.cycles}
    return {"": repr(item)}


def _of_rows(items: Sequence[object]) -> str:
    rows = [_cells(item) for item in items]
    return _table(list(rows[0]) if rows else (), [list(row.values()) for row in rows])


class Rows(list[Item]):
    """A list that notebooks show as a table."""

    def _repr_html_(self) -> str:
        return _of_rows(self)


def _show() -> None:
    """Teaches the reports, which are classes of the compiled module."""
    shown: tuple[tuple[Any, Any], ...] = ((CompileReport, _of_compile_report), (OptimizeReport, _of_optimize_report),
                                          (SearchReport, _of_search_report), (Summary, of_summary),
                                          (QuantizeReport, _of_quantize_report), (Profile, _of_profile),
                                          *((kind, lambda item: _of_rows([item])) for kind in (Device, DeviceProfile, StepProfile)))
    for kind, show in shown:
        kind._repr_html_ = show


_show()
