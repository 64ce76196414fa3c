"""Read models: what people and programs see, computed from the folded world."""
