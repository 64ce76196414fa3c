"""Read models: what people and programs are told, computed from the folded world."""
