"""Level one of the algorithm: operators as equations between indexed tensors."""
