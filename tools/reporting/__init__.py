"""What tools/report.py is made of: evidence in, pages and pictures out."""
