"""Models: a family is data (families/), `decoder.py` is the only forward pass."""
