# %% [markdown]
# # From result files to figures
#
# Every cell of this page is a few lines. It is a script (`python docs/analysis.py runs/quickstart`), and a
# notebook for editors and Jupyter with jupytext, which know the cells by their `# %%`. It needs
# `pip install "mu2mpi[analysis]"` and results, such as those that `scripts/quickstart.sh` leaves in
# `runs/quickstart`.

# %%
import sys
from pathlib import Path

import mu2mpi

folder = Path(sys.argv[1] if len(sys.argv) == 2 else "runs/quickstart")
runs = mu2mpi.load(folder)
print(runs)

# %% [markdown]
# ## One run

# %%
run = runs[0]
print(run.experiment.to_toml())
print(run.history)  # an xarray.Dataset along `round`, with units: run.history.test_loss.plot()
print(run.x.shape, run.privacy.epsilon_exact, run.theory.excess_loss)

# %% [markdown]
# ## All runs as one data frame
#
# A row for each run: settings, final loss and accuracy, epsilon, theory, times.

# %%
frame = runs.to_dataframe()
print(frame.groupby(["server", "rho", "machines"]).test_loss.agg(["mean", "std", "count"]))

# %% [markdown]
# ## Tables

# %%
print(runs.table())
print(runs.table(rows=["rho"], columns=["server", "machines"], values=["excess_loss"], format="markdown"))
print(runs.table(format="latex", best=True, label="tab:servers"))

# %% [markdown]
# ## Figures
#
# `plot` returns a matplotlib figure: change what you like and save it, as PNG, SVG or PDF.

# %%
figures = folder / "figures"
figures.mkdir(exist_ok=True)
for kind in ("history", "tradeoff", "weights", "noise", "timing"):
    runs.plot(kind).savefig(figures / f"{kind}.png")
runs.plot("history", against="samples").savefig(figures / "history-samples.pdf")
runs.plot("tradeoff", against="machines").savefig(figures / "tradeoff-machines.svg")

# %% [markdown]
# ## A figure of your own
#
# The frame is tidy, so that pandas, seaborn and their like take it as it is.

# %%
from matplotlib.figure import Figure

figure = Figure(figsize=(4, 3), layout="constrained")
axes = figure.subplots()
for server, group in frame.groupby("server"):
    axes.scatter(group.gradient_evaluations, group.test_loss, label=f"{server} server")
axes.set(xscale="log", xlabel="gradients computed by all machines", ylabel="test loss")
axes.legend()
figure.savefig(figures / "gradients.png")

# %% [markdown]
# ## Without this package
#
# The files are plain HDF5; `docs/results.md` lists every path.

# %%
import h5py
import xarray

with h5py.File(run.path) as file:
    print(file["history/test_loss"][-1], file["history/test_loss"].attrs["units"])
    print(dict(file["theory"].attrs))
with xarray.open_dataset(run.path, engine="h5netcdf", group="history") as history:
    print(history.test_loss.sel(round=history["round"][-1]).item())
