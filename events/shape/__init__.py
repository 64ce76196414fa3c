"""How answers are stored: cut along a shape into repeating parts and changing values."""
