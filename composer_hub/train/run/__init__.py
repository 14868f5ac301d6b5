"""Everything around the training of a run: options, inputs, record, resume, export, card."""
