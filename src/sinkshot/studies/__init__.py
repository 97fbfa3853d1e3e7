"""Studies: the paper's tables and figures as data, their runner, and the store of results."""
