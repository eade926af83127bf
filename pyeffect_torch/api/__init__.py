"""What turns functions into programs: `jit`, `freeze`, `make_ir`, `eval_shape`."""
