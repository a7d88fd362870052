"""Make the paper: its numbers (numbers.json), its figures, and paper.md from template.md.

    python paper/make.py                              figures and text, from the numbers that are there
    python paper/make.py --accuracy                   measure accuracies anew: ten minutes on two cores
    python paper/make.py --speed --rivals PYTHON      measure speed anew: a few minutes on an idle computer

PYTHON is that of an environment with `pip install -r paper/rivals.txt`. Both need MNIST in MU2MPI_DATA_DIR.
"""

import argparse
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import accuracy  # noqa: E402
import figures  # noqa: E402
import speed  # noqa: E402

PLACEHOLDER = re.compile(r"\{\{ *([\w.-]+) *\}\}")
Numbers = dict[str, Any]


def quoted_numbers(numbers: Numbers) -> dict[str, str]:
    """Return the measured numbers of the text as they are printed, by the names of their placeholders."""
    found = {}
    if "accuracy" in numbers:
        for name, cell in numbers["accuracy"]["private"].items():
            found["accuracy-" + name.replace(" ", "-")] = f"{cell['mean']:.1f} ± {cell['std']:.1f}"
        for machines, cell in numbers["accuracy"]["without_noise"].items():
            found[f"accuracy-{machines}-no-noise"] = f"{cell['mean']:.1f}"
        found["accuracy-seeds"] = str(len(numbers["accuracy"]["settings"]["seed"]))
        tables = numbers["tables"]
        found |= {"tables-cells": str(tables["cells"]), "tables-seeds": str(tables["seeds"])}
        found["tables-loss"] = f"{math.ceil(1e4 * tables['largest_loss_difference']) / 1e4:.4f}"
        found["tables-accuracy"] = f"{math.ceil(10 * tables['largest_accuracy_difference']) / 10:.1f}"
    if "speed" in numbers:
        found["speed-repeats"] = str(numbers["speed"]["repeats"])
        for name, task in numbers["speed"]["tasks"].items():
            found[f"speed-{name}"] = f"{task['ratio']:.2g}"
            found[f"speed-{name}-rival"] = task["rival"].split()[1]
    return found


def render(template: str, numbers: Numbers) -> str:
    """Return the template with its placeholders replaced; KeyError names a number that is missing."""
    found = quoted_numbers(numbers)
    return PLACEHOLDER.sub(lambda match: found[match[1]], template)


def main(arguments: list[str] | None = None) -> None:
    """Measure what is asked for, and write numbers, figures and text."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--accuracy", action="store_true", help="measure accuracies, and compare the tables")
    parser.add_argument("--speed", action="store_true", help="measure speed; needs --rivals")
    parser.add_argument("--rivals", metavar="PYTHON", help="Python with the packages of rivals.txt")
    parser.add_argument("--repeats", type=int, default=7, help="timed runs of each task [default: 7]")
    parser.add_argument("--runs", type=Path, default=Path("runs/paper"), help="results of the accuracy runs")
    parser.add_argument("--output", type=Path, default=HERE, help="folder of the outputs [default: paper]")
    parser.add_argument("--small", action="store_true", help="the same measurements, in seconds; for tests")
    options = parser.parse_args(arguments)
    if options.speed and not options.rivals:
        parser.error("--speed needs --rivals PYTHON, with the packages of rivals.txt")
    path = options.output / "numbers.json"
    numbers: Numbers = json.loads(path.read_text()) if path.exists() else {}
    if options.accuracy:
        numbers["tables"] = accuracy.measure_tables(options.runs, options.small)
        numbers["accuracy"] = accuracy.measure_accuracy(options.runs, options.small)
    if options.speed:
        numbers["speed"] = speed.measure_speed(options.rivals, options.repeats, options.small)
    write(options.output, numbers)


def write(folder: Path, numbers: Numbers) -> None:
    """Write numbers, figures, and the text if its numbers are all there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "numbers.json").write_text(json.dumps(numbers, indent=1) + "\n")
    if "accuracy" in numbers:
        figures.draw_accuracy(numbers["accuracy"], folder / "accuracy.png")
    if "speed" in numbers:
        figures.draw_speed(numbers["speed"], folder / "speed.png")
    try:
        text = render((HERE / "template.md").read_text(), numbers)
    except KeyError as error:
        print(
            f"paper.md is unchanged: the number {error} of template.md has not been measured", file=sys.stderr
        )
    else:
        (folder / "paper.md").write_text(text)


if __name__ == "__main__":
    main()
