"""One module a source of data, which knows how to open it by an experiment's options."""
