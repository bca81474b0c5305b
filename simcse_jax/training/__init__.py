"""Training: inputs, the recipe of a step, the step itself, the loop around it."""
