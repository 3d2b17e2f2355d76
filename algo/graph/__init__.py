"""Level two of the algorithm: programs as graphs of operators."""
