# %% [markdown]
# # From result files to figures
#
# Every cell of this page is a few lines. It is a script (`python docs/guides/analysis.py runs/quickstart`), and a
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
#
# It is what `mu2mpi.run` returns, with plain arrays, or with names and units: an `xarray.Dataset`.

# %%
run = runs[0]
print(run.experiment.to_toml())
print(run.history.test_loss, run.x.shape, run.privacy.epsilon_exact)
print(run.to_xarray())  # in a notebook: run.to_xarray().test_loss.plot()

# %% [markdown]
# ## All runs as one data frame
#
# A row for each run: settings, final loss and accuracy, epsilon, theory, times.

# %%
frame = runs.to_dataframe()
print(frame.groupby(["server", "rho", "machines"]).test_loss.agg(["mean", "std", "count"]))

# %% [markdown]
# ## All runs as labelled arrays
#
# Over the settings that vary, seeds and rounds. Statistics over seeds are one more dimension.

# %%
print(runs.to_xarray())
bands = runs.over_seeds()
print(bands.final_test_loss.sel(statistic="mean"))

# %% [markdown]
# ## Tables

# %%
print(runs.table())
print(runs.table(rows=["rho"], columns=["server", "machines"], values=["epsilon_exact"], format="markdown"))
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
# The loss over the rounds with its band of 95 % over seeds, at the last value of every setting;
# `bands.test_loss.sel(rho=4, machines=10)` chooses another. The frame is tidy, so that pandas, seaborn and
# their like take it as it is.

# %%
from matplotlib.figure import Figure

settings = [name for name in bands.test_loss.dims if name not in ("round", "statistic")]
band = bands.test_loss.isel(dict.fromkeys(settings, -1)).dropna("round", how="all")
figure = Figure(figsize=(3.3, 2.5), layout="constrained")
axes = figure.subplots()
axes.fill_between(band["round"], band.sel(statistic="low"), band.sel(statistic="high"), alpha=0.3)
axes.plot(band["round"], band.sel(statistic="mean"))
axes.set(xlabel="round", ylabel=f"test loss ({band.units})")
figure.savefig(figures / "band.png")

# %% [markdown]
# ## Without this package
#
# The files are plain HDF5; `docs/reference/result-file.md` lists every path.

# %%
import h5py
import xarray

with h5py.File(run.path) as file:
    print(file["history/test_loss"][-1], file["history/test_loss"].attrs["units"])
    print(dict(file["privacy"].attrs))
with xarray.open_dataset(run.path, engine="h5netcdf", group="history") as history:
    print(history.test_loss.sel(round=history["round"][-1]).item())
