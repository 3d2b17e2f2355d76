"""What every layer stands on: locations, errors, dtypes, interned nodes, rewriting, the isl fence."""
