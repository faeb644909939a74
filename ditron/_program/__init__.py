"""Host programs: traced from Python, executed on simulated ranks and on GPUs. See README.md."""
