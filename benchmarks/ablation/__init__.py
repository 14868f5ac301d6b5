"""Do the three channels help a model learn? The world, its warm start, the arms and the report of the ablation."""
