"""The Run machine: its states and table as data, two steppers that must agree, and its diagrams."""
