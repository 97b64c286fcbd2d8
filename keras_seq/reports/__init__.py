"""Reports of runs: tables, plots and pages."""
