"""What every layer stands on: locations, errors, dtypes, interned nodes, the isl fence."""
