"""The mechanisms that are built in, one a module: how noise hides a sample, and how well."""
