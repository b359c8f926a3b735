"""The report as one HTML file: what the page holds, and the page itself."""
