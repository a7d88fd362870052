"""A table as LaTeX, for the package booktabs and, where asked for, siunitx."""

import re
from collections.abc import Sequence

from mu2mpi.analysis.formats import Entry
from mu2mpi.analysis.grids import Grid

_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$",
    "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--",
    "<": r"$<$", ">": r"$>$", "[": "{[}", "]": "{]}", "²": "$^2$", "·": r"$\cdot$",
}  # fmt: skip

_MATHS = {
    "ρ": r"\rho", "ε": r"\varepsilon", "δ": r"\delta", "λ": r"\lambda", "η": r"\eta", "μ": r"\mu",
    "∞": r"\infty", ",": "{,}", "²": "^2",
}  # fmt: skip

_RAISED = "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"

_LETTER = r"(?<![\w$\\])(?:[MTDCKS]|c/M|c|n|[ρεδλη])(?![\w/'-])"
_NUMBER = r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?"
_FORMULA = re.compile(
    rf"{_LETTER} = (?:{_NUMBER}|∞|[A-Z]\b)|(?<!\w)(?:[MTDCKS]|c/M|[ρεδλη])(?![\w/'])|"
    rf"10[{_RAISED}]+|(?<![\w.])[\d.]+e[-+]?\d+|μ²|[μρεδλη∞]"
)
"""What is set as mathematics: letters of the paper, with their values, and powers of ten."""


def as_latex(grid: Grid, caption: str, label: str = "", siunitx: bool = False) -> str:
    """Return a table environment; the caption is LaTeX, such as `escaped` makes of text."""
    columns = zip(*(line.entries for line in grid.lines), strict=True)
    kinds = list(map(_column_type, columns)) if siunitx else ["l"] * len(grid.columns)
    cells = [list(map(_in_siunitx if siunitx else _in_text, line.entries)) for line in grid.lines]
    heads = [f"{{{escaped(title)}}}" if siunitx else escaped(title) for title in grid.columns]
    lines = [" & ".join([*map(escaped, grid.heads), *heads]) + r" \\"]
    before = len(grid.heads)
    for block in grid.blocks_of(cells):
        lines.append(r"\midrule")
        lines += [" & ".join([*map(escaped, row[:before]), *row[before:]]) + r" \\" for row in block]
    return "\n".join([
        rf"% \usepackage{{booktabs{',siunitx' * siunitx}}}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{caption}}}",
        *[rf"\label{{{label}}}"] * bool(label),
        *[r"\sisetup{separate-uncertainty=true, table-align-uncertainty=false}"] * siunitx,
        rf"\begin{{tabular}}{{{' '.join(['l' * before, *kinds])}}}",
        r"\toprule",
        *lines,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ])  # fmt: skip


def escaped(text: str) -> str:
    """Return text as LaTeX, with the paper's letters and their values as mathematics."""
    parts, end = [], 0
    for found in _FORMULA.finditer(text):
        parts += [_plain(text[end : found.start()]), f"${_formula(found[0])}$"]
        end = found.end()
    return "".join([*parts, _plain(text[end:])])


def _plain(text: str) -> str:
    return "".join(_ESCAPES.get(letter, letter) for letter in text)


def _formula(text: str) -> str:
    if re.fullmatch(f"10[{_RAISED}]+", text):
        return f"10^{{{text[2:].translate(str.maketrans(_RAISED, '-0123456789'))}}}"
    text = re.sub(r"([\d.]+)e([-+]?\d+)", lambda m: rf"{m[1]} \cdot 10^{{{int(m[2])}}}", text)
    text = re.sub(r"(?<![\d.])1 \\cdot ", "", text)
    return "".join(_MATHS.get(letter, letter) for letter in text)


def _in_text(entry: Entry) -> str:
    return entry.text(r"\textbf{{{}}}", lambda text: re.sub("^-", "$-$", _plain(text)))


def _in_siunitx(entry: Entry) -> str:
    """Return an entry for a column S, with the deviation in units of the last digit of the mean."""
    if not _is_number(entry):
        return f"{{{_plain(entry.mean)}}}"
    text = entry.mean.replace(",", "") + (f"({_digits(entry.deviation)})" if entry.deviation else "")
    text = rf"\bfseries {text}" if entry.is_best else text
    return f"{text} {{~{_plain(entry.remark)}}}" if entry.remark else text


def _is_number(entry: Entry) -> bool:
    return entry.mean.lstrip("-")[:1].isdigit()


def _digits(number: str) -> str:
    return re.sub(r"[.,]", "", number).lstrip("0") or "0" * bool(number)


def _column_type(column: Sequence[Entry]) -> str:
    """Return a column S that is as wide as its numbers."""
    numbers = list(filter(_is_number, column))
    if not numbers:
        return "c"
    parts = [entry.mean.replace(",", "").lstrip("-").partition(".") for entry in numbers]
    whole, digits = (max(len(part[k]) for part in parts) for k in (0, 2))
    spread = max(len(_digits(entry.deviation)) for entry in numbers)
    sign = "-" * any(entry.mean.startswith("-") for entry in numbers)
    options = [f"table-format={sign}{whole}.{digits}" + f"({spread})" * bool(spread)]
    if remark := max((entry.remark for entry in numbers), key=len):
        options.append(f"table-space-text-post={{~{_plain(remark)}}}")
    if any(entry.is_best for entry in numbers):
        options.append("detect-weight")
    return f"S[{', '.join(options)}]"
