"""The report as one HTML file: its content, and the page itself."""
