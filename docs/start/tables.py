# %% [markdown]
# # From a table to a private model
#
# A script (`python docs/start/tables.py FOLDER`), and a notebook for editors and Jupyter with jupytext. It needs
# `pip install "mu2mpi[digits,accounting]" pandas`. The table is scikit-learn's of 569 tumours.

# %%
import sys
from pathlib import Path

from sklearn.datasets import load_breast_cancer

import mu2mpi

folder = Path(sys.argv[1] if len(sys.argv) == 2 else ".")
highest = {"mean radius": 30, "mean texture": 50, "mean smoothness": 0.2, "mean concavity": 0.5}
loaded = load_breast_cancer(as_frame=True)
table = loaded.data[list(highest)].assign(tumour=loaded.target.map({0: "malignant", 1: "benign"}))
table.to_csv(folder / "tumours.csv", index=False)

# %% [markdown]
# ## What is public
#
# Columns are declared by what they mean, never by what the table holds. `mu2mpi data tumours.csv
# --schema-template` writes a file like this one, with blanks to fill in.

# %%
columns = [f'[columns."{name}"]\ntype = "numeric"\nlow = 0\nhigh = {high}' for name, high in highest.items()]
label = '[columns.tumour]\ntype = "label"\nclasses = ["benign", "malignant"]'
(folder / "tumours.toml").write_text("\n\n".join(["test = 0.2", *columns, label]) + "\n")

# %% [markdown]
# ## A model
#
# Ten hospitals that trust a server, and epsilon = 2; the preset chooses the rest from public facts.

# %%
result = mu2mpi.run(
    mu2mpi.Experiment(
        data=str(folder / "tumours.csv"),
        schema=str(folder / "tumours.toml"),
        loss="logistic",
        method="dp-sgd",
        preset="practical",
        server="trusted",
        machines=10,
        epsilon=2,
        evaluations=1,
    ),
    output=folder / "tumours.h5",
)
print(result)
print(result.metrics)

# %% [markdown]
# ## What it says, and what it reveals
#
# Coefficients are per unit of their column, beside the standard deviation that the noise alone gives them.

# %%
found = result.coefficients()
for name, value, error in zip(found.terms, found.values[0], found.errors, strict=True):
    print(f"{name:16} {value:9.3f} +- {error:.3f}")
print(result.predict(table.head()))
print(f"epsilon = {result.privacy.epsilon_exact:.3f} at delta = {result.privacy.delta:g}")
