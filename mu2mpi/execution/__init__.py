"""From an experiment to its result: the plan, the loop over rounds, files and signals, sweeps."""
