"""From what researchers have - a script with `#SBATCH` lines, a command - to an AIJob."""
