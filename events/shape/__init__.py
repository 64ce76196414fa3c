"""How answers are stored: cut along a shape into parts that repeat and values that move."""
