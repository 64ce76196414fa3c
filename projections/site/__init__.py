"""Several records behind one API and dashboard: each has its whole service, and one application in front of them."""
