"""Show and export what is on disk of a run, while it runs or afterwards."""
