"""A table as LaTeX, for the package booktabs and, where it is asked for, siunitx."""

import re
from collections.abc import Sequence

from mu2mpi.analysis.formats import Dialect, Entry
from mu2mpi.analysis.grids import Grid

ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$",
    "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--",
    "<": r"$<$", ">": r"$>$", "[": "{[}", "]": "{]}", "²": "$^2$", "μ²": r"$\mu^2$", "·": r"$\cdot$",
}  # fmt: skip

SYMBOLS = {
    "ρ": r"\rho", "ε": r"\varepsilon", "δ": r"\delta", "λ": r"\lambda", "η": r"\eta", "μ": r"\mu",
    "∞": r"\infty",
}  # fmt: skip

RAISED = {ord(raised): plain for raised, plain in zip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789", strict=True)}

LETTER = r"(?<![\w$\\])(?:[MTDCKS]|c/M|c|n|[ρεδλη])(?![\w/'-])"
NUMBER = r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?"
FORMULA = re.compile(
    rf"{LETTER} = (?:{NUMBER}|∞|[A-Z]\b)|(?<!\w)(?:[MTDCKS]|c/M|[ρεδλη])(?![\w/'])|"
    r"10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+|(?<![\w.])[\d.]+e[-+]?\d+|μ²|[μρεδλη∞]"
)
"""What is set as mathematics: letters of the paper, with their values, and powers of ten."""


def as_latex(grid: Grid, caption: str, label: str = "", siunitx: bool = False) -> str:
    """Return a table; the caption is LaTeX, such as `escaped` makes of text."""
    before = [*grid.names, *[""] * grid.is_labelled]
    cells: Sequence[Sequence[str]]
    if siunitx:
        cells = [list(map(_measured, line.entries)) for line in grid.lines]
        kinds = list(map(_kind, zip(*(line.entries for line in grid.lines), strict=True)))
    else:
        cells = grid.aligned(Dialect(_phantom, r" $\pm$ ", r"\textbf{{{}}}".format, str, _in_text))
        kinds = ["l" * len(grid.columns)]
    heads = [f"{{{escaped(title)}}}" if siunitx else escaped(title) for title in grid.columns]
    rows = []
    for block in grid.blocks_of(cells):
        rows.append(r"\midrule")
        rows += [_row([*map(escaped, row[: len(before)]), *row[len(before) :]]) for row in block]
    packages = "booktabs,siunitx" if siunitx else "booktabs"
    return "\n".join([
        rf"% \usepackage{{{packages}}}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{caption}}}",
        *[rf"\label{{{label}}}"] * bool(label),
        *[r"\sisetup{separate-uncertainty=true, table-align-uncertainty=false}"] * siunitx,
        rf"\begin{{tabular}}{{{' '.join(['l' * len(before), *kinds])}}}",
        r"\toprule",
        _row([*map(escaped, before), *heads]),
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ])  # fmt: skip


def escaped(text: str) -> str:
    """Return text as LaTeX, with the paper's letters and their values as mathematics."""
    parts, end = [], 0
    for found in FORMULA.finditer(text):
        parts += [_plain(text[end : found.start()]), f"${_formula(found[0])}$"]
        end = found.end()
    return "".join([*parts, _plain(text[end:])])


def _plain(text: str) -> str:
    return "".join(ESCAPES.get(letter, letter) for letter in text)


def _formula(text: str) -> str:
    if raised := re.fullmatch(r"10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", text):
        return f"10^{{{raised[1].translate(RAISED)}}}"
    text = re.sub(r"([\d.]+)e([-+]?\d+)", lambda m: _power(m[1], int(m[2])), text)
    text = text.replace(",", "{,}").replace("²", "^2")
    return "".join(SYMBOLS.get(letter, letter) for letter in text)


def _power(digits: str, power: int) -> str:
    return f"10^{{{power}}}" if digits == "1" else rf"{digits} \cdot 10^{{{power}}}"


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _phantom(text: str) -> str:
    return rf"\phantom{{{text}}}" if text else ""


def _in_text(number: str) -> str:
    return re.sub("^-", "$-$", _plain(number))


def _measured(entry: Entry) -> str:
    """Return an entry for a column S, with the deviation in units of the last digit of the mean."""
    if not entry.mean.lstrip("-")[:1].isdigit():
        return f"{{{_plain(entry.mean)}}}"
    text = entry.mean.replace(",", "")
    if entry.deviation:
        text += f"({_digits(entry.deviation)})"
    text = rf"\bfseries {text}" if entry.is_best else text
    return f"{text} {{~{_plain(entry.remark)}}}" if entry.remark else text


def _digits(number: str) -> str:
    return re.sub(r"[.,]", "", number).lstrip("0") or "0"


def _kind(column: Sequence[Entry]) -> str:
    """Return a column S that is as wide as its numbers."""
    numbers = [entry for entry in column if entry.mean.lstrip("-")[:1].isdigit()]
    if not numbers:
        return "c"
    parts = [entry.mean.replace(",", "").lstrip("-").partition(".") for entry in numbers]
    whole, digits = (max(len(part[k]) for part in parts) for k in (0, 2))
    spread = (
        max(len(_digits(entry.deviation)) for entry in numbers) if any(e.deviation for e in numbers) else 0
    )
    sign = "-" * any(entry.mean.startswith("-") for entry in numbers)
    options = [f"table-format={sign}{whole}.{digits}" + f"({spread})" * bool(spread)]
    if remark := max((entry.remark for entry in numbers), key=len):
        options.append(f"table-space-text-post={{~{_plain(remark)}}}")
    if any(entry.is_best for entry in numbers):
        options.append("detect-weight")
    return f"S[{', '.join(options)}]"
