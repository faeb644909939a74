"""Execution of host programs on simulated ranks and on GPUs."""
