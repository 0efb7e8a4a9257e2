"""What sampling parameters do to logits, as columns of a step."""
