"""Scripts that run inside the sandbox, with the interpreter of a package's virtual environment and nothing of ours."""
